"""Run schedulers on job sequences: single episodes, candidate settings, and the work items of a comparison.

The code of schedulers is compiled before workers start, so that workers need not wait for each other.
"""

from __future__ import annotations

import itertools
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import RELATIVE, measure
from decima.evaluation.variants import ALPHAS, GRIDS, TUNED, fair_rule, guarantee_metrics, tuned_once
from decima.registry import make_scheduler
from decima.schedulers.guarantees import guarded, split_guarantees
from decima.workers.pool import make_workers
from simulator import compiled
from simulator.cluster.alone_cache import cluster_text, content_digest, shipped
from simulator.cluster.engine.solo import search_all
from simulator.cluster.episode import DecidesStages, run_episode, start_episode
from simulator.compiled import is_compiled, mark_compiled
from workloads.arrivals import JobSequence
from workloads.errors import DecimaError, SchedulingError, check_one_of

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.observation import Decision, Observation
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "ComparisonPlan",
    "DecisionRecord",
    "EpisodeResult",
    "best_for_all",
    "best_settings",
    "compile_parts",
    "decisions",
    "objective_ms",
    "replay",
    "run_item",
    "run_scheduler",
    "sweep",
    "sweep_item",
    "sweep_ms",
    "tune",
]  # fmt: skip


def objective_ms(record: EpisodeRecord, objective: str) -> float:
    """Return the objective to minimise, ms: mean JCT (``jct``), ``makespan``, or mean cost of a job by a reward."""
    if objective == "jct":
        return record.mean_jct_ms
    return record.makespan_ms if objective == "makespan" else record.cost_ms(objective) / len(record.sequence)


def run_scheduler(
    cluster: ClusterConfig, sequence: JobSequence, scheduler: str, instead: SchedulerLike | None = None
) -> EpisodeRecord:
    """Run a job sequence under a named scheduler; with ``instead``, the name is only for messages.

    Raises ``CompareError`` if the scheduler failed: one line with its name, the seed and the reason.
    """
    try:
        return run_episode(cluster, sequence, make_scheduler(instead or scheduler, sequence.seed))
    except DecimaError as error:
        raise CompareError(f"{scheduler} on seed {sequence.seed}: {error}") from error
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        raise CompareError(f"{scheduler} on seed {sequence.seed}: {reason}") from error


# ---- candidate settings ----------------------------------------------------------------------------------


def sweep(
    cluster: ClusterConfig,
    sequence: JobSequence,
    settings: Sequence[str] = GRIDS["weighted-fair"],
    records: Mapping[str, EpisodeRecord] | None = None,
) -> Iterator[tuple[str, EpisodeRecord]]:
    """Run candidate settings, as scheduler names, on one sequence, and yield each with its episode.

    ``records`` has episodes of settings that were already run. For errors see ``run_scheduler``.
    """
    for setting in settings:
        yield setting, (records or {}).get(setting) or run_scheduler(cluster, sequence, setting)


def best_settings(
    runs: Iterable[tuple[str, EpisodeRecord]], objectives: Iterable[str]
) -> dict[str, tuple[str, EpisodeRecord]]:
    """Return, for each objective, the best setting of a sweep with its episode; the first one on a tie."""
    best: dict[str, tuple[str, EpisodeRecord]] = {}
    lowest_ms = dict.fromkeys(objectives, math.inf)
    for setting, record in runs:
        for objective in lowest_ms:
            if (value_ms := objective_ms(record, objective)) < lowest_ms[objective]:
                lowest_ms[objective], best[objective] = value_ms, (setting, record)
    return best


def sweep_ms(
    cluster: ClusterConfig,
    sequence: JobSequence,
    objective: str = "jct",
    settings: Sequence[str] = GRIDS["weighted-fair"],
) -> NDArray[np.float64]:
    """Return the objective of each setting on a sequence, float64 [len(settings)], ms; see ``objective_ms``."""
    return np.array([objective_ms(record, objective) for _, record in sweep(cluster, sequence, settings)])


