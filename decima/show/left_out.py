"""Note on a policy that a comparison leaves out, with the command that trains a fitting one."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from decima.evaluation.conditions import Conditions
from decima.evaluation.fit import evaluation_setting
from decima.learning.cluster.config import read_config

#: Texts that need no quotes in YAML.
PLAIN = re.compile(r"[A-Za-z./][\w./-]*")
#: Replacement time for executors that are never replaced, s, since settings of trainings must be finite.
AS_GOOD_AS_NEVER_S = 10**9
#: Shipped policy -> recipe of its training.
RECIPES = {
    "general": "general",
    "packing": "packing",
    "packing-tpch": "packing",
    "packing-trace": "trace",
    "tpch-batch": "batch",
    "tpch-stream": "stream",
    "embedded-batch": "batch",
    "embedded-stream": "stream",
    "embedded-errors": "errors",
    "tpch-misses": "deadlines",
    "tpch-weighted": "weights",
    "paper-batch": "paper",
    "paper-stream": "paper",
}
#: Shipped policy -> changed settings of its recipe.
CHANGED = {
    "packing": (
        "policy.preset=packing-told",
        "policy.overrides.rule=srpt-tuned",
        "policy.overrides.guard=true",
        "behaviour_cloning=null",
    ),
}


def left_out_note(policy: str, found: list[str], conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return a note that explains why decima is left out, with a command that trains a fitting policy.

    ``found`` are quantities out of the training distribution of the best fitting ``policy``; ``options``: of the
    command.
    """
    return (
        f"decima is left out, its policy {policy} is out of its training distribution: {'; '.join(found)}. "
        f"To train one that fits: {_train_command(policy, conditions, options)}. "
        "To see it all the same: --schedulers fair,decima."
    )


def _train_command(policy: str, conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return the command that trains a policy for these jobs and this cluster.

    It continues the training of ``general`` in this one setting; with several executor classes it starts from
    behaviour cloning.
    """
    wanted = (
        _one_setting(conditions, options)
        if policy == "general"
        else _packing(RECIPES[policy], conditions, options)
    )
    words = ["decima", "train", "--config", RECIPES[policy]]
    for key, value in wanted.items():
        words += ["--set", f"{key}={f'{value:g}' if isinstance(value, float) else value}"]
    for setting in CHANGED.get(policy, ()):
        words += ["--set", setting]
    if policy != "general":
        for option in ("workload", "profiles"):
            if options[option] is not None:
                words += [f"--{option}", str(options[option])]
    return shlex.join([*words, "--out", "DIR"])


def _one_setting(conditions: Conditions, options: Mapping[str, Any]) -> dict[str, object]:
    """Return settings that restrict the recipe ``general`` to one cluster and workload."""
    here = evaluation_setting(conditions)
    source = str(options["workload"] or options["profiles"] or "tpch")
    wanted: dict[str, object] = {
        "start": "general",
        "behaviour_cloning": "null",
        "iterations": 40,
        "settings.sources": f"[{source}]" if PLAIN.fullmatch(source) else json.dumps([source]),
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
    # The recipe draws errors and faults, so that those of this setting are given even if they are 0.
    wanted |= {f"settings.{name}": value for name, value in asdict(conditions.cluster.knowledge).items()}
    faults = conditions.cluster.faults
    wanted["settings.losses_per_hour"] = round(3_600_000 / faults.executor_lifetime_ms, 3)
    if math.isfinite(faults.executor_lifetime_ms):
        returns_s = faults.executor_return_ms / 1000
        wanted |= {
            "settings.executor_return": returns_s if math.isfinite(returns_s) else AS_GOOD_AS_NEVER_S,
            "settings.lost_output": int(faults.lost_output),
        }
    wanted["settings.task_failures"] = faults.task_failures
    wanted["settings.straggler_share"], factor = faults.stragglers
    if faults.stragglers[0]:
        wanted["settings.straggler_factor"] = factor
    if options["semantics"] != "paper":
        wanted["cluster.semantics"] = options["semantics"]
    return wanted | {"validation.cells": 1, "validation.sequences": 20}


def _packing(recipe: str, conditions: Conditions, options: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings of a packing recipe that this evaluation setting needs to change."""
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
