"""``priced-srpt`` with constants that depend on the cluster's state, for direct policy search.

Logarithms of the constants, and of factors on each job's order and limit, are linear functions of a few features. With
all weights 0, and with the default weights and exact estimates, decisions are those of ``priced-srpt``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Rule
from decima.schedulers.priced_srpt import PricedConstants, PricedSrpt, place_of
from simulator.cluster.observation import Observation
from simulator.compiled import compiled

__all__ = ["WEIGHTS", "AdaptiveSrpt"]

#: Features of the state: u / (u + ``HALF``), where u is the mean uncertainty of the live jobs; logarithm of demand over
#: supply of executors; log(1 + moving delay / mean task time) - 1; 1 in a stream, 0 in a batch.
STATE = ("errors", "demand", "moves", "stream")
#: Features of a job: logarithms of remaining work and of useful parallelism, minus their means over the live jobs;
#: finished share of the work; uncertainty; products of the first three features and ``errors``.
OF_JOB = ("size", "width", "done", "error", "size_errors", "width_errors", "done_errors")
#: Constants that depend on the state. The constants of prices (``PRICE``) share their weights.
ADAPTED = (
    *("used_well", "unwanted", "staying", "worth_leaving", "worth_moving"),
    *("uncertain", "work_exponent", "doubtful", "shares", "hesitation"),
)
PRICE = ("steepness", "stream_steepness", "stream_price")
#: Default weights other than 0, tuned with estimation errors (docs/studies.md). Exact estimates make them ineffective.
CHOSEN = {
    "used_well.errors": -0.2,
    "unwanted.errors": -0.4,
    "staying.errors": -1.2,
    "work_exponent.errors": -0.6,
}
#: Default of each weight, by its name ``constant.feature``.
WEIGHTS: dict[str, float] = {
    f"{constant}.{feature}": CHOSEN.get(f"{constant}.{feature}", 0.0)
    for constants, features in ((("price",), STATE[:3]), (ADAPTED, STATE), (("order", "limit"), OF_JOB))
    for constant in constants
    for feature in features
}
#: Mean uncertainty at which the feature ``errors`` is 0.5.
HALF = 0.2
#: Bounds of a job's uncertainty, of other features, and of the logarithm of each factor.
MOST_ERRORS, MOST_LOG, MOST_FACTOR = 2.0, 3.0, 2.0
#: Index in ``PricedConstants`` of the price at which demand is measured.
MEASURED = PricedConstants._fields.index("measured")


class AdaptiveSrpt(PricedSrpt):
    """``priced-srpt`` whose constants, order and limits depend on the state, by weights.

    Each constant is multiplied by the exponential of a weighted sum of the features of the state (``STATE``). The order
    and the limit of each job are multiplied by exponentials of weighted sums of the job's features (``OF_JOB``).
    ``decima tune adaptive-srpt`` tunes constants and weights together.

    Args:
        jitter: see ``PricedSrpt``.
        constants: fields of ``PricedConstants``, positive, and weights by their names in ``WEIGHTS``.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    def __init__(self, jitter: float = 0.0, **constants: float) -> None:
        weights = {name: constants.pop(name) for name in WEIGHTS if name in constants}
        super().__init__(jitter, **constants)
        self.weights = WEIGHTS | weights
        self._base = np.array(self.constants)
        #: View of the memory from which the decision reads the constants.
        self._values = self._rows.view(np.float64)
        self._of_state = np.zeros((len(PricedConstants._fields), len(STATE)))
        for row, constant in enumerate(PricedConstants._fields):
            name = "price" if constant in PRICE else constant
            self._of_state[row] = [self.weights.get(f"{name}.{feature}", 0.0) for feature in STATE]
        names = ([f"{name}.{each}" for each in OF_JOB] for name in ("order", "limit"))
        self._of_job = np.array([[self.weights[name] for name in row] for row in names])
        self._adapted = np.zeros((2, 0))

    def _ask(self, observation: Observation, jitter: float) -> Rule:
        delay_ms, useful = float(observation.config.moving_delay_ms), self._known(observation)
        self._adapted = _adapt(
            *(observation.jobs, observation.stages, observation.num_executors, delay_ms, useful),
            *(self._base, self._of_state, self._of_job, self._values),
        )
        return super()._ask(observation, jitter)

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        noise = super()._factors(observation, jitter)
        return self._adapted * noise if jitter else self._adapted


@compiled
def _adapt(  # type: ignore[no-untyped-def]
    jobs, stages, num_executors, delay_ms, useful, base, of_state, of_job, values
):
    """Write the constants of this state to ``values``; return factors on order and limit, float64 [2, J].

    ``useful``: float64 [J, WORK + 1], as in ``priced_srpt``; ``base``: constants before their multiplication by
    factors; ``of_state`` and ``of_job``: weights.
    """
    num_jobs, most = len(jobs), max(num_executors, 1)
    work, done, variance = np.zeros(num_jobs), np.zeros(num_jobs), np.zeros(num_jobs)
    unclaimed, tasks = np.zeros(num_jobs), 0
    for stage in stages:
        left = stage.remaining_tasks * stage.mean_task_ms
        work[stage.job] += left
        done[stage.job] += stage.finished_ms
        variance[stage.job] += left * stage.log_sd**2
        unclaimed[stage.job] += stage.unclaimed_tasks
        tasks += stage.remaining_tasks
    measured = place_of(base[MEASURED])
    errors, wanted, sizes, widths, is_stream = 0.0, 0.0, 0.0, 0.0, 0.0
    features = np.zeros((num_jobs, of_job.shape[1]))
    for job in range(num_jobs):
        features[job, 0] = math.log(max(work[job], 1.0))
        features[job, 1] = math.log(max(useful[job, measured], 1.0))
        features[job, 2] = done[job] / max(done[job] + work[job], 1.0)
        features[job, 3] = min(math.sqrt(variance[job] / max(work[job], 1e-9)), MOST_ERRORS)
        sizes += features[job, 0] / num_jobs
        widths += features[job, 1] / num_jobs
        errors += features[job, 3] / num_jobs
        if unclaimed[job] > 0:
            wanted += useful[job, measured]
        if jobs[job].arrival_ms != jobs[0].arrival_ms:
            is_stream = 1.0
    errors /= errors + HALF  # saturates: the existence of errors matters more than their size
    demand = math.log(max(wanted, 1.0) / most)
    moves = math.log(1 + delay_ms * max(tasks, 1) / max(np.sum(work), 1.0)) - 1
    for row in range(len(base)):
        total = (
            errors * of_state[row, 0]
            + _bounded(demand, MOST_LOG) * of_state[row, 1]
            + _bounded(moves, MOST_LOG) * of_state[row, 2]
            + is_stream * of_state[row, 3]
        )
        values[row] = base[row] * math.exp(_bounded(total, MOST_FACTOR))
    factors = np.ones((2, num_jobs))
    for job in range(num_jobs):
        features[job, 0] = _bounded(features[job, 0] - sizes, MOST_LOG)
        features[job, 1] = _bounded(features[job, 1] - widths, MOST_LOG)
        features[job, 4:] = errors * features[job, :3]
        for number in range(2):
            total = 0.0
            for column in range(of_job.shape[1]):
                total += features[job, column] * of_job[number, column]
            factors[number, job] = math.exp(_bounded(total, MOST_FACTOR))
    return factors


@compiled
def _bounded(value, most):  # type: ignore[no-untyped-def]
    return min(max(value, -most), most)
