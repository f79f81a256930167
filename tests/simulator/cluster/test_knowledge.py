"""Schedulers see estimates with their uncertainty, and no true value that was not observed."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.schedulers import Fair, Fifo
from simulator import Cluster, ClusterConfig, ConfigError, Observation, run_episode
from simulator.cluster.config import EXACT, Knowledge
from simulator.cluster.engine.posterior import TASK_VAR, posterior, records
from simulator.cluster.estimates import STEP, Estimate, draw_estimates, from_history, typical_durations
from tests.simulator.cluster.build import chain, finish, give, greedy, job, jobs, stage
from workloads import JobProfile, StageProfile, TaskDurations, batch_arrivals, synthetic_profiles
from workloads.arrivals import JobSequence, WorkPrior

PRIOR = WorkPrior(8.0, 1.0, 3.0, 0.7, 0.9)
ERRORS = Knowledge(job_error=1.0, stage_error=0.5, task_count_error=0.5, unknown=0.3)


def longer(profile: JobProfile, factor: float) -> JobProfile:
    """Return the same job with task durations multiplied by a factor."""
    return job(*(stage(each.num_tasks, each.durations.mean_ms * factor) for each in profile.stages))


def observations(config: ClusterConfig, sequence: JobSequence) -> list[Observation]:
    """Return copies of all observations of an episode."""
    cluster, seen = Cluster(config, sequence), []
    while not cluster.done:
        seen.append(cluster.observe().copy())
        cluster.decide(greedy(seen[-1]) if seen[-1].num_schedulable else None)
    return seen


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.floats(0.0, 4.0),
    st.floats(0.0, 4.0),
    st.lists(st.tuples(st.integers(0, 30), st.floats(0.1, 10.0)), min_size=1, max_size=5),
)
def test_the_posterior_is_that_of_a_linear_gaussian_model(
    job_var: float, stage_var: float, seen: list[tuple[int, float]]
) -> None:
    """Compare with the joint distribution of all logarithms, conditioned on observations by general linear algebra."""
    size = len(seen)
    profile = job(*(stage(40, 100.0) for _ in seen))
    belief, rows = records(Estimate(profile, np.full(size, 100.0), 0.0, job_var, stage_var, is_scaled=True))
    for row, (tasks, factor) in zip(rows, seen, strict=True):
        row["finished"], row["finished_ms"] = tasks, tasks * factor * 100.0
    posterior(belief, rows)

    prior = np.full((size + 1, size + 1), job_var)  # covariance of the factors of the stages, and of the job
    prior[:size, :size] += np.eye(size) * stage_var
    known = [place for place, (tasks, _) in enumerate(seen) if tasks]
    noise = np.diag([TASK_VAR / seen[place][0] for place in known])
    gain = prior[:, known] @ np.linalg.inv(prior[np.ix_(known, known)] + noise)
    mean = gain @ np.log([seen[place][1] for place in known])
    variance = np.diag(prior - gain @ prior[known]).clip(0)
    assert np.log(rows["mean_ms"] / 100.0) == pytest.approx(mean[:size], abs=1e-9)
    assert rows["log_sd"] ** 2 == pytest.approx(variance[:size], abs=1e-9)
    assert belief["log_factor"][0] == pytest.approx(mean[size], abs=1e-9)
    assert belief["log_sd"][0] ** 2 == pytest.approx(variance[size], abs=1e-9)


def test_history_and_workload_are_weighed_by_their_precision() -> None:
    # Two jobs with an estimate of 1 s: the variance in history is 1, as is that of the workload around exp(8) ms.
    told = from_history(job(stage(10, 100.0)), PRIOR, Knowledge(job_error=1.0))
    assert (told.log_work, told.job_var) == (pytest.approx((math.log(1000.0) + 8.0) / 2), pytest.approx(0.5))
    alone = from_history(job(stage(10, 100.0)), None, Knowledge(job_error=1.0))
    assert [alone.log_work, alone.job_var] == pytest.approx([math.log(1000.0), 1.0])
    told = from_history(job(stage(10, 100.0), stage(10, 1.0)), PRIOR, Knowledge(stage_error=0.9))
    mean = math.log(50.5)
    assert np.log(told.task_ms) == pytest.approx([(math.log(100.0) + mean) / 2, mean / 2])
    assert [told.job_var, told.stage_var] == pytest.approx([0.0, 0.81 / 2])


def test_estimates_follow_workload_and_errors() -> None:
    profiles = (job(stage(10, 100.0)), job(stage(1, 10.0), stage(3, 30.0)))
    prior = WorkPrior.of(profiles)
    work, task = np.log([1000.0, 100.0]), np.log([100.0, 25.0])
    assert [prior.mean_log_ms, prior.task_log_ms] == pytest.approx([work.mean(), task.mean()])
    apart = (np.log([0.4, 1.2]) ** 2 @ [1, 3]) / 4
    # As if there were a third job, a factor of e away.
    variances = [(2 * each.var() + 1) / 3 for each in (work, task)] + [(apart + 1) / 3]
    found = np.array([prior.sd_log, prior.task_sd_log, prior.stage_sd_log])
    assert found**2 == pytest.approx(variances)
    assert batch_arrivals(profiles, 3, seed=0).work_prior == prior
    assert jobs(profiles[0]).work_prior == WorkPrior.of(profiles[:1])
    sequence = batch_arrivals(synthetic_profiles(6), 40, seed=4)
    sequence = replace(sequence, prior=WorkPrior(8.0, 1e6))  # an uninformative prior
    true = np.array([profile.work_ms for profile in sequence.profiles])
    small, large = (
        np.log([each.first_work_ms for each in draw_estimates(sequence, Knowledge(job_error=sigma))] / true)
        for sigma in (0.25, 1.0)
    )
    assert large == pytest.approx(4 * small)
    assert abs(large.mean()) < 0.5
    assert 0.7 < large.std() < 1.3


def test_all_schedulers_meet_the_same_errors() -> None:
    config, sequence = ClusterConfig(5, knowledge=ERRORS), batch_arrivals(synthetic_profiles(6), 8, seed=4)
    first = []
    for scheduler in (Fair(), Fifo()):
        seen: list[Observation] = []

        class Notes(type(scheduler)):  # type: ignore[misc]
            def decide(self, observation: Observation) -> object:
                seen.append(observation.copy())  # noqa: B023
                return super().decide(observation)

        run_episode(config, sequence, Notes())
        first.append(seen[0])
    assert first[0].stages.tobytes() == first[1].stages.tobytes()
    assert first[0].profiles == first[1].profiles


def test_certainty_grows_with_each_finished_task() -> None:
    told = from_history(job(stage(50, 100.0), stage(50, 20.0)), PRIOR, Knowledge(1.0, 1.0))
    before = (math.inf, math.inf)
    for tasks in range(40):
        belief, rows = records(told)
        rows["finished"], rows["finished_ms"] = (tasks, 0), (tasks * 300.0, 0.0)
        posterior(belief, rows)
        now = float(belief["log_sd"][0]), float(rows["log_sd"][0])
        assert max(now) < math.inf
        assert now[0] < before[0]
        assert now[1] < before[1]
        before = now
    assert rows["mean_ms"][0] == pytest.approx(300.0, rel=0.02)
    assert rows["mean_ms"][1] > told.task_ms[1]  # a slow first stage makes a slow second one likely


def test_estimates_of_work_that_goes_on_and_of_unknown_jobs() -> None:
    told = from_history(job(stage(50, 100.0)), None, Knowledge(job_error=1.0))

    def mean_ms(running_ms: float) -> float:
        belief, rows = records(told)
        rows["finished"], rows["finished_ms"] = 1, 100.0
        rows["running"], rows["running_ms"] = 2, 2 * running_ms
        posterior(belief, rows)
        return float(rows["mean_ms"][0])

    assert mean_ms(0.0) == mean_ms(99.0) == pytest.approx(100.0)
    assert mean_ms(400.0) == pytest.approx(math.exp(math.log(300.0) * 12 / 13 + math.log(100.0) / 13))
    slow, fast = job(stage(4, 900.0), stage(2, 9.0)), job(stage(4, 5.0), stage(2, 700.0))
    config = ClusterConfig(3, knowledge=Knowledge(unknown=1.0))
    sequence = replace(jobs(slow, fast), prior=PRIOR)
    seen = Cluster(config, sequence).observe()
    assert seen.mean_task_ms == pytest.approx([math.exp(3.0)] * 4)
    assert seen.job_log_sd == pytest.approx([0.7] * 2)
    assert seen.log_sd == pytest.approx([math.hypot(0.7, 0.9)] * 4)
    times = [[each.durations.mean_ms for each in profile.stages] for profile in seen.profiles]
    assert times[0] == times[1]
    sequence = batch_arrivals(synthetic_profiles(6), 6, seed=1)
    seen = observations(ClusterConfig(4, knowledge=Knowledge(job_error=2.0)), sequence)
    profiles = [profile for each in seen for profile in each.profiles]
    assert len({id(profile) for profile in profiles}) > 6
    steps = np.log([profile.work_ms for profile in profiles]) / math.log(STEP)
    assert steps == pytest.approx(np.round(steps), abs=1e-6)
    first = np.log([profile.work_ms for profile in seen[0].profiles])
    assert np.log(seen[0].job_first_work_ms) == pytest.approx(first, abs=math.log(STEP) / 2 + 1e-9)
    for before, after in pairwise(seen):
        if before.profiles == after.profiles:
            assert before.profiles is after.profiles


def test_nothing_of_the_truth_shows() -> None:
    """Tasks longer by a factor, with an error smaller by this factor, give the same observations."""
    profile, knowledge = job(stage(9, 80.0), stage(4, 30.0)), Knowledge(job_error=1.0)

    def factor(seed: int) -> float:
        plain = replace(jobs(profile, seed=seed), prior=WorkPrior(8.0, 1e9))
        return draw_estimates(plain, knowledge)[0].first_work_ms / profile.work_ms

    seen = []
    for seed in (1, 2):
        other = longer(profile, factor(1) / factor(seed))
        sequence = replace(jobs(other, seed=seed), prior=PRIOR)
        seen.append(Cluster(ClusterConfig(3, knowledge=knowledge), sequence).observe())
    one, two = seen
    for name in one.stages.dtype.names or ():
        assert one.stages[name] == pytest.approx(two.stages[name], rel=1e-9), name
    assert one.job_first_work_ms == pytest.approx(two.job_first_work_ms, rel=1e-9)
    assert [each.durations.mean_ms for each in one.profiles[0].stages] == pytest.approx(
        [each.durations.mean_ms for each in two.profiles[0].stages], rel=1e-9
    )


def test_typical_durations_and_attained_service() -> None:
    waves = TaskDurations.from_tables({}, {1: [30.0], 4: [60.0]}, {1: [10.0], 4: [20.0]}, mean_ms=10.0)
    typical = typical_durations((job(StageProfile(3, waves)), job(StageProfile(5, waves))))
    assert (typical.mean_ms, typical.cells.shape) == (1.0, waves.cells.shape)
    assert typical.values.tolist() == pytest.approx([3.0, 6.0, 1.0, 2.0])
    seen = observations(ClusterConfig(3), jobs(chain(stage(6, 10.0), stage(2, 5.0)), job(stage(4, 7.0))))
    for each in seen:
        assert each.finished_ms == pytest.approx(each.finished_tasks * each.mean_task_ms)
        work = np.bincount(each.stage_job, each.finished_ms, len(each.jobs))
        assert each.job_attained_ms == pytest.approx(work)
    assert any(each.job_attained_ms.any() for each in seen)
    assert str(EXACT) == ""
    errors = "errors of estimates 1 (jobs), 0.5 (stages)"
    unknown = "30% of jobs unknown, their task times by estimator forest"
    assert str(Knowledge(1.0, 0.5, 0.0, 0.3)) == f"{errors}, {unknown}"


def test_exact_estimates_and_numbers_of_tasks_are_known() -> None:
    sequence = batch_arrivals(synthetic_profiles(6), 6, seed=1)
    exact = observations(ClusterConfig(4), sequence)
    counted = observations(ClusterConfig(4, knowledge=Knowledge(task_count_error=1.0)), sequence)
    assert EXACT.is_exact
    assert not exact[0].log_sd.any()
    assert not exact[0].job_log_sd.any()
    assert exact[0].mean_task_ms.tobytes() == counted[0].mean_task_ms.tobytes()
    assert not counted[0].log_sd.any()
    some = observations(ClusterConfig(4, knowledge=Knowledge(unknown=0.5)), sequence)[0]
    known = [place for place, sd in enumerate(some.job_log_sd) if sd == 0]
    assert 0 < len(known) < 6
    for place in known:
        assert some.profiles[place] is exact[0].profiles[place]
        assert some.job_first_work_ms[place] == pytest.approx(exact[0].job_first_work_ms[place])
    profile = chain(stage(20, 10.0), stage(20, 10.0))
    config = ClusterConfig(20, moving_delay_ms=0.0, knowledge=Knowledge(task_count_error=1.0))
    cluster = Cluster(config, jobs(profile))
    seen = cluster.observe()
    later = int(seen.num_tasks[1])
    assert seen.num_tasks[0] == 20
    assert later == seen.remaining_tasks[1] == seen.unclaimed_tasks[1] == seen.profiles[0].stages[1].num_tasks
    assert later != 20
    cluster.decide(give(seen, 0))
    while cluster.observe().ready_rank[1] < 0:
        cluster.decide(None)
    assert cluster.observe().num_tasks.tolist() == [20, 20]
    finish(cluster)


def test_futures_have_the_same_estimates_and_other_task_times() -> None:
    sequence = batch_arrivals(synthetic_profiles(6), 6, seed=1)
    cluster = Cluster(ClusterConfig(4, knowledge=ERRORS), sequence)
    for _ in range(5):
        cluster.decide(greedy(cluster.observe()))
    fork = cluster.fork(futures=7)
    one, other = cluster.observe(), fork.observe()
    assert one.stages.tobytes() == other.stages.tobytes()
    assert one.profiles == other.profiles
    cluster = Cluster(
        ClusterConfig(1, knowledge=Knowledge(job_error=0.8)),
        replace(jobs(job(stage(1, 10.0)), job(stage(2, 100.0)), at=[0.0, 5.0], seed=5), prior=PRIOR),
    )
    told = draw_estimates(cluster.sequence, cluster.config.knowledge)[1]
    logs = np.log([redrawn_ms(cluster, futures)[1] for futures in range(200)])
    assert logs.mean() == pytest.approx(math.log(told.task_ms[0]), abs=3 * math.sqrt(told.job_var / 200))
    assert logs.std() == pytest.approx(math.sqrt(told.job_var), rel=0.15)
    cluster, observed = with_history(), with_history()
    observed.observe()
    before = [each.tobytes() for each in cluster._memory]
    one, same, other = (cluster.fork(futures) for futures in (3, 3, 4))
    assert [each.tobytes() for each in cluster._memory] == before
    one.decide(greedy(one.observe()))
    factors = [
        forked._state.stages["factor"][:3].tolist() for forked in (one, same, other, one.fork(), observed.fork(3))
    ]
    assert factors[0] == factors[1] == factors[3] == factors[4] != factors[2]
    assert len(set(factors[0])) == 3
    assert set(cluster._state.stages["factor"].tolist()) == {1.0}
    cluster = with_history(Knowledge(task_count_error=1.0))
    assert {tuple(redrawn_ms(cluster, futures)) for futures in range(5)} == {(100.0, 100.0, 100.0, 40.0)}


def redrawn_ms(cluster: Cluster, futures: int) -> np.ndarray:
    """Return the time of the last task of each stage in a fork, float64 [stages], ms."""
    record, _ = finish(cluster.fork(futures))
    tasks = record.tasks().groupby(["job", "stage"]).last()
    return (tasks["finish_ms"] - tasks["start_ms"]).to_numpy()


def with_history(knowledge: Knowledge = ERRORS) -> Cluster:
    """Return a cluster at 450 ms: the first of three equal stages has finished eight tasks, and a job arrives."""
    like = job(*[stage(12, 100.0)] * 3)
    config = ClusterConfig(3, moving_delay_ms=0.0, knowledge=knowledge)
    sequence = replace(jobs(like, job(stage(3, 40.0)), at=[0.0, 450.0], seed=5), prior=PRIOR)
    cluster = Cluster(config, sequence)
    cluster.decide(give(cluster.observe(), 0, 2))
    cluster.decide(None)
    return cluster


def test_forks_have_task_times_of_the_posterior_and_not_the_true_ones() -> None:
    """Mean, variance and covariance of logarithms, given eight tasks of the first stage."""
    cluster = with_history(Knowledge(job_error=0.8, stage_error=0.4))
    seen = cluster.observe()
    assert seen.finished_tasks.tolist() == [8, 0, 0, 0]
    logs = np.log([redrawn_ms(cluster, futures) for futures in range(200)])
    error = seen.log_sd / math.sqrt(200)
    assert (np.abs(logs.mean(axis=0) - np.log(seen.mean_task_ms)) < 3 * error).all()
    assert (np.abs(math.log(100.0) - np.log(seen.mean_task_ms[1:3])) > 4 * error[1:3]).all()
    assert logs.std(axis=0) == pytest.approx(seen.log_sd, rel=0.15)
    covariance = np.cov(logs.T)
    assert covariance[1, 2] == pytest.approx(seen.job_log_sd[0] ** 2, rel=0.4)
    assert abs(covariance[1, 3]) < 0.05
    work = np.exp(logs) @ seen.remaining_tasks
    mean = seen.remaining_tasks @ (seen.mean_task_ms * np.exp(seen.log_sd**2 / 2))
    assert abs(work.mean() - mean) < 3 * work.std() / math.sqrt(200)


@pytest.mark.parametrize("name", ["job_error", "stage_error", "task_count_error", "unknown"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, 5.1, "1"])
def test_errors_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected .*, got [^\n]*$"):
        Knowledge(**{name: value})
