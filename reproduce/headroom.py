"""Headroom: how much a scheduler could gain over the best rule, estimated without training.

On each sequence, a search in hindsight (CMA-ES with a diagonal covariance matrix; Ros and Hansen, PPSN 2008) tunes the
order and the parallelism limit of each job under the rule ``srpt``. It knows all arrivals and the noise of all
tasks, so no online scheduler is expected to get as far. The gain that remains under other task noise needs knowledge of
the jobs only. In streams, lookahead (rollouts of the rule; Bertsekas, Tsitsiklis and Wu, J. Heuristics 1997) knows
neither: it chooses the order and the limit of a job at its arrival, by simulations of random futures. A scheduler can
get as far. Two lower bounds hold for any scheduler, in expectation. Needs ``pip install -e '.[tune]'``.
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
from decima.evaluation import CompareError
from decima.schedulers.srpt import OrderedRule, Srpt
from decima.show.style import GREY, draw_dots, finish_axes, new_figure
from reproduce.common import Result, batches_and_streams, change
from simulator import ClusterConfig
from simulator.cluster.base import BaseCluster
from simulator.cluster.episode import start_episode
from simulator.cluster.observation import Observation
from simulator.cluster.times_alone import times_alone
from workloads import JobProfile, JobSequence, Wave

RULE = "srpt"
RULES = ("fair", "weighted-fair:-1", RULE, "inelastic-first")
HINDSIGHT, RULE_OTHER, HINDSIGHT_OTHER = "hindsight", f"{RULE}, other noise", "hindsight, other noise"
LOOKAHEAD = "lookahead"
ALONE, SPEED_SCALED = "each job alone", "speed-scaled SRPT"
#: Offset from seeds of sequences to seeds of other task noise.
NOISE_OFFSET = 40_000_000
#: Pairs of factors between which lookahead chooses: on a job's rank in the order, and on its parallelism limit.
FACTORS = ((1.0, 1.0), (1.0, 0.5), (1.0, 0.7), (1.0, 1.4), (1.0, 2.0), (0.5, 1.0), (2.0, 1.0))
#: Number of later jobs in a random future.
LATER_JOBS = 5


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
    executors: int = 50,
    arrivals: tuple[Literal["batches", "streams"], ...] = ("batches", "streams"),
    jobs: int = 20,
    stream_jobs: int = 60,
    interval: float = 5.0,
    seeds: int = 4,
    stream_seeds: int = 8,
    seed: int = 7000,
    rules: tuple[str, ...] = RULES,
    budget: int = 3000,
    noises: int = 8,
    futures: int = 32,
    workers: int = 1,
) -> Result:
    """Run rules, the search and lookahead on each sequence, and compute lower bounds.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        arrivals: batches or streams.
        jobs: Jobs in a batch.
        stream_jobs: Jobs in a stream.
        interval: Mean seconds between the arrivals of a stream.
        seeds: Number of batches.
        stream_seeds: Number of streams.
        seed: Seed of the first sequence.
        rules: Rule; the best one is compared with the search.
        budget: Episodes of the search on each sequence.
        noises: Draws of other task noise.
        futures: Random futures of each decision of lookahead.
        workers: Processes that run the rules.
    """
    if futures < 2:
        raise CompareError(f"--futures must be at least 2, as a choice needs a standard error, got {futures}")
    kinds = batches_and_streams(jobs, stream_jobs, interval)
    tables: dict[str, pd.DataFrame] = {}
    values = {}
    for name in arrivals:
        setting = decima.make_conditions(
            workload=workload,
            executors=executors,
            seeds=stream_seeds if name == "streams" else seeds,
            seed=seed,
            **kinds[name],
        )
        comparison = decima.Comparison(setting, list(dict.fromkeys((*rules, RULE))))
        comparison.run(workers)
        rows = [comparison.runs[["scheduler", "seed", "mean_jct_s"]]]
        rule_s = comparison.runs.pivot_table("mean_jct_s", "seed", "scheduler")[RULE]
        for sequence_seed in setting.seeds:
            sequence = setting.sequence(sequence_seed)
            found_s = bounds_s(setting.cluster, sequence, float(rule_s[sequence_seed]), budget, noises)
            if name == "streams":
                rule = FactorSrpt(lookahead(setting.cluster, sequence, interval, futures))
                found_s[LOOKAHEAD] = decima.run_episode(setting.cluster, sequence, rule).mean_jct_ms / 1000
            means = {"scheduler": list(found_s), "mean_jct_s": list(found_s.values())}
            rows.append(pd.DataFrame(means).assign(seed=sequence_seed))
        runs = pd.concat(rows, ignore_index=True)
        tables[name] = decima.summary_table(runs, comparison.best_heuristic, ["mean_jct_s"])
        values[f"{HINDSIGHT}, {name}"] = change(runs, HINDSIGHT, RULE)
        values[f"{HINDSIGHT_OTHER}, {name}"] = change(runs, HINDSIGHT_OTHER, RULE_OTHER)
        if name == "streams":
            values[LOOKAHEAD] = change(runs, LOOKAHEAD, RULE)
    return Result(tables, {"headroom": plot(tables)}, values)


def plot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw changes of the mean JCT against the best heuristic: rules, search, lookahead, and lower bounds."""
    figure = new_figure(7, 0.35 * sum(map(len, tables.values())) + 1.2 * len(tables))
    panels = figure.subplots(len(tables), 1, squeeze=False, sharex=True)[:, 0]
    grey = dict.fromkeys((HINDSIGHT, LOOKAHEAD, ALONE, SPEED_SCALED), "0.35")
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        column = next(title for title in table if title.startswith("vs "))
        shown = table[~table["scheduler"].isin([RULE_OTHER, HINDSIGHT_OTHER])]
        percent = 100 * shown.set_index("scheduler")[[column, f"{column}_ci95"]].fillna(0.0)
        axes.axvline(0, color=GREY)
        draw_dots(axes, {scheduler: tuple(row) for scheduler, row in percent.iterrows()}, grey)
        best = column.removeprefix("vs ")
        finish_axes(axes, title=name.capitalize(), xlabel=f"Change of the mean JCT against {best} (%)")
    return figure


