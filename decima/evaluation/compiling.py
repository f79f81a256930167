"""Compile the engine and schedulers before workers start, so that workers need not wait for each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from decima.evaluation.metrics import RELATIVE, measure
from decima.registry import make_scheduler
from decima.workers.pool import make_workers
from simulator import compiled
from simulator.cluster.episode import run_episode
from simulator.compile_marks import is_compiled, mark_compiled
from workloads.arrivals import JobSequence
from workloads.errors import SchedulingError

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.progress import OnProgress
    from simulator.cluster.config import ClusterConfig

__all__ = ["COMPILED", "compile_parts", "show_compilation"]


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


def show_compilation(update: OnProgress, done: int, total: int) -> None:
    """Print that code is being compiled, and show the progress of the compilation; see ``compile_parts``."""
    if done == 0:
        print(
            "Compiling the simulator and the schedulers, once after an installation.",
            file=sys.stderr,
            flush=True,
        )
    update("Compiling", done, total)


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
