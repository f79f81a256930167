"""Predictions for jobs without history by forests that have not seen the job's template."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.schedulers import Fair
from simulator import ClusterConfig, run_episode
from simulator.cluster import predictor as of_workload
from simulator.cluster.config import Knowledge
from simulator.cluster.estimates import draw_estimates, without_history
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.predictor import GROUPS, Predictor, predictor_of, template_keys, templates
from simulator.cluster.stage_times import Forest, Prediction
from tests.cases import cases
from workloads import JobProfile, StageProfile, TaskDurations, batch_arrivals, embedded_tpch, scaled, trace_arrivals
from workloads.arrivals import WorkPrior
from workloads.sources.alibaba import read_alibaba
from workloads.sources.published_tpch import load_tpch
from workloads.sources.synthetic import random_dag

QUERIES = embedded_tpch(sizes=["2g", "20g"])


def job(name: str, seed: int, noise: float = 0.0) -> JobProfile:
    """Return a random DAG whose task times depend on numbers of tasks and parents, up to noise."""
    random = np.random.default_rng(seed)
    edges, num_tasks = random_dag(6, random), random.integers(1, 200, size=6)
    task_ms = (
        100.0 * num_tasks * (1 + np.bincount(edges[:, 1], minlength=6)) * np.exp(noise * random.standard_normal(6))
    )
    stages = [
        StageProfile(count, TaskDurations.constant(ms))
        for count, ms in zip(num_tasks.tolist(), task_ms.tolist(), strict=True)
    ]
    return JobProfile(name, tuple(stages), edges)


def with_times(profile: JobProfile, factor: float) -> JobProfile:
    return scaled(profile, durations=factor)


def fitted(profiles: Sequence[JobProfile]) -> Predictor:
    predictor = predictor_of(tuple(profiles))
    assert predictor is not None
    return predictor


def predicted(predictor: Predictor, profile: JobProfile) -> Prediction:
    prediction = predictor.predict(profile)
    assert prediction is not None
    return prediction


def test_sizes_of_a_query_and_equal_dags_are_one_template() -> None:
    q7_small, q7_large, q21 = embedded_tpch(["2g", "100g"], [7])[0], embedded_tpch(["100g"], [7])[0], QUERIES[20]
    order = np.random.default_rng(0).permutation(q21.num_stages)
    index = np.argsort(order)
    reordered = JobProfile("other name", tuple(q21.stages[stage] for stage in order), index[q21.edges])
    more_tasks = replace(scaled(q21, tasks=3), name="another name")
    numbered = replace(scaled(q21, tasks=5), name="another name (12)")
    keys = [template_keys(profile) for profile in (q7_small, q21, q7_large, reordered, more_tasks, numbered)]
    assert templates(keys) == [0, 1, 0, 1, 2, 2]


def test_times_that_follow_from_the_dag_are_predicted_for_other_dags() -> None:
    jobs = [job(f"job {seed}", seed) for seed in range(120)]
    predictor, unseen = fitted(jobs[:100]), jobs[100:]
    true = np.log([profile.work_ms for profile in unseen])
    tasks = [[stage.num_tasks for stage in profile.stages] for profile in unseen]
    log_work = np.log(
        [predicted(predictor, profile).task_ms @ count for profile, count in zip(unseen, tasks, strict=True)]
    )
    assert np.std(log_work - true) < 0.3 * np.std(true)


def test_a_prediction_does_not_know_the_jobs_of_its_template() -> None:
    predictor = fitted(QUERIES)
    slow_q7 = tuple(with_times(profile, 50.0) if "-q7-" in profile.name else profile for profile in QUERIES)
    with_slow_q7 = fitted(slow_q7)
    for index in (6, 28):
        assert "-q7-" in QUERIES[index].name
        expected = predicted(predictor, QUERIES[index]).task_ms
        np.testing.assert_array_equal(predicted(with_slow_q7, slow_q7[index]).task_ms, expected)
    others = [index for index in range(22) if index != 6]
    assert any(
        not np.array_equal(
            predicted(with_slow_q7, QUERIES[index]).task_ms, predicted(predictor, QUERIES[index]).task_ms
        )
        for index in others
    )


def test_a_prediction_depends_on_neither_times_nor_the_order_of_stages() -> None:
    predictor, q21 = fitted(QUERIES), QUERIES[20]
    expected = predicted(predictor, q21)
    np.testing.assert_array_equal(predicted(predictor, with_times(q21, 7.0)).task_ms, expected.task_ms)
    order = np.random.default_rng(1).permutation(q21.num_stages)
    reordered = replace(q21, stages=tuple(q21.stages[stage] for stage in order), edges=np.argsort(order)[q21.edges])
    again = predicted(predictor, reordered)
    np.testing.assert_allclose(again.task_ms, expected.task_ms[order], rtol=1e-12)
    assert again.job_var == pytest.approx(expected.job_var)


def within(predictor: Predictor, profiles: Sequence[JobProfile], share: Literal[50, 90]) -> float:
    """Return the share of jobs whose work is in the interval of the prediction."""
    prior = WorkPrior.of(tuple(profiles))
    intervals = [without_history(profile, prior, None, predictor).work_interval_ms(share) for profile in profiles]
    return float(
        np.mean([low <= profile.work_ms <= high for profile, (low, high) in zip(profiles, intervals, strict=True)])
    )


def test_intervals_contain_as_many_new_jobs_as_they_should() -> None:
    jobs = [job(f"job {seed}", seed, noise=0.5) for seed in range(260)]
    predictor = fitted(jobs[:100])
    assert 0.40 < within(predictor, jobs[100:], 50) < 0.60
    assert 0.80 < within(predictor, jobs[100:], 90) < 0.98


@cases("templates", 5, 10, 22)
def test_intervals_hold_for_few_templates(templates: int) -> None:
    """The jobs of a template share most of their error, so that many sizes of few queries are few errors."""

    def errors(random: np.random.Generator, template: NDArray[np.int64]) -> NDArray[np.float64]:
        of_jobs = random.normal(0, 0.5, template.max() + 1)[template] + random.normal(0, 0.1, len(template))
        return np.stack([of_jobs, np.full(len(template), 0.05), np.full(len(template), 0.1)], axis=1)

    template, shares = np.repeat(np.arange(templates), 3), []
    for seed in range(200):
        random = np.random.default_rng(seed)
        measured = errors(random, template)
        job_var, _ = of_workload._variances(measured)
        half_widths = of_workload._half_widths(measured, template, job_var)
        others = of_workload._deviation(errors(random, np.arange(100)), job_var)
        shares.append((others[:, None] <= half_widths).mean(axis=0))
    within_50, within_90 = np.mean(shares, axis=0)
    assert 0.45 <= within_50 <= 0.55
    assert 0.85 <= within_90 <= 0.95


def within_their_intervals(profiles: Sequence[JobProfile]) -> tuple[float, float]:
    """Return the shares of a workload's jobs in their 50 and 90 % intervals, from forests without their templates."""
    predictor = fitted(profiles)
    return within(predictor, profiles, 50), within(predictor, profiles, 90)


