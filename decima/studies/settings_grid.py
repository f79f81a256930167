"""Where a policy can be trusted: it meets the strongest rule and tuned weighted fair in a fixed grid of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.comparison import Comparison, run_comparisons
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.fit import best_fit
from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.tuning import HINDSIGHT
from decima.learning.config import Progress
from decima.registry import LEARNED
from decima.studies.settings_cells import CELLS, OPTIONS, Cell, Source
from decima.studies.study_report import FULL, RULE, paired_change
from simulator.cluster.config import ClusterConfig
from workloads.job import JobProfile
from workloads.scaling import scaled
from workloads.sources.open import EMBEDDED, SYNTHETIC, open_workload
from workloads.sources.workload_file import Workload

__all__ = [
    "PLAIN_RULE",
    "REFERENCES",
    "SCHEDULERS",
    "MeasuredCell",
    "SettingsGrid",
    "choose_cells",
    "settings_grid",
    "with_typical_task",
    "workloads",
]

#: A rule that knows what jobs use well, but whose limits are the same at any load.
PLAIN_RULE = "profiled-srpt:2.5"
#: A policy is held against the best of these.
REFERENCES = (PLAIN_RULE, RULE, HINDSIGHT)
#: Who takes part in every cell, as they are shown.
SCHEDULERS = ("fair", HINDSIGHT, PLAIN_RULE, RULE)
#: Length of the typical task of random DAGs with short tasks, ms.
SHORT_MS = 150.0


@dataclass(frozen=True, eq=False)
class MeasuredCell:
    """What schedulers did in a cell.

    Attributes:
        cell: the setting.
        comparison: of ``SCHEDULERS``, and of ``decima`` where there is a policy.
        policy: what ``decima`` followed: a policy that ships, or a file; None if there is none for the cell.
    """

    cell: Cell
    comparison: Comparison
    policy: str | None

    def jct_s(self, scheduler: str) -> NDArray[np.float64]:
        """Average JCT on each sequence, float64 [experiments], s."""
        return self.comparison.runs(scheduler)["mean_jct_s"].to_numpy(dtype=np.float64)

    @property
    def best(self) -> str:
        """The one of ``REFERENCES`` with the lower average JCT over all sequences."""
        return min(REFERENCES, key=lambda name: float(self.jct_s(name).mean()))

    def change(self, scheduler: str = FULL) -> Interval:
        """By what fraction its average JCT is above that of the best reference; paired by sequence."""
        return paired_change(self.jct_s(scheduler), self.jct_s(self.best))

    @property
    def not_worse(self) -> bool:
        """Whether the policy is not worse than the best reference by more than the interval of its ``change``."""
        change = self.change()
        return change.mean <= change.half_width


@dataclass(frozen=True, eq=False)
class SettingsGrid:
    """All cells that were measured, on sequences of the same seeds.

    Attributes:
        cells: in order.
        left_out: a sentence for each source of jobs that was not given.
    """

    cells: tuple[MeasuredCell, ...]
    left_out: tuple[str, ...] = ()

    @property
    def judged(self) -> tuple[MeasuredCell, ...]:
        """The cells for which there is a policy."""
        return tuple(each for each in self.cells if each.policy is not None)

    @property
    def worst(self) -> MeasuredCell | None:
        """Where the policy's ``change`` is largest, of the cells where it is worse if there are; None without any."""
        return max(self.judged, key=lambda each: (not each.not_worse, each.change().mean), default=None)

    @property
    def average(self) -> Interval:
        """Mean of the policy's ``change`` over the cells, each of which counts the same; NaN without any policy.

        Cells share seeds, and some of them jobs, so that the interval is that of the means over cells, by seed.
        """
        if not self.judged:
            return mean_interval([])
        changes = [
            (each.jct_s(FULL) - each.jct_s(each.best)) / each.jct_s(each.best).mean() for each in self.judged
        ]
        return mean_interval(np.mean(changes, axis=0))