def tune(
    config: ClusterConfig,
    sequences: JobSequence | Sequence[JobSequence],
    scheduler: str = "weighted-fair",
    objective: Literal["jct", "makespan"] = "jct",
) -> str:
    """Return a scheduler's name with the parameters that are best on average over job sequences.

    On an evaluation sequence, the result is the setting of ``tuned-weighted-fair``, known only in hindsight; on
    training sequences, it is the setting of ``weighted-fair``.

    Args:
        sequences: one or several job sequences.
        scheduler: one of ``GRIDS``.
        objective: quantity to minimise: the mean JCT or the makespan.

    Returns:
        Name for ``make_scheduler``, such as ``weighted-fair:-0.8``.

    Raises:
        CompareError: no sequences, an unknown scheduler or objective, or a failed episode.
    """
    training_sequences = [sequences] if isinstance(sequences, JobSequence) else list(sequences)
    if not training_sequences:
        raise CompareError("tuning needs at least one sequence")
    settings = GRIDS[check_one_of(scheduler, GRIDS, "scheduler", CompareError)]
    check_one_of(objective, ("jct", "makespan"), "objective", CompareError)
    swept = [sweep_ms(config, sequence, objective, settings) for sequence in training_sequences]
    return str(best_for_all(np.array(swept), settings))


def best_for_all(sweeps_ms: NDArray[np.float64], settings: Sequence[Any] = ALPHAS) -> Any:
    """Return the setting that is best on average over sequences; the first one on a tie.

    ``sweeps_ms``, float64 [n, len(settings)], has one row of ``sweep_ms`` per sequence.
    """
    return settings[int(sweeps_ms.mean(axis=0).argmin())]


# ---- work items of a comparison --------------------------------------------------------------------------


class EpisodeResult(NamedTuple):
    """Results of one scheduler on one sequence.

    Attributes:
        setting: chosen setting of a tuned scheduler; empty for other schedulers.
        metrics: column -> value, for ``METRICS`` without ``RELATIVE``.
        jct_ms: float64 [num_jobs]; empty if unknown.
    """

    setting: str
    metrics: dict[str, float]
    jct_ms: NDArray[np.float64] = np.empty(0)


@dataclass(frozen=True)
class ComparisonPlan:
    """Data of a comparison for workers.

    Attributes:
        schedulers: displayed name -> scheduler's name.
        objects: schedulers given as objects, by their names in ``schedulers``.
        settings: family -> candidate settings.
        further: function of an episode that returns further metrics; None if there are none.
    """

    conditions: Conditions
    schedulers: dict[str, str]
    objects: Mapping[str, SchedulerLike]
    settings: dict[str, tuple[str, ...]]
    further: Callable[[EpisodeRecord], dict[str, float]] | None = None

    def object(self, spec: str) -> SchedulerLike | None:
        """Return the scheduler object behind a name in ``schedulers``; None for schedulers given by name."""
        base, guarantees = split_guarantees(spec)
        scheduler = self.objects.get(base)
        return (
            scheduler
            if scheduler is None or not guarantees
            else guarded(make_scheduler(scheduler), guarantees)
        )

    def make(self, spec: str, seed: int) -> DecidesStages:
        """Create the scheduler for a name in ``schedulers`` or for a candidate setting."""
        return make_scheduler(self.object(spec) or spec, seed)


def sweep_item(
    plans: Sequence[ComparisonPlan], item: tuple[int, str, int]
) -> tuple[int, str, int, NDArray[np.float64]]:
    """Run all candidate settings of a scheduler on a training sequence; return the work item and mean JCTs, ms."""
    index, family, seed = item
    conditions, settings = plans[index].conditions, plans[index].settings[family]
    return *item, sweep_ms(conditions.cluster_of(seed), conditions.sequence(seed), settings=settings)


