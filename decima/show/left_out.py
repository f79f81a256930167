"""Note on decima in a comparison that leaves it out, with the command that trains a fitting policy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from decima.evaluation.conditions import Conditions
from decima.learning.cluster.config import read_config
from workloads.quantities import to_outside

__all__ = ["left_out_note"]


def left_out_note(conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return a note that explains why decima is left out, with a command that trains a fitting policy.

    Args:
        options: options of the command by name.
    """
    return (
        "decima is left out: no shipped network was trained for such jobs on such a cluster. To train one: "
        f"{_train_command(conditions, options)}."
    )


def _train_command(conditions: Conditions, options: Mapping[str, Any]) -> str:
    """Return the command that trains a policy for these jobs and this cluster, by the nearest recipe."""
    has_classes = len(conditions.cluster.executor_classes) > 1
    recipe = "packing" if has_classes else {"batch": "batch"}.get(conditions.arrivals, "stream")
    settings, here = read_config(recipe), to_outside(conditions)
    ignored = {"reward", "engine", "jobs" if conditions.arrivals == "poisson" else "interval"}
    if has_classes:
        ignored.add("executors")
    if conditions.workload.sequence is not None:
        ignored |= {"arrivals", "interval", "jobs", "drift"}
    words = ["decima", "train", "--config", recipe]
    for section, setting in (("cluster", settings.cluster), ("workload", settings.workload)):
        for name, value in to_outside(setting).items():
            if name in here and name not in ignored and here[name] != value:
                wanted = "null" if here[name] is None else here[name]
                text = f"{wanted:g}" if isinstance(wanted, float) else str(wanted)
                words += ["--set", f"{section}.{name}={text}"]
    for option in ("workload", "profiles"):
        if options[option] is not None:
            words += [f"--{option}", str(options[option])]
    return shlex.join([*words, "--out", "DIR"])
