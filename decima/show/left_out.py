"""Note on a shipped policy that does not fit an evaluation setting, with the command that trains one that does."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from decima.evaluation.conditions import Conditions
from decima.evaluation.fit import evaluation_setting
from decima.learning.cluster.config import read_config

__all__ = ["RECIPES", "left_out_note"]

#: Shipped policy -> recipe of its training.
RECIPES = {
    "general": "general",
    "packing-tpch": "packing",
    "packing-trace": "trace",
    "tpch-batch": "batch",
    "tpch-stream": "stream",
    "embedded-batch": "batch",
    "embedded-stream": "stream",
}


def left_out_note(policy: str, found: list[str], conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Say why decima does not take part by default, and which command trains a policy that fits.

    Args:
        policy: shipped policy that fits best.
        found: quantities of ``conditions`` that are out of its training distribution.
        conditions: evaluation setting.
        options: those of ``decima compare``.
    """
    return (
        f"decima is left out, its policy {policy} was trained on something else: {'; '.join(found)}. "
        f"To train one that fits: {_train_command(policy, conditions, options)}. "
        "To see it all the same: --schedulers fair,decima."
    )


def _train_command(policy: str, conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return the command that trains a policy for these jobs and this cluster.

    Training of ``general`` continues in this one setting; with several executor classes it starts anew by behaviour
    cloning.
    """
    wanted = (
        _one_setting(conditions, options)
        if policy == "general"
        else _packing(RECIPES[policy], conditions, options)
    )
    words = ["decima", "train", "--config", RECIPES[policy]]
    for key, value in wanted.items():
        words += ["--set", f"{key}={f'{value:g}' if isinstance(value, float) else value}"]
    if policy != "general":
        for option in ("workload", "profiles"):
            if options[option] is not None:
                words += [f"--{option}", str(options[option])]
    return shlex.join([*words, "--out", "DIR"])


def _one_setting(conditions: Conditions, options: Mapping[str, Any]) -> dict[str, object]:
    """Return settings of the recipe ``general`` that restrict it to one cluster and workload."""
    here = evaluation_setting(conditions)
    source = options["workload"] or options["profiles"] or "tpch"
    wanted: dict[str, object] = {
        "start": "general",
        "behaviour_cloning": "null",
        "iterations": 40,
        "settings.sources": f"[{source}]",
        "settings.executors": options["executors"],
        "settings.moving_delay": options["moving_delay"],
        "settings.durations": 1,
        "settings.tasks": 1,
    }
    if here.load is None:
        jobs = options["jobs"] if here.jobs is None else round(here.jobs.middle)
        wanted |= {"settings.batches": 1, "settings.batch_jobs": jobs}
    else:
        wanted |= {"settings.batches": 0, "settings.load": here.load.middle}
    errors = asdict(conditions.cluster.knowledge).items()
    wanted |= {f"settings.{name}": value for name, value in errors if value}
    if options["semantics"] != "paper":
        wanted["cluster.semantics"] = options["semantics"]
    return wanted | {"validation.cells": 1, "validation.sequences": 20}


def _packing(recipe: str, conditions: Conditions, options: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings that differ from the recipe's."""
    settings = read_config(recipe)
    wanted: list[tuple[str, object, object]] = [
        ("cluster.classes", settings.cluster.classes, options["classes"]),
        ("cluster.moving_delay", settings.cluster.moving_delay, options["moving_delay"]),
        ("cluster.semantics", settings.cluster.semantics, options["semantics"]),
        ("workload.memory_demand", settings.workload.memory_demand, options["memory_demand"]),
    ]
    if conditions.workload.sequence is None:
        wanted.append(("workload.arrivals", settings.workload.arrivals, options["arrivals"]))
        name = "interval" if options["arrivals"] == "poisson" else "jobs"
        wanted.append((f"workload.{name}", getattr(settings.workload, name), options[name]))
        wanted.append(("workload.drift", settings.workload.drift, options["drift"]))
    return {key: instead for key, value, instead in wanted if value != instead}
