"""Operators of stages and sizes of the files that they read, from physical plans of Spark SQL and scopes of RDDs.

The scopes of a stage's RDDs are the operators of the stage, except for those that Spark compiled into one function: the
scope of these is a node ``WholeStageCodegen (n)`` of the plan. Numbers of such nodes are unique within a plan, but not
among a query, its subqueries and the plans of cached tables, whose nodes are told apart by their accumulators: Spark
logs which accumulators (the metrics of nodes) a stage updated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.job import LONGEST_OPERATOR, MOST_OPERATORS

__all__ = ["CompiledNode", "FileScan", "compiled_nodes", "file_scans", "short_names", "stage_operators"]

#: Beginning of the name of a node that Spark compiled, and nodes that end the compiled part of a plan.
COMPILED, ENDS = "WholeStageCodegen", ("InputAdapter", "Subquery", "ReusedSubquery")
#: Metric of a scan that the driver sets before the scan's tasks start.
FILE_SIZE = "size of files read"


@dataclass
class CompiledNode:
    """Operators that Spark compiled into one function."""

    operators: list[str] = field(default_factory=list)  # names, each before its children
    accumulators: set[int] = field(
        default_factory=set
    )  # numbers of the accumulators of the node and its operators


@dataclass(frozen=True)
class FileScan:
    """A node of a plan that reads files."""

    size: int  # number of the accumulator of the size of the files, bytes
    accumulators: frozenset[int]  # numbers of all accumulators of the node


def file_scans(plan: Mapping[str, Any] | None) -> list[FileScan]:
    """Return the scans of files in a physical plan (``sparkPlanInfo``); empty without a plan.

    Raises:
        LookupError, TypeError, ValueError: a node lacks a field, or a field has a wrong type.
    """
    scans, pending = [], [plan] if plan else []
    while pending:
        node = pending.pop()
        metrics = {int(metric["accumulatorId"]): metric.get("name") for metric in node.get("metrics", ())}
        scans += [FileScan(size, frozenset(metrics)) for size, name in metrics.items() if name == FILE_SIZE]
        pending += node["children"]
    return scans


def compiled_nodes(plan: Mapping[str, Any] | None) -> dict[str, list[CompiledNode]]:
    """Return the compiled nodes of a physical plan (``sparkPlanInfo``) by name; empty without a plan.

    Raises:
        LookupError, TypeError, ValueError: a node lacks a field, or a field has a wrong type.
    """
    nodes: dict[str, list[CompiledNode]] = {}
    pending: list[tuple[Mapping[str, Any], CompiledNode | None]] = [(plan, None)] if plan else []
    while pending:
        node, inside = pending.pop()
        name = str(node["nodeName"])
        if name.startswith(COMPILED):
            inside = CompiledNode()
            nodes.setdefault(name, []).append(inside)
        elif name.startswith(ENDS):
            inside = None
        elif inside is not None:
            inside.operators.append(name)
        if inside is not None:
            inside.accumulators |= {int(metric["accumulatorId"]) for metric in node.get("metrics", ())}
        pending += [(child, inside) for child in reversed(node["children"])]
    return nodes


def stage_operators(
    scopes: Iterable[str], nodes: Mapping[str, list[CompiledNode]], accumulators: Collection[int]
) -> tuple[str, ...]:
    """Return the operators of a stage, in order of execution; names are cut, and operators beyond the maximum left out.

    Args:
        scopes: scopes of the stage's RDDs, in order of execution.
        nodes: compiled nodes of the plan of its SQL execution, by name.
        accumulators: numbers of the accumulators that the stage updated.
    """
    operators: list[str] = []
    for scope in scopes:
        if same_name := nodes.get(scope):
            updated = (node for node in same_name if not node.accumulators.isdisjoint(accumulators))
            operators += reversed(next(updated, same_name[0]).operators)  # a child runs before its parent
        else:
            operators.append(COMPILED if scope.startswith(COMPILED) else scope)
    return short_names(operators)


def short_names(operators: Sequence[str]) -> tuple[str, ...]:
    """Return names of operators without names of tables; names are cut, and operators beyond the maximum left out."""
    return tuple(filter(None, map(_short_name, operators[:MOST_OPERATORS])))


def _short_name(operator: str) -> str:
    """Return the name of an operator without the name of a table that it scans (``Scan parquet db.orders``)."""
    words = operator.split()
    name = " ".join(words[:2] if words[:1] == ["Scan"] else words)
    return "".join(letter for letter in name if letter.isprintable())[:LONGEST_OPERATOR].strip()
