"""A critic without a network: what return to expect, as a linear function of a few sums over the live jobs.

How much work lies before a job decides how long it stays, so a handful of sums tells most of what a large network
could learn of the returns. What a decision earned is then seen soon after it, in the TD errors, and the luck of all
later decisions need not be waited out: generalised advantage estimation (GAE; Schulman et al., 2016), in continuous
time.

It learns from how episodes of the same arrival sequence differ at the same time. Returns as such vary mostly with the
jobs still to come, which no load tells of, and which would hide what the load is worth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.learning.returns import accumulate, checked_steps
from simulator.compiled import compiled

if TYPE_CHECKING:
    from decima.learning.returns import Returns
    from simulator.cluster.observation import Observation

__all__ = ["LIVE_JOBS", "NUM_SUMS", "LinearCritic", "load_of", "relative_scale"]

#: Numbers that ``load_of`` gives, and which of them is that of the live jobs.
NUM_SUMS, LIVE_JOBS = 7, 1
#: Work is counted in units of this, ms.
UNIT_MS = 100_000.0
#: Keeps the fit defined while the sums have not varied.
RIDGE = 1e-6


def load_of(observation: Observation) -> NDArray[np.float64]:
    """Sums over the live jobs, float64 [7].

    With w the unfinished work of a job (tasks times mean duration), jobs ascending in w, and r the number of jobs from
    one on: 1, jobs, sum of w, sum of r * w (what all would wait, shortest first, one after the other), sum of the
    roots of w, its square, and sum of r times the root of w.
    """
    sums: NDArray[np.float64] = _sums(
        observation.stages, len(observation.jobs), float(observation.num_executors)
    )
    return sums


@compiled
def _sums(stages, num_jobs, num_executors):  # type: ignore[no-untyped-def]
    work = np.zeros(num_jobs)
    for stage in stages:
        work[stage.job] += (stage.num_tasks - stage.finished_tasks) * stage.mean_task_ms / UNIT_MS
    work.sort()
    sums = np.zeros(NUM_SUMS)
    sums[0] = 1.0
    sums[1] = num_jobs
    for place in range(num_jobs):
        root = np.sqrt(work[place])
        sums[2] += work[place]
        sums[3] += (num_jobs - place) * work[place] / num_executors
        sums[4] += root
        sums[6] += (num_jobs - place) * root
    sums[5] = sums[4] ** 2 / num_executors
    return sums


def relative_scale(factor: NDArray[np.float64], num_executors: NDArray[np.int64]) -> NDArray[np.float64]:
    """What turns sums of ``load_of`` into those of the time in which all executors do a job's work; float64 [E, 7].

    With w the work over the number of executors: 1, jobs, sum of w, sum of r * w, sum of the roots of w, its square,
    and sum of r times the root of w. Of these, ``load_of`` has divided the fourth and the sixth by the executors.

    Args:
        factor: float64 [E]; on all times.
        num_executors: int64 [E].
    """
    one, share = np.ones_like(factor), factor / num_executors
    root = np.sqrt(share)
    return np.column_stack([one, one, share, factor, root, factor, root])


class LinearCritic:
    """Expects returns, up to what all episodes of a sequence share; fitted by least squares to the last iterations.

    Args:
        gae_horizon_ms: GAE lambda is ``exp(-dt / gae_horizon_ms)``; infinite for returns less the expected.
        decay: how much an iteration still counts in the next one's fit.

    Attributes:
        moments: float64 [7, 8]; sums of products of loads with loads, and with returns, both as differences.
    """

    def __init__(self, gae_horizon_ms: float, decay: float = 0.95) -> None:
        self.gae_horizon_ms = gae_horizon_ms
        self.decay = decay
        self.moments = np.zeros((NUM_SUMS, NUM_SUMS + 1))

    def observe(self, load: NDArray[np.float64], returns: NDArray[np.float64]) -> None:
        """Let an iteration's samples enter the fit.

        Args:
            load: float64 [n, 7], less what other episodes of the sequence had at that time.
            returns: float64 [n], likewise.
        """
        self.moments *= self.decay
        self.moments += load.T @ np.column_stack([load, returns])

    def expect(self, load: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns to expect, float64 [n]; 0 before anything was observed."""
        gram, target = self.moments[:, :-1], self.moments[:, -1]
        ridge = np.diag(RIDGE * (np.diag(gram) + 1e-9))
        weights = np.linalg.solve(gram + ridge, target)
        return np.asarray(load @ weights, dtype=np.float64)

    def advantages(
        self,
        returns: Returns,
        load: NDArray[np.float64],
        reward: NDArray[np.float64],
        time_ms: NDArray[np.float64],
        end_ms: float,
        bootstrap_value: float = 0.0,
    ) -> NDArray[np.float64]:
        """The GAE advantages of an episode's decisions, float64 [n].

        Args:
            returns: the kind of return that is expected.
            load: float64 [n, 7].
            reward: float64 [n], from each sample to the next.
            time_ms: float64 [n], ms.
            end_ms: when the episode was over, ms.
            bootstrap_value: the return to expect after the end of an episode that was truncated.
        """
        now, discount = checked_steps(returns, reward, time_ms, end_ms)
        values = np.append(self.expect(load), bootstrap_value)
        td_error = now + discount * values[1:] - values[:-1]
        gae_lambda = np.exp(-np.diff(time_ms, append=end_ms) / self.gae_horizon_ms)
        return accumulate(td_error, discount * gae_lambda)
