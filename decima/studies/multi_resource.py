"""Section 7.3 of the Decima paper: what its figures share, executors of four sizes, their jobs, the schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.run import run_scheduler
from decima.evaluation.tuning import HINDSIGHT
from decima.policy.shipped import SHIPPED
from decima.registry import LEARNED
from decima.studies.claims import Claim
from decima.studies.study import Study, Variant
from decima.studies.study_report import FULL
from decima.workers.pool import make_workers
from simulator.cluster.config import TRACE, ExecutorClass
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence

__all__ = [
    "GRAPHENE_STAR",
    "GROUPS",
    "HEURISTICS",
    "INTERVAL_S",
    "MEMORY",
    "OURS",
    "PURE",
    "TETRIS",
    "WINDOW_S",
    "Usage",
    "as_option",
    "experiments",
    "four_sizes",
    "fragmentation_claim",
    "learned",
    "usage",
    "used",
]

#: Memory of the executors of each class; all have one core, and there are as many of each.
MEMORY = (0.25, 0.5, 0.75, 1.0)
#: Mean time between TPC-H jobs, s: with 200 executors, about 80 % of their time then goes to tasks.
INTERVAL_S = 4.0
#: Length of the windows of a trace, s: docs/studies.md has the excerpt that this cuts into twelve.
WINDOW_S = 6480.0

TETRIS = "tetris"
GRAPHENE_STAR = "tuned-graphene-star"
#: What the paper compares with, each with its best parameters of each experiment; Graphene itself too.
HEURISTICS = (HINDSIGHT, "tuned-tetris", "tuned-graphene", GRAPHENE_STAR)
#: Pure packing, as the paper reads Tetris. A setting of the grid, so that it need not run again.
PURE = {TETRIS: "tetris:0:0"}
#: The simple rule of this project that packs.
OURS = "packed-srpt"
#: Jobs are grouped by total work, each group a fifth of them (Figures 12 and 20).
GROUPS = 5


def experiments(
    study: Study,
    *,
    trace: bool,
    interval_s: float = INTERVAL_S,
    window_s: float = WINDOW_S,
    num_experiments: int = 10,
) -> Conditions:
    """What section 7.3 compares on: 200 TPC-H jobs whose stages need memory from (0, 1], or windows of a trace.

    Args:
        study: how large, and on what.
        trace: whether the workload says which jobs arrive when.
        interval_s: mean time between TPC-H jobs, s.
        window_s: length of a trace's windows, s.
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
    """As many executors of each size.

    Raises:
        CompareError: they cannot be divided among the classes.
    """
    count, rest = divmod(executors, len(MEMORY))
    if rest or not count:
        raise CompareError(f"{executors} executors: expected a multiple of {len(MEMORY)}, the classes")
    return tuple(ExecutorClass(count, 1.0, memory) for memory in MEMORY)


def as_option(classes: tuple[ExecutorClass, ...]) -> str:
    """As a recipe has them."""
    return ",".join(f"{kind.count}x{kind.memory:g}" for kind in classes)


def learned(study: Study, conditions: Conditions) -> str:
    """The policy: what the study was given, else the one that ships, else what the recipe ``packing`` trains.

    On a trace it is the one that learned from a trace's other jobs: nothing learns from the windows that it is compared
    on.

    Raises:
        CompareError: a trace, and none ships.
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
    variant = Variant(
        f"packing-{interval_s:g}s",
        study.config(
            "packing",
            cluster__classes=as_option(conditions.cluster.executor_classes),
            workload__interval=interval_s,
            workload__memory_demand="uniform",
        ),
    )
    return study.train(variant)[variant.name]


def fragmentation_claim(comparison: Comparison) -> Claim:
    """How the memory that is left unused compares with pure packing's; the paper: 4 to 13 % more."""
    ours, theirs = (float(comparison.runs(name)["fragmentation"].mean()) for name in (FULL, TETRIS))
    here = f"{ours:.1%} of the memory of busy executors; {TETRIS} {theirs:.1%}: {ours / theirs - 1:+.0%}"
    return Claim("Decima's fragmentation is within 4% to 13% of Tetris's.", here, ours / theirs <= 1.13)


def used(record: EpisodeRecord) -> NDArray[np.int64]:
    """How many executors of each class ran tasks of each job, int64 [num_jobs, classes]."""
    ran = record.task_executor >= 0
    pairs = np.unique(np.stack([record.task_job[ran], record.task_executor[ran]]), axis=1)
    counts = np.zeros((len(record.sequence), len(record.config.executor_classes)), dtype=np.int64)
    np.add.at(counts, (pairs[0], record.executor_class[pairs[1]]), 1)
    return counts


class Usage(NamedTuple):
    """Jobs of one scheduler by total work, from the smallest fifth to the largest, in every experiment.

    Attributes:
        jct_ms: mean job completion time, float64 [experiments, GROUPS], ms.
        executors: mean number of executors of each class that ran tasks of a job, float64 [experiments, GROUPS,
            classes].
    """

    jct_ms: NDArray[np.float64]
    executors: NDArray[np.float64]


def jobs_by_work(sequence: JobSequence) -> list[NDArray[np.int64]]:
    """The numbers of its jobs by total work, in ``GROUPS`` of equal size, the smallest first.

    Raises:
        CompareError: fewer jobs than groups.
    """
    if len(sequence) < GROUPS:
        raise CompareError(
            f"seed {sequence.seed}: {len(sequence)} jobs, expected at least {GROUPS} to group them by work"
        )
    work_ms = np.array([profile.work_ms for profile in sequence.profiles])
    return np.array_split(np.argsort(work_ms, kind="stable"), GROUPS)


def usage(study: Study, comparison: Comparison) -> Mapping[str, Usage]:
    """Usage by each scheduler of a comparison that is complete; with hindsight, by the setting that it chose.

    Raises:
        CompareError: fewer jobs than groups.
    """
    settings = {name: comparison.runs(name)["setting"] for name in comparison.schedulers}
    pieces = [
        (name, seed, settings[name][seed] or comparison.schedulers[name])
        for name in comparison.schedulers
        for seed in comparison.finished
    ]
    found = {}
    with make_workers(comparison.conditions, study.workers, len(pieces)) as workers:
        for done, (name, seed, *groups) in enumerate(workers.map(_usage, pieces), 1):
            found[name, seed] = groups
            study.tell("looking at jobs by their work", done, len(pieces))
    return {
        name: Usage(
            *(
                np.array(each)
                for each in zip(*(found[name, seed] for seed in comparison.finished), strict=True)
            )
        )
        for name in comparison.schedulers
    }


def _usage(
    conditions: Conditions, piece: tuple[str, int, str]
) -> tuple[str, int, NDArray[np.float64], NDArray[np.float64]]:
    name, seed, scheduler = piece
    sequence = conditions.sequence(seed)
    groups = jobs_by_work(sequence)
    record = run_scheduler(conditions.cluster, sequence, scheduler)
    executors = used(record)
    jct_ms = np.array([record.jct_ms[group].mean() for group in groups])
    return name, seed, jct_ms, np.array([executors[group].mean(axis=0) for group in groups])
