"""Metrics of episodes on DeepRM's grid, see ``decima.evaluation.metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.metrics import Metric

if TYPE_CHECKING:
    from simulator.grid.record import GridRecord

__all__ = ["GRID_METRICS"]


def _grid_completion(record: GridRecord) -> NDArray[np.float64]:
    """Return the completion time of each job, float64 [N, J]; NaN for padding.

    Jobs that are not booked when the episode ends count as finished at that time.
    """
    ended = record.clock[:, None] - record.jobs.enter
    completion = np.where(record.start >= 0, record.completion, ended)
    return np.where(record.is_job, completion, np.nan)


#: Column of the results on DeepRM's grid -> metric. ``Metric.of`` maps the record of N job sets to float64 [N, J], with
#: a value for each job, or to float64 [N].
GRID_METRICS: dict[str, Metric] = {
    "slowdown": Metric(
        "Slowdown",
        ".2f",
        lambda record: _grid_completion(record) / np.maximum(record.jobs.duration, 1),
        per_job=True,
        interval=True,
        meaning="completion time over duration, mean over jobs",
    ),
    "completion": Metric(
        "Completion time (steps)",
        ".2f",
        _grid_completion,
        per_job=True,
        interval=True,
        meaning="steps from entering to finishing, mean over jobs",
    ),
    "waiting": Metric(
        "Waiting time (steps)",
        ".2f",
        lambda record: _grid_completion(record) - record.jobs.duration,
        per_job=True,
        interval=True,
        meaning="steps from entering to starting, mean over jobs",
    ),
    "makespan": Metric(
        "Makespan (steps)",
        ".2f",
        lambda record: record.makespan,
        interval=True,
        meaning="steps until all jobs are finished",
    ),
    "utilisation": Metric(
        "Utilisation",
        ".2f",
        lambda record: record.utilisation,
        more_is_better=True,
        interval=True,
        meaning="share of all units in use until then",
    ),
}
