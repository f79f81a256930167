"""Shortest remaining work first, with limits by a price of executors: ``srpt``, and ``srpt-tuned`` with weights.

docs/guides/srpt.md describes the rule step by step; ``srpt_steps`` has a compiled function for each step. Both rules
run the same code. In ``srpt-tuned``, each quantity is multiplied by the exponential of a weighted sum of features of
the state, and sort keys and limits also depend on features of jobs and stages. The weights come from a search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Kind, Scheduler
from decima.schedulers.decisions import check_positive, last_resort, move_cost_ms
from decima.schedulers.rule import NO_RULE, PRICES, Rule
from decima.schedulers.srpt_steps import GIVEN_KEY, KEY_FACTOR, RULE, WORK, choose
from decima.schedulers.srpt_weights import CLASSES, WEIGHT_PLACES, Constants, searched_weights
from simulator.cluster.alone import useful_parallelism
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.arrivals import RandomStream, random_stream
from workloads.job import JobProfile

__all__ = ["BY_WORK", "OrderedRule", "Srpt", "TunedSrpt"]

BY_WORK, NO_FACTORS = np.zeros(0), np.zeros((0, 0))
#: No output of ``choose`` but the decision.
DECISION_ALONE = np.zeros(0, np.int64)
#: Default number of executors from which on weights have their full effect. With full weights, mean JCTs on 8 executors
#: are up to 5 % longer than without weights, with a third of them shorter.
FULL_EFFECT = 50.0


class Srpt(Scheduler):
    """Shortest remaining work first; each job is limited to its useful parallelism at the price of executors.

    The price rises with the root of demand over supply: a single job gets all executors that make it much faster; each
    of many jobs gets few executors, at high efficiency. A new job gets executors even if each finds little work. After
    the other jobs it gets up to twice as many, and up to six times as many if no job needs most executors.

    With uncertain estimates, the order depends less on remaining work and more on useful parallelism, which errors
    change less. Limits are closer to an equal share, and executors leave their job more rarely.

    Executor classes matter while some executor cannot run a stage of a live job. Then the price is constant, stages
    that few executors can run come first, and only busy and moving executors count towards a job's limit, as idle
    executors may be too small for its remaining stages.

    Args:
        jitter: standard deviation of the noise on the logarithms of order and limits at each decision. From noisy
            decisions, a policy that clones the rule learns which choices matter little.
        constants: fields of ``Constants``, positive; ``coverage_exponent`` may be 0.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    constants: Constants

    def __init__(self, jitter: float = 0.0, **constants: float) -> None:
        if not jitter >= 0:
            raise ValueError(f"the jitter must not be negative, got {jitter:g}")
        self.constants = Constants(**{name: float(value) for name, value in constants.items()})
        if not self.constants.coverage_exponent >= 0:
            raise ValueError(
                f"the coverage_exponent must not be negative, got {self.constants.coverage_exponent:g}"
            )
        check_positive(**self.constants._replace(coverage_exponent=1.0)._asdict())
        self.jitter = jitter
        #: While executor classes do not matter, and where they matter.
        self._rules = tuple(_rule_row(self.constants) for _ in range(2))
        self._config: ClusterConfig | None = None
        self._random = random_stream(0, RandomStream.POLICY)
        self._profiles = PerJob(_of_profile, lambda jobs: np.array(jobs).reshape(-1, WORK + 1))
        self._height_ms = PerJob(lambda profile, _: profile.height_ms, np.concatenate)
        self._fit_all = PerJob(_fit_all, all)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the stage with the least key of a job below its limit, else of a job with enough work for a move."""
        if not len(observation.jobs):
            return None
        stage, limit, _ = self._choose(observation, self.jitter, DECISION_ALONE)
        return Decision(stage, limit) if stage >= 0 else last_resort(observation)

    def ask(self, observation: Observation) -> Rule:
        """Return the decision without jitter, and each job's limit.

        A job's limit follows from the price. A job that has reached this limit gets another one: the number of
        executors that find lasting work there. The order is: jobs below their limits, jobs with lasting work, other
        jobs; within each group by the key.
        """
        if not len(observation.jobs):
            return NO_RULE
        limits = np.zeros(len(observation.jobs), np.int64)
        stage, _, price = self._choose(observation, 0.0, limits)
        return Rule(stage, limits, price)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the sort key of each live job, float64 [J], least first; empty for the order by remaining work."""
        return BY_WORK

    def classes_matter(self, observation: Observation) -> bool:
        """Return whether some executor cannot run a stage of a live job."""
        return len(observation.classes) > 1 and not self._fit_all(observation)

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        """Return factors on the sort key and the limit of each live job, float64 [2, J]; empty without factors."""
        if not jitter:
            return NO_FACTORS
        return np.exp(jitter * self._random.standard_normal((2, len(observation.jobs))))

    def _changes(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        """Return rows ``GIVEN_KEY`` to ``LIMIT_FACTOR``, float64 [3, J]; empty without changes."""
        order, factors = self.order(observation), self._factors(observation, jitter)
        if not len(order) and not len(factors):
            return NO_FACTORS
        changes = np.ones((3, len(observation.jobs)))
        changes[GIVEN_KEY] = order if len(order) else -1.0
        if len(factors):
            changes[KEY_FACTOR:] = factors
        return changes

    def _choose(
        self, observation: Observation, jitter: float, limits: NDArray[np.int64]
    ) -> tuple[int, int, float]:
        """Return stage, limit and price of the decision."""
        if observation.config is not self._config:
            self._config = observation.config
            for rule in self._rules:
                rule["config_executors"] = observation.config.num_executors
                rule["moving_delay_ms"] = observation.config.moving_delay_ms
                rule["move_cost_ms"] = move_cost_ms(observation)
        classes_matter = self.classes_matter(observation)
        offer = (
            *(observation.source, observation.offered, observation.executor_class, observation.num_executors),
            *(int(observation.last_call), int(classes_matter)),
        )
        chosen: tuple[int, int, float] = choose(
            *(observation.jobs, observation.stages, observation.classes, offer),
            *(self._profiles(observation), self._height_ms(observation)),
            *(self._changes(observation, jitter), self._rules[classes_matter], limits),
        )
        return chosen


def _rule_row(constants: Constants) -> NDArray[np.void]:
    """Return a row of ``RULE`` without weights."""
    rule = np.zeros(1, RULE)
    for name, value in constants._asdict().items():
        rule[name] = value
    return rule


class TunedSrpt(Srpt):
    """``srpt`` whose quantities, order and limits depend on state, jobs and stages, by searched weights.

    Between prices, the logarithm of the useful parallelism is interpolated. The stage with the least key of all jobs is
    chosen, which need not be its job's next stage. The weights were found for batches and streams of TPC-H jobs, with
    and without errors of estimates, and on executors of two and four sizes; ``decima tune srpt-tuned`` searches for
    others.

    Args:
        jitter: see ``Srpt``.
        full_effect_executors: positive number of executors from which on weights have their full effect; on fewer
            executors they are multiplied by the square root of the ratio.
        constants: fields of ``Constants``, positive, and weights with other values than ``searched_weights``.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    kind = Kind.TUNED_RULE

    weights: dict[str, float]

    def __init__(
        self, jitter: float = 0.0, full_effect_executors: float = FULL_EFFECT, **constants: float
    ) -> None:
        weights = {
            name: constants.pop(name)
            for name in tuple(constants)
            if name.removeprefix(CLASSES) in WEIGHT_PLACES
        }
        super().__init__(jitter, **constants)
        check_positive(full_effect_executors=full_effect_executors)
        self.weights = searched_weights() | weights
        for rule in self._rules:
            rule["has_weights"], rule["full_effect_executors"] = True, full_effect_executors
        for name, weight in self.weights.items():
            [table] = self._rules[name.startswith(CLASSES)]["weights"]
            table[WEIGHT_PLACES[name.removeprefix(CLASSES)]] = weight


class OrderedRule(Srpt):
    """Base class of rules with another order of jobs, ``order``; limits as in ``srpt`` on executors of one class."""

    def classes_matter(self, observation: Observation) -> bool:
        """Return False: the order is one of jobs, not of stages."""
        return False


def _of_profile(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float64]:
    useful = np.array(useful_parallelism(profile, config, PRICES), np.float64)
    return np.array([*useful, *np.log(useful), profile.work_ms])


def _fit_all(profile: JobProfile, config: ClusterConfig) -> bool:
    return all(
        executor_class.fits(stage) for executor_class in config.executor_classes for stage in profile.stages
    )
