"""Headroom: the largest possible gain over the best rule, estimated before any training.

On each sequence a search with hindsight changes the order and the limits of the rule ``priced-srpt`` job by job. It
knows the arrivals and the noise of all tasks, so that no scheduler can be expected to get as far. What is left of its
gain under other task noise does not need that knowledge. Lower bounds say what no scheduler is expected to get below.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.compiling import compile_parts
from decima.evaluation.conditions import CompareError
from decima.evaluation.metrics import Interval, mean_interval, paired_change
from decima.evaluation.run import run_scheduler
from decima.schedulers.priced_srpt import PricedSrpt
from decima.show.style import BLACK, BLUE, GREY, finish_axes, new_axes
from decima.show.tables import interval_text, new_table
from decima.studies.compared import jct_s
from decima.studies.outcome import RULE, UNKNOWN, Outcome
from decima.workers.pool import available_cpus, make_workers
from simulator.cluster.episode import run_episode
from workloads.job import Wave

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decima.evaluation.conditions import Conditions
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.observation import Observation
    from workloads.arrivals import JobSequence
    from workloads.job import JobProfile

__all__ = ["RULES", "FactorSrpt", "headroom", "outcome", "srpt_flow_ms"]

#: Rules whose best is compared with.
RULES = ("fair", "weighted-fair:-1", "profiled-srpt", "priced-srpt", "packed-srpt", "inelastic-first")
#: Rows of the result that are no rules.
HINDSIGHT, OTHER_NOISE = "hindsight", "other noise"
ALONE, SPEED_SCALED = "each job alone", "speed-scaled SRPT"
BOUNDS = (ALONE, SPEED_SCALED)
#: Other task noise has the seed of the sequence plus this and above.
NOISE_OFFSET = 40_000_000
#: Standard deviation of the first candidates, as logarithms of factors.
FIRST_STEP = 0.3


class FactorSrpt(PricedSrpt):
    """``PricedSrpt`` with a factor on the order and on the limit of each job.

    Args:
        logs: logarithms of the factors, float64 [2, jobs of the sequence].
    """

    def __init__(self, logs: NDArray[np.float64]) -> None:
        super().__init__()
        self.factors = np.exp(logs)

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        return self.factors[:, observation.job_id]


def headroom(
    conditions: Conditions,
    rules: Sequence[str] = RULES,
    *,
    budget: int = 3000,
    noises: int = 8,
    workers: int | str | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    on_compile: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Search with hindsight on each sequence, and run the rules.

    The search is CMA-ES with a diagonal covariance (Ros and Hansen, PPSN 2008).

    Args:
        conditions: cluster, jobs and seeds.
        rules: names of schedulers.
        budget: episodes of the search on each sequence, at least 1.
        noises: draws of other task noise, at least 1.
        workers: see ``check_workers``; a process for each CPU if omitted.
        on_step: progress callback: sequences done, of all.
        on_compile: progress callback while code is compiled for the first time.

    Returns:
        A row for each sequence and scheduler; columns ``seed``, ``scheduler`` and ``mean_jct_s``. Besides the rules
        there are ``hindsight``; ``each job alone`` and ``speed-scaled SRPT``, lower bounds; and, for ``other noise``,
        ``other noise: priced-srpt``, the rule that the search began with, and ``other noise: hindsight``.

    Raises:
        CompareError: the package cma is not installed, or a rule failed.
    """
    try:
        import cma  # noqa: F401
    except ImportError:
        raise CompareError("a search needs the package cma: pip install -e '.[tune]'") from None
    names = tuple(dict.fromkeys((*rules, RULE)))
    workers = workers or available_cpus()
    compile_parts(conditions, names, workers, on_compile)
    seeds, rows = list(conditions.seeds), []
    with make_workers(conditions, workers, len(seeds)) as pool:
        work = partial(_sequence_ms, names, budget, noises)
        for done, (seed, found) in enumerate(pool.map(work, seeds), 1):
            rows += [(seed, name, value / 1000) for name, value in found.items()]
            on_step(done, len(seeds))
    runs = pd.DataFrame(rows, columns=["seed", "scheduler", "mean_jct_s"])
    return runs.sort_values("seed", kind="stable", ignore_index=True)


def outcome(runs: pd.DataFrame, conditions: Conditions) -> Outcome:
    """Return table, notes and picture of the result of ``headroom``."""
    runs = runs.assign(condition="")
    names = list(dict.fromkeys(runs["scheduler"]))
    rules = [name for name in names if name not in (HINDSIGHT, *BOUNDS) and not name.startswith(OTHER_NOISE)]
    jct = {name: jct_s(runs, name) for name in names}
    best = min(rules, key=lambda name: float(jct[name].mean()))
    changes = {name: paired_change(jct[name], jct[best]) for name in names}
    held = paired_change(jct[f"{OTHER_NOISE}: {HINDSIGHT}"], jct[f"{OTHER_NOISE}: {RULE}"])
    table = new_table(f"Headroom, {len(jct[best])} sequences", "Scheduler", "Mean JCT", f"vs {best}")
    for name in (*rules, HINDSIGHT, *BOUNDS):
        change = UNKNOWN if name == best else interval_text(changes[name], "+.1%")
        table.add_row(
            name, interval_text(mean_interval(jct[name])), change, end_section=name in (rules[-1], HINDSIGHT)
        )
    gain = paired_change(jct[HINDSIGHT], jct[RULE])
    return Outcome(
        "headroom",
        runs,
        [table],
        [
            "Times are seconds; ± is half a 95 % confidence interval (Student's t); changes are paired by sequence.",
            f"{HINDSIGHT}: the order and the limits of jobs under {RULE}, searched on each sequence with knowledge of "
            "all arrivals and task noise. No scheduler can be expected to get as far.",
            f"Under other task noise, what the search found changes the mean JCT of {RULE} by "
            f"{interval_text(held, '+.1%')}: so much of {interval_text(gain, '+.1%')} needs no knowledge of the noise.",
            f"{ALONE}: expected time of each job with the whole cluster. {SPEED_SCALED}: one machine as fast as all "
            "executors, with tasks at their cheapest. No scheduler is expected to get below either.",
        ],
        extra={
            "conditions": conditions.to_dict(),
            "best_rule": best,
            "changes": {name: change._asdict() for name, change in changes.items()},
            "held_under_other_noise": held._asdict(),
        },
        pictures={
            "headroom": partial(
                plot_headroom, {name: changes[name] for name in (*rules, HINDSIGHT, *BOUNDS)}, best
            )
        },
    )


