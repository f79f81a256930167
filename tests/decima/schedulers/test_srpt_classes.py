"""``srpt`` and ``srpt-tuned`` where executor classes matter."""

import math

import numpy as np
import pytest

from decima.evaluation.episodes import run_scheduler
from decima.schedulers.srpt import Srpt, TunedSrpt
from decima.schedulers.srpt_weights import searched_weights
from simulator import Cluster, ClusterConfig, Decision, ExecutorClass, Observation, run_episode
from tests.cases import cases
from tests.decima.policy.examples import random_sequence
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import JobSequence, batch_arrivals, uniform_memory
from workloads.sources.open import embedded_workload

SMALL_AND_LARGE = (ExecutorClass(2, memory=0.5), ExecutorClass(2, memory=1.0))


class Packing(Srpt):
    """The rule as where classes matter."""

    def classes_matter(self, observation: Observation) -> bool:
        return True


def cluster_of(sequence: JobSequence, classes: tuple[ExecutorClass, ...] = SMALL_AND_LARGE) -> Cluster:
    return Cluster(ClusterConfig(executor_classes=classes, moving_delay_ms=0), sequence)


def test_stages_far_from_the_end_and_parameters() -> None:
    ends, goes_on = stage(1, 900.0), stage(1, 500.0)
    profile = job(ends, goes_on, stage(1, 500.0), edges=[(1, 2)])
    decision = Srpt().decide(cluster_of(jobs(profile)).observe())
    assert decision is not None
    assert decision.stage == 1


@pytest.mark.parametrize(("times", "goes_to_the_small"), [(1.9, True), (2.1, False)])
def test_a_large_executor_goes_to_what_only_it_can_run(times: float, goes_to_the_small: bool) -> None:
    """Half of the executors are large. With exponent 1, a stage that needs no large executor has twice the key."""
    small, large = job(stage(2, 1000.0, memory=0.5)), job(stage(2, 1000.0 * times, memory=1.0))
    cluster = cluster_of(jobs(small, large, small))
    scheduler = Srpt(coverage_exponent=1.0)
    assert scheduler.decide(cluster.observe()) == Decision(0, 2)
    cluster.decide(Decision(0, 2))
    seen = cluster.observe()
    assert seen.executor_class == 1
    decision = scheduler.decide(seen)
    assert decision is not None
    assert (decision.stage == 2) == (not goes_to_the_small)


def test_stages_that_few_can_run_come_first_and_no_executor_waits_elsewhere() -> None:
    either, large = stage(4, 1000.0, memory=0.25), stage(2, 1000.0, memory=1.0)
    cluster = cluster_of(jobs(job(either, large)))
    scheduler = Srpt()
    stages = []
    while cluster.offered and cluster.clock.now == 0:
        decision = scheduler.decide(cluster.observe())
        assert decision is not None
        stages.append(decision.stage)
        cluster.decide(decision)
    assert stages == [0, 1]
    # The first job's second stage is not ready, so executors that the first stage does not need would only wait.
    cluster = cluster_of(jobs(chain(stage(1, 1000.0), stage(4, 1000.0)), job(stage(1, 10.0))))
    scheduler = Packing()
    for expected in (Decision(2, 1), Decision(0, 1), None):
        decision = scheduler.decide(cluster.observe())
        assert (decision.stage if decision else None) == (expected.stage if expected else None)
        if decision:
            cluster.decide(decision)


def test_executors_too_small_for_what_is_left_do_not_count_in_the_limit() -> None:
    """The job's small executors wait for its last stage, which is not ready before the previous stage ends."""
    sequence = jobs(
        chain(stage(2, 10.0, memory=0.5), stage(2, 1000.0, memory=1.0), stage(2, 10.0, memory=0.5)),
        job(stage(50, 300.0, memory=1.0)),
    )
    record = run_scheduler(ClusterConfig(executor_classes=SMALL_AND_LARGE, moving_delay_ms=1.0), sequence, "srpt")
    assert not np.isnan(record.completion_ms).any()
    # Both large executors join it although its limit is its share of the cluster, two executors.
    second = slice(2, 4)
    assert sorted(record.task_executor[second]) == [2, 3]


@pytest.mark.parametrize("name", ["srpt", "srpt-tuned"])
def test_no_class_is_waited_for_for_ever(name: str) -> None:
    """A job holds as many small executors as its limit allows, and needs a large executor."""
    sequence = jobs(chain(stage(1, 10.0, memory=0.5), stage(1, 10.0, memory=1.0), stage(9, 10.0, memory=0.5)))
    classes = (ExecutorClass(20, memory=0.5), ExecutorClass(1, memory=1.0))
    record = run_scheduler(ClusterConfig(executor_classes=classes), sequence, name)
    assert not np.isnan(record.completion_ms).any()