def test_intervals_fit_the_held_out_queries_of_tpch(shared: Callable[[str], Path]) -> None:
    for profiles in (embedded_tpch(), load_tpch(shared("tpch"))):
        within_50, within_90 = within_their_intervals(profiles)
        assert 0.45 <= within_50 <= 0.55
        assert 0.85 <= within_90 <= 0.95


@pytest.mark.slow
def test_intervals_fit_the_held_out_jobs_of_a_trace(shared: Callable[[str], Path]) -> None:
    trace = read_alibaba(shared("traces/alibaba2018_dag_tasks/selected_DAGs.csv.gz"))
    within_50, within_90 = within_their_intervals(trace.profiles)
    assert 0.45 <= within_50 <= 0.55
    assert 0.85 <= within_90 <= 0.95


def chain(tasks: int, stages: int = 3) -> JobProfile:
    edges = np.array([[stage, stage + 1] for stage in range(stages - 1)])
    return JobProfile("chain", (StageProfile(tasks, TaskDurations.constant(1.0)),) * stages, edges)


def test_a_dag_unlike_those_of_the_fit_is_less_certain() -> None:
    predictor = fitted(QUERIES)
    usual = np.median([predicted(predictor, profile).job_var for profile in QUERIES])
    assert predicted(predictor, chain(1_000)).job_var > 1.5 * usual


def test_operators_of_a_kind_that_no_job_of_the_fit_has_are_unlike_the_fit() -> None:
    predictor, q1 = fitted(QUERIES), QUERIES[0]
    scan, *others = q1.stages
    unusual, strange = (
        replace(q1, stages=(replace(scan, operators=(*scan.operators, *names)), *others))
        for names in (["An operator of the future"], ["BatchEvalPython"] * 2)
    )
    assert predictor.predict(unusual) is not None
    assert predictor.predict(strange) is None