def run_item(
    tuned: Sequence[Mapping[str, str]],
    plans: Sequence[ComparisonPlan],
    item: tuple[int, int, tuple[str, ...], bool],
) -> tuple[int, int, dict[str, EpisodeResult], dict[str, EpisodeRecord]]:
    """Run schedulers on one sequence, each setting once; return comparison index, seed, results and kept episodes."""
    index, seed, names, keep = item
    plan = plans[index]
    cluster, sequence = plan.conditions.cluster_of(seed), plan.conditions.sequence(seed)
    specs = {name: plan.schedulers[name] for name in names}
    specs = {
        name: tuned[index][TUNED[spec].name] if tuned_once(spec) else spec for name, spec in specs.items()
    }
    records = {
        spec: run_scheduler(cluster, sequence, spec, plan.object(spec))
        for spec in dict.fromkeys(specs.values())
        if spec not in TUNED
    }
    outcomes = {spec: ("", record) for spec, record in records.items()}
    if hindsight := {spec: TUNED[spec] for spec in specs.values() if spec in TUNED}:
        [family] = {variant.name for variant in hindsight.values()}
        settings = sweep(cluster, sequence, plan.settings[family], records)
        best = best_settings(settings, [variant.objective for variant in hindsight.values()])
        outcomes |= {spec: best[variant.objective] for spec, variant in hindsight.items()}
    episodes = {name: outcomes[spec][1] for name, spec in specs.items()}
    rule = fair_rule(cluster)

    @cache
    def fair() -> EpisodeRecord:
        return records.get(rule) or run_scheduler(cluster, sequence, rule)

    results = {}
    for name, record in episodes.items():
        metrics = measure(record, without=RELATIVE) | (plan.further(record) if plan.further else {})
        if guarantees := split_guarantees(specs[name])[1]:
            metrics |= guarantee_metrics(record, guarantees, fair)
        results[name] = EpisodeResult(outcomes[specs[name]][0], metrics, record.jct_ms)
    return index, seed, results, episodes if keep else {}


# ---- decisions of an episode -----------------------------------------------------------------------------


def replay(
    conditions: Conditions, seed: int, scheduler: DecidesStages
) -> Iterator[tuple[BaseCluster, Observation, Decision | None]]:
    """Run an experiment; yield each decision with the cluster and its observation."""
    cluster = start_episode(conditions.cluster_of(seed), conditions.sequence(seed), scheduler)
    while not cluster.done:
        seen = cluster.observe()
        decision = scheduler.decide(seen) if seen.num_schedulable else None
        if seen.num_schedulable:
            yield cluster, seen, decision
        cluster.decide(decision)


class DecisionRecord(NamedTuple):
    """One decision; job and stage are -1, and the limit is 0, if the ``offered`` executors are left idle."""

    time_ms: float
    offered: int
    job: int = -1
    stage: int = -1
    limit: int = 0


def decisions(conditions: Conditions, seed: int, scheduler: DecidesStages) -> list[DecisionRecord]:
    """Run an experiment, and return the scheduler's decisions in order.

    Decisions to keep executors in their job, which the engine takes on the scheduler's behalf (see
    ``DecidesStages``), are not included.
    """
    decided = []
    for _, seen, decision in replay(conditions, seed, scheduler):
        when = float(seen.time_ms), seen.offered
        if decision is None:
            decided.append(DecisionRecord(*when))
        else:
            job = int(seen.stage_job[decision.stage])
            stage = int(decision.stage - seen.job_first_stage[job])
            decided.append(DecisionRecord(*when, int(seen.job_id[job]), stage, int(decision.limit)))
    return decided


def effect_of(seen: Observation, decision: Decision | None) -> tuple[int, int] | None:
    """Return the effect of a decision: the chosen stage, and its number of new executors; None if left idle."""
    if decision is None:
        return None
    held = seen.held(int(seen.stage_job[decision.stage]))
    return int(decision.stage), min(
        decision.limit - held, seen.offered, int(seen.unclaimed_tasks[decision.stage])
    )