#: Begin of the names of weights that hold where classes matter.
PREFIX = "classes."
NO_WEIGHTS = dict.fromkeys(searched_weights(), 0.0)
CLASSES = (ExecutorClass(3, memory=0.25), ExecutorClass(3, memory=0.5), ExecutorClass(4, memory=1.0))


def rule(full_effect_executors: float = 1.0, **weights: float) -> TunedSrpt:
    """Return the rule with these weights where classes matter, by default with their full effect on any cluster."""
    named = {PREFIX + name if "." in name else name: value for name, value in weights.items()}
    return TunedSrpt(full_effect_executors=full_effect_executors, **NO_WEIGHTS | named)


def observed(
    sequence: JobSequence, classes: tuple[ExecutorClass, ...] = SMALL_AND_LARGE, delay_ms: float = 0.0
) -> Observation:
    return Cluster(ClusterConfig(executor_classes=classes, moving_delay_ms=delay_ms), sequence).observe()


def halves(num_executors: int) -> ClusterConfig:
    """Return a cluster of which one half of the executors is small."""
    half = num_executors // 2
    return ClusterConfig(executor_classes=(ExecutorClass(half, memory=0.5), ExecutorClass(half, memory=1.0)))


def stage_of(scheduler: TunedSrpt, observation: Observation) -> int:
    decision = scheduler.decide(observation)
    return -1 if decision is None else decision.stage


@pytest.mark.parametrize("delay_ms", [0.0, 40.0])
@pytest.mark.parametrize("seed", range(4))
def test_without_weights_the_tuned_rule_is_srpt(seed: int, delay_ms: float) -> None:
    sequence = random_sequence(np.random.default_rng(seed), max_jobs=9)
    config = ClusterConfig(executor_classes=CLASSES, moving_delay_ms=delay_ms)
    constants = {
        "price_with_classes": 3.0,
        "coverage_exponent": 0.5,
        "source_factor": 0.4,
        "leave_min_delays": 2.0,
        "move_min_delays": 1.0,
    }
    for mine, theirs in ((rule(), Srpt()), (rule(**constants), Srpt(**constants))):
        runs = [run_episode(config, sequence, each) for each in (mine, theirs)]
        assert runs[0].completion_ms.tolist() == runs[1].completion_ms.tolist()


@pytest.mark.parametrize("num_executors", [10, 20])
def test_small_weights_of_limits_change_nothing_on_few_executors(num_executors: int) -> None:
    """Limits and counts that are hardly below a whole number are not rounded down to the next one."""
    weights = {
        name.removeprefix(PREFIX): weight / 1000
        for name, weight in searched_weights().items()
        if name.startswith(PREFIX) and name.split(".")[1] not in ("order", "stage")
    }
    config = halves(num_executors)
    differ = []
    for full_effect_executors in (50.0, 1.0):
        schedulers = (rule(full_effect_executors, **weights), Srpt())
        sequences = [uniform_memory(batch_arrivals(embedded_workload().profiles, 12, seed)) for seed in range(2)]
        runs = [[run_episode(config, each, one).mean_jct_ms for one in schedulers] for each in sequences]
        differ.append([small != none for small, none in runs])
    assert differ == [[False, False], [True, True]]


class Alike(TunedSrpt):
    """The rule as on executors of one class."""

    def classes_matter(self, observation: Observation) -> bool:
        return False


@cases("small, is_alike", (0.5, True), (0.4, False))
def test_classes_matter_while_an_executor_cannot_run_a_stage(small: float, is_alike: bool) -> None:
    """Stages need half of the memory at most; the last job needs less."""
    sequence = jobs(
        *(job(stage(9, 100.0 * each, memory=0.5), stage(8, 90.0)) for each in (4, 3, 5)), job(stage(6, 90.0))
    )
    config = ClusterConfig(
        executor_classes=(ExecutorClass(6, memory=small), ExecutorClass(6, memory=1.0)), moving_delay_ms=60.0
    )
    runs = [run_episode(config, sequence, each) for each in (TunedSrpt(), Alike())]
    assert (runs[0].completion_ms.tolist() == runs[1].completion_ms.tolist()) == is_alike
    asked = [each.ask(Cluster(config, sequence).observe()) for each in (TunedSrpt(), Alike())]
    assert (asked[0].limits.tolist() == asked[1].limits.tolist()) == is_alike


