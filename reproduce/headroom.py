"""Headroom: how much a scheduler could gain over the best rule, estimated without training.

On each sequence, a search in hindsight (CMA-ES with a diagonal covariance matrix; Ros and Hansen, PPSN 2008) tunes the
order and the parallelism limit of each job under the rule ``srpt``. It knows all arrivals and the noise of all
tasks, so no online scheduler is expected to get as far. The gain that remains under other task noise needs knowledge of
the jobs only. Two lower bounds hold for any scheduler, in expectation. Needs ``pip install -e '.[tune]'``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

import decima
from decima.schedulers.srpt import OrderedRule, Srpt
from decima.show.style import GREY, draw_dots, finish_axes, new_axes
from reproduce.common import Result, change
from simulator import ClusterConfig
from simulator.cluster.observation import Observation
from simulator.cluster.times_alone import times_alone
from workloads import JobProfile, JobSequence, Wave

RULE = "srpt"
RULES = ("fair", "weighted-fair:-1", RULE, "inelastic-first")
HINDSIGHT, RULE_OTHER, HINDSIGHT_OTHER = "hindsight", f"{RULE}, other noise", "hindsight, other noise"
ALONE, SPEED_SCALED = "each job alone", "speed-scaled SRPT"
#: Offset from seeds of sequences to seeds of other task noise.
NOISE_OFFSET = 40_000_000


class FactorSrpt(OrderedRule):
    """The rule with two factors for each job: on its rank in the order, and on its parallelism limit.

    ``logs`` are logarithms of both factors, float64 [2, jobs of the sequence].
    """

    def __init__(self, logs: NDArray[np.float64]) -> None:
        super().__init__()
        self.factors = np.exp(logs)

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        return self.factors[:, observation.job_id]


def run(
    *,
    workload: str = "tpch",
    arrivals: Literal["batch", "poisson"] = "batch",
    interval: float = 14.0,
    executors: int = 50,
    jobs: int = 20,
    seeds: int = 4,
    seed: int = 7000,
    rules: tuple[str, ...] = RULES,
    budget: int = 3000,
    noises: int = 8,
    workers: int = 1,
) -> Result:
    """Run rules and the search on each sequence, and compute lower bounds.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        arrivals: All jobs at once, or a stream.
        interval: Mean seconds between the arrivals of a stream.
        executors: Executors of the cluster.
        jobs: Jobs in a sequence.
        seeds: Number of sequences.
        seed: Seed of the first sequence.
        rules: Rule; the best one is compared with the search.
        budget: Episodes of the search on each sequence.
        noises: Draws of other task noise.
        workers: Processes that run the rules.
    """
    setting = decima.make_conditions(
        workload=workload,
        arrivals=arrivals,
        interval=interval,
        executors=executors,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
    )
    comparison = decima.Comparison(setting, list(dict.fromkeys((*rules, RULE))))
    comparison.run(workers)
    rows = [comparison.runs[["scheduler", "seed", "mean_jct_s"]]]
    rule_s = comparison.runs.pivot_table("mean_jct_s", "seed", "scheduler")[RULE]
    for sequence_seed in setting.seeds:
        found_s = bounds_s(
            setting.cluster, setting.sequence(sequence_seed), float(rule_s[sequence_seed]), budget, noises
        )
        rows.append(
            pd.DataFrame(
                {"scheduler": list(found_s), "seed": sequence_seed, "mean_jct_s": list(found_s.values())}
            )
        )
    runs = pd.concat(rows, ignore_index=True)
    table = decima.summary_table(runs, comparison.best_heuristic, ["mean_jct_s"])
    values = {
        f"hindsight vs {RULE}": change(runs, HINDSIGHT, RULE),
        f"hindsight vs {RULE}, other noise": change(runs, HINDSIGHT_OTHER, RULE_OTHER),
    }
    return Result({"headroom": table}, {"headroom": plot(table)}, values)


def plot(table: pd.DataFrame) -> Figure:
    """Draw changes of the mean JCT against the best heuristic: rules, search, and lower bounds."""
    column = next(name for name in table if name.startswith("vs "))
    shown = table[~table["scheduler"].isin([RULE_OTHER, HINDSIGHT_OTHER])]
    percent = 100 * shown.set_index("scheduler")[[column, f"{column}_ci95"]].fillna(0.0)
    figure, axes = new_axes(7, 0.35 * len(shown) + 1.5)
    axes.axvline(0, color=GREY)
    grey = dict.fromkeys((HINDSIGHT, ALONE, SPEED_SCALED), "0.35")
    draw_dots(axes, {name: tuple(row) for name, row in percent.iterrows()}, grey)
    finish_axes(axes, xlabel=f"Change of the mean JCT against {column.removeprefix('vs ')} (%)")
    return figure


# ---- search and lower bounds -------------------------------------------------------------------------------


def bounds_s(
    cluster: ClusterConfig, sequence: JobSequence, rule_s: float, budget: int, noises: int
) -> Mapping[str, float]:
    """Return mean JCTs, s: of the search, under other task noise, and lower bounds; ``rule_s`` is that of the rule."""
    logs, hindsight_s = search(cluster, sequence, budget)
    if hindsight_s >= rule_s:
        logs, hindsight_s = np.zeros_like(logs), rule_s
    first = NOISE_OFFSET + sequence.seed * noises
    other_sequences = [replace(sequence, seed=first + index) for index in range(noises)]
    rule_other, hindsight_other = (
        float(
            np.mean([decima.run_episode(cluster, other, scheduler).mean_jct_ms for other in other_sequences])
        )
        / 1000
        for scheduler in (Srpt(), FactorSrpt(logs))
    )
    alone_ms = [time.mean_ms for time in times_alone(sequence.profiles, cluster)]
    sizes_ms = np.array([least_work_ms(profile) for profile in sequence.profiles]) / cluster.num_executors
    return {
        HINDSIGHT: hindsight_s,
        RULE_OTHER: rule_other,
        HINDSIGHT_OTHER: hindsight_other,
        ALONE: float(np.mean(alone_ms)) / 1000,
        SPEED_SCALED: float(srpt_flow_ms(sequence.arrival_ms, sizes_ms).mean()) / 1000,
    }


def search(cluster: ClusterConfig, sequence: JobSequence, budget: int) -> tuple[NDArray[np.float64], float]:
    """Return the best logarithms of factors, float64 [2, jobs], and the mean JCT with them, s."""
    import cma

    shape = (2, len(sequence))

    def mean_jct_s(logs: Any) -> float:
        return decima.run_episode(cluster, sequence, FactorSrpt(np.reshape(logs, shape))).mean_jct_ms / 1000

    settings = {"CMA_diagonal": True, "seed": 1 + sequence.seed, "maxfevals": budget, "verbose": -9}
    optimum = cma.CMAEvolutionStrategy(np.zeros(math.prod(shape)), 0.3, settings).optimize(mean_jct_s).result
    return np.reshape(optimum.xbest, shape), float(optimum.fbest)


def least_work_ms(profile: JobProfile) -> float:
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
