"""Observations do not depend on future jobs, and no scheduler needs a simulator."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from decima.policy.scheduler import NeuralScheduler
from decima.policy.shipped import SHIPPED
from decima.registry import SCHEDULERS, make_scheduler
from decima.schedulers import JobOrder, Scheduler, all_offered
from decima.schedulers.spark import SparkStandalone
from simulator import DECIMA_SIM, PAPER, Cluster, ClusterConfig, Observation, Semantics
from tests.decima.policy.examples import PRESETS, policy_of
from tests.simulator.cluster.build import by_hand, chain, job, stage
from workloads import JobSequence, poisson_arrivals, synthetic_profiles

#: Whoever can be named, and who else decides.
EVERYBODY: dict[str, Callable[[], Scheduler]] = {
    **{
        name: lambda name=name: make_scheduler(name, seed=1)
        for name in [*SCHEDULERS, "weighted-fair:-1.3", "weighted-fair:2", *map("decima:{}".format, SHIPPED)]
    },
    "job-order": lambda: JobOrder(range(100)[::-1]),
    "standalone": lambda: SparkStandalone(5),
    "sampling": lambda: NeuralScheduler(policy_of(PRESETS["paper"]), sample_seed=1),
}

KNOWN = poisson_arrivals(synthetic_profiles(6), 6, 8000, seed=2)
#: From here on everything is different.
UNTIL_MS = float(KNOWN.arrival_ms[-1]) + 1.0


def futures() -> list[JobSequence]:
    """Return sequences with the same jobs until a time, followed by no job, many tiny jobs, or a huge job."""
    tiny, huge = job(stage(1, 1.0)), chain(*(stage(500, 60_000.0) for _ in range(12)))
    return [
        JobSequence((*KNOWN.profiles, *more), np.append(KNOWN.arrival_ms, UNTIL_MS + np.arange(len(more))), KNOWN.seed)
        for more in ((), (tiny,) * 40, (huge,))
    ]


def all_that_is_seen(sequence: JobSequence, semantics: Semantics = PAPER) -> list[tuple[object, ...]]:
    """Return all observations under random decisions up to the time of the difference."""
    cluster = Cluster(ClusterConfig(15, semantics=semantics), sequence)
    random, seen = np.random.default_rng(0), []
    while not cluster.done and (observation := cluster.observe()).time_ms < UNTIL_MS:
        values = vars(observation).values()
        seen.append(tuple(each.tobytes() if isinstance(each, np.ndarray) else each for each in values))
        stages = np.flatnonzero(observation.schedulable)
        cluster.decide(all_offered(observation, int(random.choice(stages))) if stages.size else None)
    return seen


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM], ids=["paper", "decima-sim"])
def test_jobs_to_come_change_nothing_that_is_seen(semantics: Semantics) -> None:
    alone, *others = (all_that_is_seen(sequence, semantics) for sequence in futures())
    assert len(alone) > 15
    assert [alone] * 2 == others


def test_a_leak_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leak is an observation that contains the work of all jobs."""
    snapshot = Cluster.snapshot

    def leaking(cluster: Cluster) -> Observation:
        observation = snapshot(cluster)
        observation.leak = sum(profile.work_ms for profile in cluster.sequence.profiles)  # type: ignore[attr-defined]
        return observation

    monkeypatch.setattr(Cluster, "snapshot", leaking)
    seen = [all_that_is_seen(sequence) for sequence in futures()]
    assert seen[0] != seen[1] != seen[2]


@pytest.mark.parametrize("name", EVERYBODY)
def test_it_decides_on_what_no_simulator_showed(name: str) -> None:
    scheduler, seen = EVERYBODY[name](), replace(by_hand(), last_call=True)  # or it may wait
    scheduler.reset(seen.config)
    decision = scheduler.decide(seen)
    assert decision is not None
    assert seen.schedulable[decision.stage]
    assert decision.limit > seen.held(int(seen.stage_job[decision.stage]))
