"""Section 7.3 of the Decima paper: executors of four sizes, the jobs on them, the schedulers, jobs by their work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.run import run_scheduler
from decima.evaluation.tuning import HINDSIGHT
from decima.policy.shipped import SHIPPED
from decima.registry import LEARNED
from decima.studies.outcome import FULL, Claim
from decima.studies.study import Study, Variant
from decima.workers.pool import make_workers, map_in_order
from simulator.cluster.config import TRACE, ExecutorClass
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence

__all__ = ["experiments", "four_sizes", "fragmentation_claim", "jobs_by_work", "learned", "look_at", "usage"]

_T = TypeVar("_T")

#: Memory of the executors of each class; all have one core, and there are as many of each.
MEMORY = (0.25, 0.5, 0.75, 1.0)
TETRIS = "tetris"
GRAPHENE_STAR = "tuned-graphene-star"
#: The schedulers of the paper, each with its best parameters of each experiment; Graphene itself too.
HEURISTICS = (HINDSIGHT, "tuned-tetris", "tuned-graphene", GRAPHENE_STAR)
#: Pure packing, as the paper reads Tetris. A setting of the sweep, so that it need not run again.
PURE = {TETRIS: "tetris:0:0"}
#: The simple rule of this project that packs.
OURS = "packed-srpt"
#: Jobs are grouped by total work, each group a fifth of them (Figures 12 and 20).
GROUPS = 5


def experiments(
    study: Study, *, trace: bool, interval_s: float = 4.0, window_s: float = 6480.0, num_experiments: int = 10
) -> Conditions:
    """Return the conditions of section 7.3: 200 TPC-H jobs whose stages need memory from (0, 1], or a trace's windows.

    Args:
        study: size and surroundings.
        trace: whether the workload says which jobs arrive when.
        interval_s: mean time between TPC-H jobs, s; with 4 s, 200 executors are busy for about 80 % of the time.
        window_s: length of a trace's windows, s; 6480 s cuts the excerpt of docs/studies.md into twelve.
        num_experiments: at full size.

    Raises:
        CompareError: executors that cannot be divided among the classes.
        WorkloadError: the workload says which jobs arrive when, and should not, or the other way round.
    """
    classes = four_sizes(study.executors)
    if trace:
        return study.replay(
            num_experiments=num_experiments, window_s=window_s, executor_classes=classes, semantics=TRACE
        )
    return study.conditions(
        num_experiments=num_experiments,
        num_jobs=200,
        interval_s=interval_s,
        memory_demand="uniform",
        executor_classes=classes,
    )


def four_sizes(executors: int) -> tuple[ExecutorClass, ...]:
    """Return as many executors of each size.

    Raises:
        CompareError: they cannot be divided among the classes.
    """
    count, rest = divmod(executors, len(MEMORY))
    if rest or not count:
        raise CompareError(f"{executors} executors: expected a multiple of {len(MEMORY)}, the classes")
    return tuple(ExecutorClass(count, 1.0, memory) for memory in MEMORY)


def as_option(classes: tuple[ExecutorClass, ...]) -> str:
    """Return executor classes as the setting ``cluster.classes`` of a training."""
    return ",".join(f"{kind.count}x{kind.memory:g}" for kind in classes)


def learned(study: Study, conditions: Conditions) -> str:
    """Return the policy as a scheduler: the study's checkpoint, else the shipped one, else one that is trained.

    For a trace the shipped policy was trained on other jobs of the trace: no training has the windows compared on.

    Raises:
        CompareError: a trace, and no policy ships.
    """
    if study.checkpoint is not None:
        return f"{LEARNED}:{study.checkpoint}"
    trace = study.workload.sequence is not None
    shipped = SHIPPED["packing-trace" if trace else "packing-tpch"]
    if shipped.is_file() and (trace or "profiles" in study.source):
        return f"{LEARNED}:{shipped}"
    if trace:
        raise CompareError(
            "no policy for traces comes with this installation: give one with --checkpoint FILE"
        )
    interval_s = conditions.interval_ms / 1000
    config = study.config(
        "packing",
        cluster__classes=as_option(conditions.cluster.executor_classes),
        workload__interval=interval_s,
        workload__memory_demand="uniform",
    )
    variant = Variant(f"packing-{interval_s:g}s", config)
    return study.train(variant)[variant.name]


def fragmentation_claim(runs: pd.DataFrame) -> Claim:
    """Compare the memory that is left unused with that of pure packing; the paper: 4 to 13 % more."""
    means = runs.groupby("scheduler")["fragmentation"].mean()
    ours, theirs = float(means[FULL]), float(means[TETRIS])
    here = f"{ours:.1%} of the memory of busy executors; {TETRIS} {theirs:.1%}: {ours / theirs - 1:+.0%}"
    return Claim("Decima's fragmentation is within 4% to 13% of Tetris's.", here, ours / theirs <= 1.13)


def used(record: EpisodeRecord) -> NDArray[np.int64]:
    """Count the executors of each class that ran tasks of each job, int64 [num_jobs, classes]."""
    ran = record.task_executor >= 0
    pairs = np.unique(np.stack([record.task_job[ran], record.task_executor[ran]]), axis=1)
    counts = np.zeros((len(record.sequence), len(record.config.executor_classes)), dtype=np.int64)
    np.add.at(counts, (pairs[0], record.executor_class[pairs[1]]), 1)
    return counts


class Usage(NamedTuple):
    """Results of one scheduler by the total work of jobs, from the smallest fifth to the largest.

    Attributes:
        jct_ms: mean job completion time, float64 [experiments, GROUPS], ms.
        executors: mean number of executors of each class that ran tasks of a job, float64 [experiments, GROUPS,
            classes].
    """

    jct_ms: NDArray[np.float64]
    executors: NDArray[np.float64]


def jobs_by_work(sequence: JobSequence) -> list[NDArray[np.int64]]:
    """Return the numbers of its jobs in ``GROUPS`` of equal size by total work, the smallest first.

    Raises:
        CompareError: fewer jobs than groups.
    """
    if len(sequence) < GROUPS:
        raise CompareError(
            f"seed {sequence.seed}: {len(sequence)} jobs, expected at least {GROUPS} to group them by work"
        )
    work_ms = np.array([profile.work_ms for profile in sequence.profiles])
    return np.array_split(np.argsort(work_ms, kind="stable"), GROUPS)


def usage(study: Study, comparison: Comparison) -> dict[str, Usage]:
    """Return the usage of each scheduler of a complete comparison; with hindsight, of the setting that it chose.

    Raises:
        CompareError: fewer jobs than groups.
    """
    found = look_at(study, comparison, _usage, "looking at jobs by their work")
    return {name: Usage(*map(np.array, zip(*each, strict=True))) for name, each in found.items()}


def _usage(record: EpisodeRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    groups, executors = jobs_by_work(record.sequence), used(record)
    jct_ms = np.array([record.jct_ms[group].mean() for group in groups])
    return jct_ms, np.array([executors[group].mean(axis=0) for group in groups])


def look_at(
    study: Study, comparison: Comparison, look: Callable[[EpisodeRecord], _T], what: str
) -> dict[str, list[_T]]:
    """Run each scheduler of a complete comparison again, and call a function on each episode.

    Args:
        study: workers and progress callback.
        comparison: with hindsight, a scheduler runs in the setting that it chose.
        look: a function of a module, of the episode.
        what: activity for the progress callback.

    Returns:
        Scheduler -> a result for each seed, in order.
    """
    runs = comparison.runs
    settings = runs["setting"].where(runs["setting"] != "", runs["scheduler"].map(comparison.schedulers))
    pieces = list(zip(runs["seed"].tolist(), settings, strict=True))
    with make_workers(comparison.conditions, study.workers, len(pieces)) as workers:
        results, _ = map_in_order(workers, partial(_look, look), pieces, partial(study.tell, what))
    count = len(comparison.finished)
    return {
        name: results[place * count : (place + 1) * count] for place, name in enumerate(comparison.schedulers)
    }


def _look(look: Callable[[EpisodeRecord], _T], conditions: Conditions, piece: tuple[int, str]) -> _T:
    seed, scheduler = piece
    return look(run_scheduler(conditions.cluster, conditions.sequence(seed), scheduler))