@cases(
    "full_effect_executors, expected",
    (16.0, 7),  # 0.51 times 15, rounded down
    (64.0, 11),  # the root of 0.51 times 15, rounded to the nearest number
)
def test_weights_have_less_effect_on_few_executors(full_effect_executors: float, expected: int) -> None:
    """The cluster has 16 executors."""
    seen = observed(jobs(job(stage(40, 100.0)), job(stage(40, 100.0, memory=1.0))), halves(16).executor_classes)
    scheduler = rule(
        full_effect_executors, price_with_classes=1.5, **{"least_limit.one": -6.0, "limit.one": math.log(0.51)}
    )
    assert scheduler.ask(seen).limits[0] == expected


@cases(
    "weight, expected",
    ("order.size=0", 0),  # the shorter job comes first
    ("order.size=-2", 1),
    ("stage.lasts=-2", 1),
    ("stage.height=2", 0),
    ("stage.move=5", 0),  # tasks are equally long
    ("stage.covered=5", 1),
    ("stage.exact=-5", 1),
    ("order.needing=-2", 1),
)
def test_the_order_follows_features_of_jobs_and_stages(weight: str, expected: int) -> None:
    """The second job has more work, and needs a large executor, one of which is offered."""
    short, long = job(stage(8, 100.0, memory=0.5)), job(stage(12, 100.0, memory=1.0))
    classes = (ExecutorClass(2, memory=1.0), ExecutorClass(2, memory=0.5))
    name, _, value = weight.partition("=")
    seen = observed(jobs(short, long), classes, delay_ms=100.0)
    scheduler = rule(coverage_exponent=0.0, **{name: float(value)})
    assert stage_of(scheduler, seen) == expected


def test_the_limit_follows_the_price_and_features() -> None:
    sequence = jobs(*(job(stage(40, 100.0, memory=each)) for each in (0.5, 1.0)))
    seen = observed(sequence, (ExecutorClass(8, memory=0.5), ExecutorClass(8, memory=1.0)))

    def limit(**weights: float) -> int:
        decision = rule(price_with_classes=1.5, **weights).decide(seen)
        assert decision is not None
        return decision.limit

    no_share = {"least_limit.one": -3.0}
    assert limit(**no_share) == 15
    assert limit(**no_share, **{"limit.one": math.log(0.51)}) == 7
    assert limit(**no_share, **{"price.one": math.log(2.5 / 1.5)}) == 10
    assert limit(**{"limit.one": -3.0, "least_limit.one": math.log(1.5)}) == 12  # 1.5 times an equal share


def test_a_threshold_keeps_large_executors_from_work_of_small_ones() -> None:
    """The executors offered are large; executors of medium size could run the only stage."""
    sequence = jobs(job(stage(40, 10.0, memory=0.5)))
    classes = (ExecutorClass(2, memory=1.0), ExecutorClass(2, memory=0.5), ExecutorClass(1, memory=0.1))
    seen = observed(sequence, classes, delay_ms=50.0)
    assert seen.classes[seen.executor_class]["memory"] == 1.0
    many, few = rule().decide(seen), rule(**{"move_min_delays.waste": 3.0}).decide(seen)
    assert many is not None
    assert few is not None
    assert (many.limit, few.limit) == (2, 1)


def test_executors_of_other_stages_count_less() -> None:
    """Two small executors run the job's first stage, so that its limit is reached unless they count less."""
    sequence = jobs(job(stage(2, 900.0, memory=0.5), stage(9, 900.0, memory=1.0)), job(stage(90, 900.0, memory=1.0)))
    few = {"limit.one": -2.0, "least_limit.one": -3.0}
    for scheduler, expected in ((rule(**few), 1), (rule(**few, **{"other_executors.one": -50.0}), 0)):
        cluster = Cluster(ClusterConfig(executor_classes=SMALL_AND_LARGE, moving_delay_ms=0.0), sequence)
        chosen = []
        while cluster.offered and cluster.clock.now == 0:
            decision = scheduler.decide(cluster.observe())
            if decision is not None and cluster.observe().executor_class == 1:
                chosen.append(int(cluster.observe().stage_job[decision.stage]))
            cluster.decide(decision)
        assert chosen[0] == expected


@pytest.mark.parametrize("size", [-100.0, 100.0])
def test_extreme_weights_complete_all_jobs(size: float) -> None:
    sequence = random_sequence(np.random.default_rng(1), max_jobs=9)
    config = ClusterConfig(executor_classes=CLASSES, moving_delay_ms=40.0)
    record = run_episode(config, sequence, TunedSrpt(**dict.fromkeys(searched_weights(), size)))
    assert not np.isnan(record.completion_ms).any()