def workloads(profiles: Path | None = None, trace: Path | None = None) -> dict[Source, Workload]:
    """Where the jobs of cells come from; profiles alone, whatever a file says of arrivals.

    Args:
        profiles: folder of the published TPC-H profiles, if somebody has them.
        trace: workload file with DAGs of a trace, likewise.

    Raises:
        WorkloadError: one of them is malformed.
    """
    random = open_workload(SYNTHETIC)
    found: dict[Source, Workload] = {
        "embedded": open_workload(EMBEDDED),
        "random": random,
        "short": Workload(with_typical_task(random.profiles, SHORT_MS), None, "random DAGs of short tasks"),
    }
    if profiles is not None:
        found["published"] = open_workload(profiles)
    if trace is not None:
        found["trace"] = replace(open_workload(trace), sequence=None)
    return found


def with_typical_task(profiles: Sequence[JobProfile], typical_ms: float) -> tuple[JobProfile, ...]:
    """The same jobs with all durations scaled alike, so that half of all tasks take less than this on average, ms."""
    stages = [stage for profile in profiles for stage in profile.stages]
    mean_ms = [stage.durations.mean_ms for stage in stages]
    factor = typical_ms / float(np.median(np.repeat(mean_ms, [stage.num_tasks for stage in stages])))
    return tuple(scaled(profile, factor) for profile in profiles)


def choose_cells(names: Sequence[str], known: Mapping[Source, Workload]) -> tuple[list[Cell], list[str]]:
    """The cells to measure, in their order, and a sentence on those that are left out.

    Args:
        names: of the cells; all that can be measured without any.
        known: where jobs come from.

    Raises:
        CompareError: a cell of that name is unknown, or where its jobs come from is.
    """
    for name in names:
        if name not in CELLS:
            raise CompareError(f"no cell is named {name!r}, expected one of {', '.join(CELLS)}")
        if CELLS[name].source not in known:
            raise CompareError(f"the cell {name} needs {OPTIONS[CELLS[name].source]}")
    if names:
        return [cell for cell in CELLS.values() if cell.name in names], []
    left_out = []
    for source, option in OPTIONS.items():
        without = [cell.name for cell in CELLS.values() if cell.source == source]
        if source not in known:
            left_out.append(f"Left out without {option}: {', '.join(without)}.")
    return [cell for cell in CELLS.values() if cell.source in known], left_out


def settings_grid(
    known: Mapping[Source, Workload],
    names: Sequence[str] = (),
    *,
    checkpoint: Path | None = None,
    num_experiments: int = 10,
    seed: int = 0,
    workers: int | str = 1,
    tell: Progress = lambda what, done, total: None,
) -> SettingsGrid:
    """Compare schedulers in each cell, all of them on the same sequences.

    Args:
        known: where jobs come from; see ``workloads``.
        names: of the cells; all that can be measured without any.
        checkpoint: file of the policy; without it, in each cell, the one that ships and fits best, if it is there.
        num_experiments: sequences in each cell, at least 2.
        seed: of the first of them.
        workers: who runs episodes, see ``check_workers``.
        tell: told how far it is.

    Raises:
        CompareError: see ``choose_cells``; or a scheduler failed.
        ConfigError: a stage of the trace that needs more than an executor has.
    """
    cells, left_out = choose_cells(names, known)
    measured = []
    for cell in cells:
        conditions = _conditions(cell, known[cell.source], num_experiments, seed)
        if checkpoint is None:
            fitting = best_fit(conditions)
            policy = None if fitting is None else fitting[0]
        else:
            policy = str(checkpoint)
        schedulers = {name: name for name in SCHEDULERS}
        if policy is not None:
            schedulers[FULL] = f"{LEARNED}:{policy}"
        measured.append(MeasuredCell(cell, Comparison(conditions, schedulers, keep=False), policy))
    # All at once: a worker that has nothing left to do in one cell goes on with the next.
    run_comparisons([each.comparison for each in measured], workers, partial(tell, "comparing schedulers"))
    return SettingsGrid(tuple(measured), tuple(left_out))


def _conditions(cell: Cell, workload: Workload, num_experiments: int, seed: int) -> Conditions:
    cluster = ClusterConfig(num_executors=cell.num_executors, moving_delay_ms=1000 * cell.moving_delay_s)
    drawn = Conditions(workload, cluster, num_jobs=cell.num_jobs, num_experiments=num_experiments, seed=seed)
    if cell.interval_s is None:
        return drawn
    return replace(drawn, arrivals="poisson", interval_ms=1000 * cell.interval_s)