@cases("strange", chain(100_000_000), chain(1, 200), chain(1, of_workload.MOST_STAGES + 1))
def test_a_job_far_outside_of_the_fit_has_typical_times(strange: JobProfile) -> None:
    predictor, prior = fitted(QUERIES), WorkPrior.of(tuple(QUERIES))
    assert predictor.predict(strange) is None
    estimate, typical = without_history(strange, prior, None, predictor), without_history(strange, prior)
    np.testing.assert_array_equal(estimate.task_ms, typical.task_ms)
    assert not estimate.is_predicted
    assert without_history(QUERIES[0], prior, None, predictor).is_predicted


def test_too_few_templates_have_no_predictor_and_jobs_get_typical_times() -> None:
    assert predictor_of(QUERIES[:4]) is None
    few = batch_arrivals(QUERIES[:4], 4, seed=0)
    typical, forest = (draw_estimates(few, Knowledge(unknown=1.0, estimator=name)) for name in ("typical", "forest"))
    for one, other in zip(typical, forest, strict=True):
        np.testing.assert_array_equal(one.task_ms, other.task_ms)


def test_unknown_jobs_are_estimated_by_the_forest_and_known_ones_are_not() -> None:
    jobs = batch_arrivals(QUERIES, 30, seed=3)
    exact = draw_estimates(jobs, Knowledge())
    half = draw_estimates(jobs, Knowledge(unknown=0.5, estimator="forest"))
    predictor = predictor_of(jobs.library)
    assert predictor is not None
    num_predicted = 0
    for estimate, true, profile in zip(half, exact, jobs.profiles, strict=True):
        prediction = predicted(predictor, profile)
        if estimate.job_var > 0:
            num_predicted += 1
            np.testing.assert_array_equal(estimate.task_ms, prediction.task_ms)
            assert (estimate.job_var, estimate.stage_var) == (prediction.job_var, prediction.stage_var)
            assert [stage.durations.mean_ms for stage in estimate.profile.stages] == pytest.approx(prediction.task_ms)
        else:
            np.testing.assert_array_equal(estimate.task_ms, true.task_ms)
    assert 8 <= num_predicted <= 22


def test_the_estimator_changes_nothing_without_unknown_jobs() -> None:
    jobs = batch_arrivals(QUERIES, 8, seed=1)
    records = [
        run_episode(ClusterConfig(10, knowledge=Knowledge(job_error=0.5, estimator=name)), jobs, Fair())
        for name in ("typical", "forest")
    ]
    np.testing.assert_array_equal(records[0].completion_ms, records[1].completion_ms)


def test_jobs_are_predicted_when_they_arrive_and_not_at_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, predicted_jobs, decisions = batch_arrivals(QUERIES, 6, seed=1), [], []
    predict = Predictor.predict
    fitted_to_all = predictor_of(jobs.library)

    def count(self: Predictor, profile: JobProfile) -> Prediction | None:
        predicted_jobs.append(profile)
        return predict(self, profile)

    class Counting(Fair):
        def decide(self, observation: Observation) -> Decision | None:
            decisions.append(len(predicted_jobs))
            return super().decide(observation)

    monkeypatch.setattr(Predictor, "predict", count)
    assert fitted_to_all is not None
    knowledge = Knowledge(unknown=1.0, estimator=fitted_to_all)
    run_episode(ClusterConfig(10, knowledge=knowledge), jobs, Counting())
    assert len(decisions) > 20
    assert set(decisions) == {len(jobs)}


def test_a_sequence_from_a_trace_predicts_by_its_own_jobs() -> None:
    jobs = trace_arrivals([QUERIES[0], QUERIES[1], QUERIES[0]], [0.0, 1.0, 2.0])
    assert jobs.library == (QUERIES[0], QUERIES[1])
    assert len(set(templates([template_keys(query) for query in QUERIES]))) > GROUPS


def test_of_a_large_workload_some_jobs_of_each_template_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_workload, "MOST_JOBS", 40)
    many = tuple(QUERIES) + tuple(replace(QUERIES[20], name=f"copy {index}") for index in range(400))
    sizes = []
    fit = of_workload.fit_forest

    def fit_and_count(profiles: Sequence[JobProfile]) -> Forest:
        sizes.append(len(profiles))
        return fit(profiles)

    monkeypatch.setattr(of_workload, "fit_forest", fit_and_count)
    predictor = fitted(many)
    assert max(sizes) <= 40
    assert len(set(templates([template_keys(job) for job in many]))) <= max(sizes)  # at least one job of each
    assert predicted(predictor, many[-1]).task_ms.shape == (many[-1].num_stages,)