def plot_headroom(changes: Mapping[str, Interval], best: str) -> Figure:
    """Draw the change of the mean JCT of rules, search and lower bounds against the best rule, paired by sequence."""
    figure, axes = new_axes(7, 0.35 * len(changes) + 1.5)
    axes.axvline(0, color=GREY)
    for place, (name, (mean, half_width)) in enumerate(list(changes.items())[::-1]):
        colour = BLUE if name == HINDSIGHT else GREY if name in BOUNDS else BLACK
        error = None if math.isnan(half_width) else 100 * half_width
        axes.errorbar(100 * mean, place, xerr=error, fmt="o", color=colour, capsize=3)
    axes.set_yticks(range(len(changes)), list(changes)[::-1])
    finish_axes(axes, xlabel=f"Change of the mean JCT against {best} (%)")
    return figure


def _sequence_ms(
    rules: Sequence[str], budget: int, noises: int, conditions: Conditions, seed: int
) -> tuple[int, dict[str, float]]:
    """Run rules and search on one sequence; return the mean JCT of each, ms."""
    cluster, sequence = conditions.cluster_of(seed), conditions.sequence(seed)
    records = {name: run_scheduler(cluster, sequence, name) for name in rules}
    found = {name: record.mean_jct_ms for name, record in records.items()}
    logs, found[HINDSIGHT] = _search(cluster, sequence, budget, seed)
    if found[HINDSIGHT] >= found[RULE]:
        logs, found[HINDSIGHT] = np.zeros_like(logs), found[RULE]
    others = [replace(sequence, seed=NOISE_OFFSET + seed * noises + each) for each in range(noises)]
    for name, scheduler in ((RULE, PricedSrpt()), (HINDSIGHT, FactorSrpt(logs))):
        means = [run_episode(cluster, each, scheduler).mean_jct_ms for each in others]
        found[f"{OTHER_NOISE}: {name}"] = float(np.mean(means))
    found[ALONE] = float(records[RULE].alone_ms.mean())
    sizes = np.array([_least_work_ms(profile) for profile in sequence.profiles]) / cluster.num_executors
    found[SPEED_SCALED] = float(srpt_flow_ms(sequence.arrival_ms, sizes).mean())
    return seed, found


def _search(
    cluster: ClusterConfig, sequence: JobSequence, budget: int, seed: int
) -> tuple[NDArray[np.float64], float]:
    """Return the best logarithms of factors, float64 [2, jobs], and their mean JCT, ms."""
    import cma

    shape = (2, len(sequence))

    def mean_jct_ms(logs: Any) -> float:
        return run_episode(cluster, sequence, FactorSrpt(np.reshape(logs, shape))).mean_jct_ms

    settings = {"CMA_diagonal": True, "seed": 1 + seed, "maxfevals": budget, "verbose": -9}
    search = cma.CMAEvolutionStrategy(np.zeros(math.prod(shape)), FIRST_STEP, settings)
    search.optimize(mean_jct_ms)
    return np.reshape(search.result.xbest, shape), float(search.result.fbest)


def _least_work_ms(profile: JobProfile) -> float:
    """Return the executor time that a job needs at least on average: each task at its cheapest level and wave, ms."""
    total_ms = 0.0
    for stage in profile.stages:
        tables = (stage.durations.table(wave) for wave in Wave)
        means = [values.mean() for table in tables for values in table.values() if values.size]
        total_ms += stage.num_tasks * min(means)
    return float(total_ms)


def srpt_flow_ms(arrival_ms: NDArray[np.float64], size_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how long each job is in a single machine that serves the shortest remaining job first, with preemption.

    No order of service has a lower mean (Schrage, 1968).

    Args:
        arrival_ms: float64 [n], ascending.
        size_ms: float64 [n]; time that the machine needs for each job.

    Returns:
        Time from arrival to completion, float64 [n], ms.
    """
    completion_ms, waiting = np.zeros(len(size_ms)), list[tuple[float, int]]()
    arrivals = [*arrival_ms.tolist(), math.inf]
    now = coming = 0
    while coming < len(size_ms) or waiting:
        now = now if waiting else max(now, arrivals[coming])
        while arrivals[coming] <= now:
            heapq.heappush(waiting, (float(size_ms[coming]), coming))
            coming += 1
        left, job = heapq.heappop(waiting)
        served = min(left, arrivals[coming] - now)
        now += served
        if served < left:
            heapq.heappush(waiting, (left - served, job))
        else:
            completion_ms[job] = now
    return completion_ms - arrival_ms
