"""Note on a policy that a comparison leaves out, with the command that trains a fitting one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from decima.evaluation.conditions import Conditions
from decima.evaluation.fit import evaluation_setting
from decima.learning.cluster.config import read_config
from decima.learning.cluster.settings import SettingsSection
from workloads.quantities import NEVER, to_outside
from workloads.sources.open import EMBEDDED

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


def left_out_note(policy: str, misfits: list[str], conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return a note that explains why decima is left out, with a command that trains a fitting policy.

    ``misfits`` are quantities out of the training distribution of the best fitting ``policy``; ``options``: of the
    command.
    """
    return (
        f"decima is left out, its policy {policy} is out of its training distribution: {'; '.join(misfits)}. "
        f"To train one that fits: {_train_command(policy, conditions, options)}. "
        "To see it all the same: --schedulers fair,decima."
    )


def _train_command(policy: str, conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return the command that trains a policy for these jobs and this cluster.

    It continues the training of ``general`` in this one setting; with several executor classes it starts from
    behaviour cloning.
    """
    wanted = (
        _one_setting(conditions, str(options["workload"] or options["profiles"] or EMBEDDED))
        if policy == "general"
        else _packing(RECIPES[policy], conditions)
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


def _one_setting(conditions: Conditions, source: str) -> dict[str, object]:
    """Return settings that restrict the recipe ``general`` to one cluster and workload."""
    here, drawn = evaluation_setting(conditions), read_config("general").settings
    wanted: dict[str, object] = {
        "start": "general",
        "behaviour_cloning": "null",
        "iterations": 40,
        "settings.sources": f"[{source}]" if PLAIN.fullmatch(source) else json.dumps([source]),
        "settings.durations": 1,
        "settings.tasks": 1,
    }
    if here.load is None:
        jobs = conditions.num_jobs if here.jobs is None else round(here.jobs.middle)
        wanted |= {"settings.batches": 1, "settings.batch_jobs": jobs}
    else:
        wanted |= {"settings.batches": 0, "settings.load": here.load.middle}
    faults = conditions.cluster.faults
    cluster = to_outside(conditions.cluster) | {
        "losses_per_hour": round(3_600_000 / faults.executor_lifetime_ms, 3),
        "lost_output": int(faults.lost_output),
        "straggler_share": faults.stragglers[0],
    }
    if faults.stragglers[0]:
        cluster["straggler_factor"] = faults.stragglers[1]
    if cluster["executor_return"] == NEVER:
        cluster["executor_return"] = AS_GOOD_AS_NEVER_S
    # What the recipe draws is given even if it is 0.
    wanted |= {
        f"settings.{name}": value
        for name, value in cluster.items()
        if name in SettingsSection.model_fields and getattr(drawn, name) != value
    }
    if cluster["semantics"] != "paper":
        wanted["cluster.semantics"] = cluster["semantics"]
    return wanted | {"validation.cells": 1, "validation.sequences": 20}


def _packing(recipe: str, conditions: Conditions) -> dict[str, object]:
    """Return the settings of a packing recipe that this evaluation setting needs to change."""
    settings, here = read_config(recipe), to_outside(conditions)
    ignored = {"executors", "reward", "engine", "jobs" if conditions.arrivals == "poisson" else "interval"}
    if conditions.workload.sequence is not None:
        ignored |= {"arrivals", "interval", "jobs", "drift"}
    return {
        f"{section}.{name}": "null" if here[name] is None else here[name]
        for section, setting in (("cluster", settings.cluster), ("workload", settings.workload))
        for name, value in to_outside(setting).items()
        if name in here and name not in ignored and here[name] != value
    }
