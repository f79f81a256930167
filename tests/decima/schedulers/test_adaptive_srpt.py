"""``priced-srpt`` with constants that depend on the state."""

import math
from dataclasses import replace

import numpy as np
import pytest

from decima.policy.config import GENERAL_POLICY
from decima.policy.policy import Policy
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler, parameters
from decima.schedulers.adaptive_srpt import HALF, MOST_FACTOR, OF_JOB, STATE, WEIGHTS, AdaptiveSrpt
from decima.schedulers.priced_srpt import PricedConstants, PricedSrpt
from simulator import Cluster, ClusterConfig, run_episode
from simulator.cluster.config import EXACT, Knowledge
from simulator.cluster.observation import Observation
from tests.decima.policy.examples import random_sequence
from tests.simulator.cluster.build import inflating, job, jobs, stage
from workloads.arrivals import JobSequence, batch_arrivals

DEFAULTS = PricedConstants()
NO_WEIGHTS = dict.fromkeys(WEIGHTS, 0.0)
WRONG = ClusterConfig(12, moving_delay_ms=50.0, knowledge=Knowledge(job_error=1.0, stage_error=0.5))


def constants(scheduler: AdaptiveSrpt, observation: Observation) -> PricedConstants:
    """Return the constants that the scheduler uses in a state."""
    scheduler.ask(observation)
    return PricedConstants(*scheduler._rows[0])


def observed(config: ClusterConfig, sequence: JobSequence) -> Observation:
    return Cluster(config, sequence).observe().copy()


@pytest.mark.parametrize("seed", range(3))
def test_without_weights_it_is_the_rule(seed: int) -> None:
    sequence = random_sequence(np.random.default_rng(seed), max_jobs=9)
    runs = [run_episode(WRONG, sequence, each) for each in (AdaptiveSrpt(**NO_WEIGHTS), PricedSrpt())]
    assert runs[0].completion_ms.tolist() == runs[1].completion_ms.tolist()


@pytest.mark.parametrize("seed", [0, 2])
def test_the_learned_weights_need_wrong_estimates(seed: int) -> None:
    sequence = random_sequence(np.random.default_rng(seed), max_jobs=9)
    for config, equal in ((WRONG, False), (replace(WRONG, knowledge=EXACT), True)):
        runs = [run_episode(config, sequence, each) for each in (AdaptiveSrpt(), PricedSrpt())]
        assert (runs[0].completion_ms.tolist() == runs[1].completion_ms.tolist()) == equal


def test_constants_follow_the_features_of_the_state() -> None:
    """Four jobs need many executors; the delay is e - 1 mean task times."""
    sequence = batch_arrivals((inflating(200, {1: 800.0, 20: 1600.0}),), 4, seed=0)
    without_delay = observed(ClusterConfig(20, moving_delay_ms=0.0), sequence)
    task_ms = float(without_delay.stages["mean_task_ms"][0])
    seen = observed(ClusterConfig(20, moving_delay_ms=task_ms * (math.e - 1)), sequence)
    demand = math.log(PricedSrpt()._known(seen)[:, 6].sum() / 20)  # PRICES[6] is the default of `measured`
    weights = {"price.demand": 0.3, "staying.moves": 0.7, "shares.stream": 1.0, "doubtful.errors": 1.0}
    found = constants(AdaptiveSrpt(worth_leaving=5.0, **weights, **{"used_well.demand": -0.5}), seen)
    for name in ("steepness", "stream_steepness", "stream_price"):
        assert getattr(found, name) == pytest.approx(getattr(DEFAULTS, name) * math.exp(0.3 * demand))
    assert found.used_well == pytest.approx(DEFAULTS.used_well * math.exp(-0.5 * demand))
    assert found.staying == pytest.approx(DEFAULTS.staying)  # the logarithm of e, less 1
    assert (found.shares, found.doubtful, found.worth_leaving) == (DEFAULTS.shares, DEFAULTS.doubtful, 5.0)
    found = constants(AdaptiveSrpt(**weights), without_delay)
    assert found.staying == pytest.approx(DEFAULTS.staying * math.exp(-0.7))


