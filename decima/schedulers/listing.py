"""How the names of rules are written, and what the rules do, for lists and messages."""

from __future__ import annotations

import ast
from pathlib import Path

from decima.schedulers.entries import ENTRIES, PARAMETERS

__all__ = ["signature", "summary"]


def signature(name: str) -> str:
    """Return how to write a heuristic with its parameters, such as ``seh:FROZEN``."""
    return ":".join((name, *map(str.upper, PARAMETERS.get(name, ()))))


def summary(name: str) -> str:
    """Return the first line of a heuristic's docstring, read from the source, as classes are slow to import."""
    module, _, kind = ENTRIES[name].reference.partition(":")
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    [definition] = (
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == kind
    )
    return (ast.get_docstring(definition) or "").partition("\n")[0].replace("``", "")
