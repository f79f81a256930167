"""Run schedulers on job sequences: single episodes, and the work items of a comparison.

The code of schedulers is compiled before workers start, so that workers need not wait for each other.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import RELATIVE, measure
from decima.evaluation.variants import TUNED, fair_rule, tuned_once
from decima.registry import make_scheduler, split_guarantees
from decima.workers.pool import make_workers
from simulator import compiled
from simulator.cluster.episode import DecidesStages, run_episode
from simulator.compile_marks import is_compiled, mark_compiled
from workloads.arrivals import JobSequence
from workloads.errors import DecimaError, SchedulingError

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "ComparisonPlan",
    "EpisodeResult",
    "compile_parts",
    "run_item",
    "run_scheduler",
]  # fmt: skip


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
        if scheduler is None or not guarantees:
            return scheduler
        from decima.schedulers.guarantees import guarded

        return guarded(make_scheduler(scheduler), guarantees)

    def make(self, spec: str, seed: int) -> DecidesStages:
        """Create the scheduler for a name in ``schedulers`` or for a candidate setting."""
        return make_scheduler(self.object(spec) or spec, seed)


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
        from decima.evaluation.tuning import best_settings, sweep

        [family] = {variant.name for variant in hindsight.values()}
        settings = sweep(cluster, sequence, plan.settings[family], records)
        best = best_settings(settings, [variant.objective for variant in hindsight.values()])
        outcomes |= {spec: best[variant.objective] for spec, variant in hindsight.items()}
    episodes = {name: outcomes[spec][1] for name, spec in specs.items()}

    @cache
    def fair() -> EpisodeRecord:
        rule = fair_rule(cluster)
        return records.get(rule) or run_scheduler(cluster, sequence, rule)

    results = {}
    for name, record in episodes.items():
        metrics = measure(record, without=RELATIVE) | (plan.further(record) if plan.further else {})
        if guarantees := split_guarantees(specs[name])[1]:
            from decima.evaluation.guarantee_metrics import guarantee_metrics

            metrics |= guarantee_metrics(record, guarantees, fair)
        results[name] = EpisodeResult(outcomes[specs[name]][0], metrics, record.jct_ms)
    return index, seed, results, episodes if keep else {}


# ---- compilation -----------------------------------------------------------------------------------------


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
        from simulator.cluster.times_alone import cluster_text, content_digest, shipped

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
        from simulator.cluster.engine.solo import search_all

        search_all(sequence.profiles[:1], cluster)
        return part
    engine: Literal["compiled", "simpy"] = "compiled" if part == ENGINE else "simpy"
    with suppress(SchedulingError):  # no job can complete: the comparison reports it
        record = run_episode(replace(cluster, engine=engine), sequence, make_scheduler(scheduler))
        measure(record, without=RELATIVE)
    return part