def count_differences(
    conditions: Conditions, seed: int, scheduler: DecidesStages, rule: DecidesStages, most: int = 2_000
) -> tuple[int, int]:
    """Run an experiment, and ask a rule in the same states, too.

    Args:
        most: number of decisions after which the comparison ends.

    Returns:
        Number of decisions in which the rule has another effect, and number of decisions.
    """
    rule.reset(conditions.cluster_of(seed))
    differing = count = 0
    for _, seen, decision in itertools.islice(replay(conditions, seed, scheduler), most):
        differing += effect_of(seen, decision) != effect_of(seen, rule.decide(seen))
        count += 1
    return differing, count


#: Folders of the packages that have compiled code.
PACKAGES = (Path(__file__).parents[1], Path(compiled.__file__).parent)
#: Part of the compiled code that all schedulers need.
ENGINE = "engine"
#: Part of the compiled code that simulates jobs alone, unless their times ship with the package.
ALONE = "jobs alone"
#: Schedulers with compiled code, slowest to compile first.
COMPILED = (
    "decima",
    "srpt-tuned",
    "srpt",
    "graphene",
    "sjf-cp",
)
#: Number of processes that compile. More would wait for each other, since a module is compiled by one process.
MOST = 2
#: Number of jobs in the episode that triggers compilation.
NUM_JOBS = 3


def compile_parts(
    conditions: Conditions,
    schedulers: Iterable[str],
    workers: int | str,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Compile the engine and the schedulers, unless they are cached, in at most ``workers`` processes.

    A short episode of the setting's smallest jobs compiles the functions for the types of their arguments. Schedulers
    decide in the uncompiled reference simulator, so that they compile in parallel with the engine. With Ray, workers
    compile for themselves. ``on_step``, with the numbers of compiled parts and of all, is not called if all are cached.
    """
    named = {scheduler.partition(":")[0].partition(",")[0]: scheduler for scheduler in schedulers}
    parts = {ENGINE: "fair", **{name: named[name] for name in COMPILED if name in named}}
    if isinstance(workers, str):
        return
    missing = [(part, scheduler) for part, scheduler in parts.items() if not is_compiled(part, PACKAGES)]
    jobs = conditions.sequence(conditions.seed)
    if not is_compiled(ALONE, PACKAGES):
        digests = shipped(cluster_text(conditions.cluster))
        if any(content_digest(profile) not in digests for profile in jobs.profiles):
            missing.append((ALONE, ""))
    if not missing:
        return
    num_tasks = np.array([sum(stage.num_tasks for stage in profile.stages) for profile in jobs.profiles])
    small = tuple(jobs.profiles[job] for job in np.argsort(num_tasks)[:NUM_JOBS])
    arrival_ms = np.arange(len(small), dtype=np.float64) * conditions.cluster.moving_delay_ms
    shared = conditions.cluster, JobSequence(small, arrival_ms, jobs.seed)
    on_step(0, len(missing))
    with make_workers(shared, workers, min(MOST, len(missing))) as pool:
        for done, part in enumerate(pool.map(_compile, missing), 1):
            mark_compiled(part, PACKAGES)
            on_step(done, len(missing))


def _compile(shared: tuple[ClusterConfig, JobSequence], item: tuple[str, str]) -> str:
    (cluster, sequence), (part, scheduler) = shared, item
    if part == ALONE:
        search_all(sequence.profiles[:1], cluster)
        return part
    engine: Literal["compiled", "simpy"] = "compiled" if part == ENGINE else "simpy"
    with suppress(SchedulingError):  # no job can complete: the comparison reports it
        record = run_episode(replace(cluster, engine=engine), sequence, make_scheduler(scheduler))
        measure(record, without=RELATIVE)
    return part
