"""Decima, Figure 11a: windows of an industrial trace, on executors of four sizes.

Section 7.3 of the paper: Decima's average job completion time is 32 % below that of Graphene*. Here, the jobs are those
of the last days of the sample of Alibaba's trace (``docs/reproduce/fig11a.md`` has the command that imports them). A
rule with searched weights takes the place of Decima, since no network was trained on such jobs. Only stages whose
parents are complete get executors, as in the trace.
"""

from __future__ import annotations

import decima
from reproduce.common import Result
from reproduce.fig11b import CLASSES, METRICS, SCHEDULERS, claims, plot

RULE = "srpt-tuned"


def run(
    *,
    workload: str = "trace.json.gz",
    classes: str = CLASSES,
    window: float = 6480.0,
    seeds: int = 10,
    seed: int = 0,
    workers: int = 1,
) -> Result:
    """Compare schedulers that pack.

    Args:
        workload: Workload file with arrival times.
        classes: Executor classes, number x memory.
        window: Seconds of the trace in each experiment.
        seeds: Number of windows; two further ones, the last of the trace, tune heuristics.
        seed: Index of the first window.
        workers: Processes.
    """
    runs = decima.compare(
        [name for name in SCHEDULERS if name != "decima"],
        workload=workload,
        classes=classes,
        semantics="trace",
        window=window,
        seeds=seeds,
        seed=seed,
        training=2,
        workers=workers,
    )
    table = decima.summary_table(runs, "tuned-weighted-fair", METRICS)
    table["paper"] = table["scheduler"].map({RULE: "-32% against Graphene*"})
    return Result({"windows": table, "claims": claims(runs, 0.32, RULE)}, {"fig11a": plot(table)})