def test_uncertain_estimates_and_streams_are_features() -> None:
    sequence = random_sequence(np.random.default_rng(3), max_jobs=9)
    seen = observed(WRONG, JobSequence(sequence.profiles, np.zeros(len(sequence)), seed=3))
    work, variance = np.zeros(len(seen.jobs)), np.zeros(len(seen.jobs))
    for each in seen.stages:
        left = each.remaining_tasks * each.mean_task_ms
        work[each.job] += left
        variance[each.job] += left * each.log_sd**2
    errors = np.minimum(np.sqrt(variance / work), 2.0).mean()
    assert errors > 0.5
    errors /= errors + HALF
    found = constants(AdaptiveSrpt(**{"doubtful.errors": 0.4, "shares.stream": 0.6}), seen)
    assert found.doubtful == pytest.approx(DEFAULTS.doubtful * math.exp(0.4 * errors))
    assert found.shares == DEFAULTS.shares
    seen.jobs["arrival_ms"][0] -= 1.0
    found = constants(AdaptiveSrpt(**{"shares.stream": 0.6}), seen)
    assert found.shares == pytest.approx(DEFAULTS.shares * math.exp(0.6))


def test_factors_are_bounded() -> None:
    seen = observed(WRONG, random_sequence(np.random.default_rng(3), max_jobs=9))
    found = constants(AdaptiveSrpt(**{"doubtful.errors": 90.0, "staying.errors": -90.0}), seen)
    assert found.doubtful == pytest.approx(DEFAULTS.doubtful * math.exp(MOST_FACTOR))
    assert found.staying == pytest.approx(DEFAULTS.staying * math.exp(-MOST_FACTOR))


def test_order_and_limits_follow_the_features_of_jobs() -> None:
    """The larger one of two jobs comes first, and gets more executors, if the weights of its size say so."""
    sequence = jobs(job(stage(40, 100.0)), job(stage(60, 100.0)))
    seen = observed(ClusterConfig(10, moving_delay_ms=10.0), sequence)
    plain = AdaptiveSrpt().ask(seen)
    assert seen.stage_job[plain.stage] == 0
    larger = AdaptiveSrpt(**{"order.size": -1.5}).ask(seen)
    assert seen.stage_job[larger.stage] == 1
    fewer = AdaptiveSrpt(**{"limit.size": -1.9}).ask(seen)
    assert fewer.limits[1] < plain.limits[1]
    assert fewer.limits[0] >= plain.limits[0]


def test_every_weight_has_a_use_and_a_name_can_hold_it() -> None:
    assert len(WEIGHTS) == 3 + 10 * len(STATE) + 2 * len(OF_JOB)
    assert parameters("adaptive-srpt") == {"jitter": 0.0} | DEFAULTS._asdict() | WEIGHTS
    made = make_scheduler("adaptive-srpt:steepness=2,order.done=-0.5")
    assert isinstance(made, AdaptiveSrpt)
    assert (made.weights["order.done"], made.constants.steepness) == (-0.5, 2.0)
    with pytest.raises(ValueError, match="steepness must be positive"):
        AdaptiveSrpt(steepness=-1.0)
    with pytest.raises(TypeError, match="nope"):
        AdaptiveSrpt(nope=1.0)


def test_a_policy_knows_the_rule_with_its_weights() -> None:
    weights = {"limit.size": -0.8, "staying.errors": 1.0, "worth_moving": 5.0}
    update = {"rule": "adaptive-srpt", "rule_constants": weights, "rule_stage_weight": 1e4, "rule_limit_weight": 1e4}
    config = GENERAL_POLICY.model_validate({**GENERAL_POLICY.model_dump(), **update})
    sequence = random_sequence(np.random.default_rng(3), max_jobs=9)
    schedulers = (NeuralScheduler(Policy(config, 1)), AdaptiveSrpt(**weights), AdaptiveSrpt())
    mine, rule, other = (run_episode(WRONG, sequence, each).completion_ms.tolist() for each in schedulers)
    assert mine == rule != other
