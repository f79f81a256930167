"""Custom features of stages and jobs."""

import numpy as np
from numpy.typing import NDArray

from decima.policy import JobFeature, StageFeature
from simulator import Observation


class LeftToStart(StageFeature):
    """The share of a stage's tasks that have not started."""

    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        return observation.remaining_tasks / observation.num_tasks


class ShortestFirst(JobFeature):
    """1 for the job with the least remaining work, 1/2 for the next, 1/3 for the one after it, and so on."""

    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        work_ms = observation.work_ms(observation.remaining_tasks)
        rank = np.argsort(np.argsort(work_ms, kind="stable"))
        return 1 / (1.0 + rank)
