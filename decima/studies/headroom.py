"""Headroom: upper bound on the gain of learning over the best heuristic, estimated without training.

On each sequence, a search in hindsight tunes the order and the parallelism limit of each job under ``srpt``. The
search knows all arrivals and the noise of all tasks, so no online scheduler is expected to reach its result. The part
of the gain that remains under other task noise does not need this knowledge. Lower bounds on the mean JCT hold for any
scheduler, in expectation.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import Interval, mean_interval, paired_change
from decima.evaluation.run import compile_parts, run_scheduler
from decima.schedulers.priced_srpt import PricedSrpt
from decima.show.style import GREY, draw_dots, finish_axes, new_axes
from decima.show.tables import interval_text, table_of
from decima.studies.compared import jct_s
from decima.studies.outcome import RULE, UNKNOWN, Outcome
from decima.workers.pool import available_cpus, make_workers
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import run_episode
from simulator.cluster.observation import Observation
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, Wave

#: Heuristics; the best of them is the reference.
RULES = ("fair", "weighted-fair:-1", "srpt", "inelastic-first")
#: Displayed names of the search result, of results under other task noise, and of lower bounds.
HINDSIGHT, OTHER_NOISE = "hindsight", "other noise"
ALONE, SPEED_SCALED = "each job alone", "speed-scaled SRPT"
BOUNDS = (ALONE, SPEED_SCALED)
#: Offset from seeds of sequences to seeds of other task noise.
NOISE_OFFSET = 40_000_000
#: Initial standard deviation of the search, in logarithms of factors.
FIRST_STEP = 0.3


class FactorSrpt(PricedSrpt):
    """``PricedSrpt`` with two factors for each job: on its rank in the order, and on its parallelism limit.

    ``logs`` are logarithms of both factors, float64 [2, jobs of the sequence].
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
    """Run heuristics and a search in hindsight on each sequence, and compute lower bounds.

    The search is CMA-ES with a diagonal covariance matrix (Ros and Hansen, PPSN 2008), with ``budget`` episodes on each
    sequence. ``noises`` is the number of draws of other task noise.

    Returns:
        One row per sequence and scheduler; columns ``seed``, ``scheduler`` and ``mean_jct_s``. Besides heuristics, the
        schedulers are ``hindsight``; the lower bounds ``each job alone`` and ``speed-scaled SRPT``; and results under
        other task noise, ``other noise: srpt`` and ``other noise: hindsight``.

    Raises:
        CompareError: the package cma is not installed, or a heuristic failed.
    """
    try:
        import cma  # noqa: F401
    except ImportError:
        raise CompareError("the search needs the package cma: pip install -e '.[tune]'") from None
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
    """Return the outcome for results of ``headroom``."""
    runs = runs.assign(condition="")
    names = list(dict.fromkeys(runs["scheduler"]))
    rules = [name for name in names if name not in (HINDSIGHT, *BOUNDS) and not name.startswith(OTHER_NOISE)]
    jct = {name: jct_s(runs, name) for name in names}
    best = min(rules, key=lambda name: float(jct[name].mean()))
    changes = {name: paired_change(jct[name], jct[best]) for name in names}
    drawn = {name: changes[name] for name in (*rules, HINDSIGHT, *BOUNDS)}
    held = paired_change(jct[f"{OTHER_NOISE}: {HINDSIGHT}"], jct[f"{OTHER_NOISE}: {RULE}"])
    table = table_of(
        f"Headroom, {len(jct[best])} sequences",
        ("Scheduler", "Mean JCT", f"vs {best}"),
        ((each, mean_interval(jct[each]), UNKNOWN if each == best else drawn[each]) for each in drawn),
        (".1f", "+.1%"),
    )
    for place in (len(rules) - 1, len(rules)):  # lines below the rules and below the search
        table.rows[place].end_section = True
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
        pictures={"headroom": partial(plot_headroom, drawn, best)},
    )


def plot_headroom(changes: Mapping[str, Interval], best: str) -> Figure:
    """Draw changes of the mean JCT against the best heuristic: heuristics, search, and lower bounds."""
    figure, axes = new_axes(7, 0.35 * len(changes) + 1.5)
    axes.axvline(0, color=GREY)
    percent = {name: Interval(100 * mean, 100 * half) for name, (mean, half) in changes.items()}
    draw_dots(axes, percent, dict.fromkeys((HINDSIGHT, *BOUNDS), "0.35"))
    finish_axes(axes, xlabel=f"Change of the mean JCT against {best} (%)")
    return figure


def _sequence_ms(
    rules: Sequence[str], budget: int, noises: int, conditions: Conditions, seed: int
) -> tuple[int, dict[str, float]]:
    """Run heuristics and search on one sequence. Returns: seed, and mean JCT by scheduler, ms."""
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
    """Return the best logarithms of factors, float64 [2, jobs], and the mean JCT with them, ms."""
    import cma

    shape = (2, len(sequence))

    def mean_jct_ms(logs: Any) -> float:
        return run_episode(cluster, sequence, FactorSrpt(np.reshape(logs, shape))).mean_jct_ms

    settings = {"CMA_diagonal": True, "seed": 1 + seed, "maxfevals": budget, "verbose": -9}
    search = cma.CMAEvolutionStrategy(np.zeros(math.prod(shape)), FIRST_STEP, settings)
    search.optimize(mean_jct_ms)
    return np.reshape(search.result.xbest, shape), float(search.result.fbest)


def _least_work_ms(profile: JobProfile) -> float:
    """Return the least mean executor time of a job, ms: each task at its cheapest parallelism level and wave."""
    total_ms = 0.0
    for stage in profile.stages:
        tables = (stage.durations.table(wave) for wave in Wave)
        means = [values.mean() for table in tables for values in table.values() if values.size]
        total_ms += stage.num_tasks * min(means)
    return float(total_ms)


def srpt_flow_ms(arrival_ms: NDArray[np.float64], size_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return flow times of jobs on one machine under preemptive shortest remaining processing time (SRPT).

    A flow time is from arrival to completion. No other order of service has a lower mean (Schrage, 1968). All arrays
    are float64 [n], ms; arrivals ascend.
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