# ---- search, lookahead and lower bounds --------------------------------------------------------------------


def bounds_s(
    cluster: ClusterConfig, sequence: JobSequence, rule_s: float, budget: int, noises: int
) -> dict[str, float]:
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


def lookahead(
    cluster: ClusterConfig, sequence: JobSequence, interval: float, futures: int
) -> NDArray[np.float64]:
    """Return logarithms of factors, float64 [2, jobs], that rollouts in random futures choose when a job arrives.

    The rollouts follow the rule with the factors that were chosen so far. A future has other task noise, and other
    later jobs, ``interval`` seconds apart on average. The choice has the largest gain on average over the futures, less
    its standard error.
    """
    logs = np.zeros((2, len(sequence)))
    choices = np.log(FACTORS)
    for job, now_ms in enumerate(sequence.arrival_ms.tolist()):
        random = np.random.default_rng((NOISE_OFFSET, sequence.seed, job))
        total_ms = np.empty((len(choices), futures))
        factors = np.zeros((2, job + 1 + LATER_JOBS))
        factors[:, :job] = logs[:, :job]
        for future in range(futures):
            later = random.choice(len(sequence.library), LATER_JOBS)
            later_ms = now_ms + 1000 * np.cumsum(random.exponential(interval, LATER_JOBS))
            drawn = JobSequence(
                (*sequence.profiles[: job + 1], *(sequence.library[index] for index in later)),
                np.concatenate([sequence.arrival_ms[: job + 1], later_ms]),
                seed=sequence.seed,
            )
            rule = FactorSrpt(factors)
            state = start_episode(cluster, drawn, rule)
            follow(state, rule, now_ms)
            for index, choice in enumerate(choices):
                factors[:, job] = choice
                rule = FactorSrpt(factors)
                rule.reset(cluster)
                rollout = state.fork(NOISE_OFFSET + future, log=False)
                follow(rollout, rule)
                total_ms[index, future] = rollout.completion_ms.sum()
        gain_ms = total_ms[0] - total_ms
        error_ms = gain_ms.std(axis=1, ddof=1) / math.sqrt(futures)
        logs[:, job] = choices[np.argmax(gain_ms.mean(axis=1) - error_ms)]
    return logs


def follow(cluster: BaseCluster, rule: FactorSrpt, end_ms: float = math.inf) -> None:
    """Follow a rule up to the first decision at or after a time, ms, or to the end of the episode."""
    while not cluster.done:
        observation = cluster.observe()
        if observation.time_ms >= end_ms:
            return
        cluster.decide(rule.decide(observation) if observation.num_schedulable else None)


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
