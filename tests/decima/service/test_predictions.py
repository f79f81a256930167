"""Jobs without history are estimated from their DAGs, as in the simulator, whatever a driver says of them."""

import itertools
import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from decima.schedulers.srpt import Srpt
from decima.service.answering import _pack, _unpack
from decima.service.history import History
from decima.service.jobs import LiveJob, TrackedJobs
from decima.service.log import Answered, DecisionLog, Estimated, read_log
from decima.service.protocol import JobMessage, StageMessage
from decima.service.service import Driver, Service
from simulator.cluster import stage_times
from simulator.cluster.config import Knowledge
from simulator.cluster.estimates import dag_only, draw_estimates, has_plan
from simulator.cluster.estimator_file import read_estimator, write_estimator
from simulator.cluster.predictor import MOST_STAGES, Predictor
from simulator.cluster.stage_times import stage_features
from tests.cases import cases
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, serving
from workloads import JobProfile, JobSequence, embedded_tpch
from workloads.sources.workload_file import Workload
from workloads.spark.importing import import_event_logs

WITH_PLANS = tuple(embedded_tpch(["2g", "20g"], list(range(1, 16))))
PAST = tuple(map(dag_only, WITH_PLANS))
#: Queries that are not in the history, and other sizes of queries that are.
NEW_WITH_PLANS = tuple(embedded_tpch(["20g"], [16, 18, 21, 22]) + embedded_tpch(["100g"], [3, 9]))
NEW = tuple(map(dag_only, NEW_WITH_PLANS))


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_times, "TREES", 10)
        yield


@pytest.fixture(scope="module")
def history(few_trees: None) -> History:
    return History.of(Workload(PAST))


def a_message(profile: JobProfile, name: str | None) -> JobMessage:
    """Return a driver's message about a job that has just arrived, with all that the profile says besides times."""
    stages = (
        a_stage(
            index,
            "waiting" if parents else "ready",
            stage.num_tasks,
            parents=parents,
            operators=stage.operators,
            input_bytes=stage.input_bytes,
        )
        for index, (stage, parents) in enumerate(zip(profile.stages, profile.parents, strict=True))
    )
    return a_job(profile.name, *stages, name=name)


def tracked(history: History, *messages: JobMessage) -> list[LiveJob]:
    live = TrackedJobs(history, itertools.count(), itertools.count())
    return live.update(a_state(1, *messages, having=executors(4)))


@cases("with_plans", False, True)
@cases("from_file", False, True)
def test_service_and_simulator_predict_the_same(
    from_file: bool, with_plans: bool, few_trees: None, tmp_path: Path
) -> None:
    past, new = (WITH_PLANS, NEW_WITH_PLANS) if with_plans else (PAST, NEW)
    history = History.of(Workload(past))
    predictor = history.predictor
    assert isinstance(predictor, Predictor)
    estimator: str = "forest"
    if from_file:
        estimator = str(tmp_path / "it.npz")
        write_estimator(estimator, predictor)
        history = History(past, predictor=read_estimator(estimator))
    jobs = JobSequence(new, np.zeros(len(new)), library=past)
    simulated = draw_estimates(jobs, Knowledge(unknown=1.0, estimator=estimator))
    served = tracked(history, *(a_message(profile, profile.name) for profile in new))
    for job, estimate in zip(served, simulated, strict=True):
        assert not job.recognised
        assert job.estimate.is_predicted
        np.testing.assert_array_equal(job.estimate.task_ms, estimate.task_ms)
        for name in ("log_work", "job_var", "stage_var"):
            assert getattr(job.estimate, name) == getattr(estimate, name)
        assert job.prediction is not None
        assert job.prediction[1:] == (estimate.first_work_ms, *estimate.work_interval_ms())


def test_an_interval_contains_the_work_of_half_of_the_jobs(history: History) -> None:
    jobs = tracked(history, *(a_message(profile, None) for profile in NEW))
    for job in jobs:
        assert job.prediction is not None
        _, work_ms, low_ms, high_ms = job.prediction
        assert 0 < low_ms < work_ms < high_ms
        assert low_ms * high_ms == pytest.approx(work_ms**2)
        wider = job.estimate.work_interval_ms(90)
        assert wider[0] < low_ms
        assert wider[1] > high_ms


def test_jobs_of_one_dag_share_a_profile_unless_their_template_is_known(history: History) -> None:
    query = PAST[2]
    one, other, named = tracked(
        history,
        *(replace_id(a_message(query, name), str(index)) for index, name in enumerate(("a", "b", PAST[8].name))),
    )
    assert one.known is other.known is not named.known


def replace_id(message: JobMessage, identifier: str) -> JobMessage:
    return message.model_copy(update={"id": identifier, "plan": ("new",)})


def test_questions_about_a_job_that_has_not_changed_make_no_new_prediction(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    predict = Predictor.predict
    monkeypatch.setattr(Predictor, "predict", lambda *of_job: calls.append(of_job) or predict(*of_job))
    live = TrackedJobs(history, itertools.count(), itertools.count())
    scan = a_stage(0, tasks=100)
    for seq, done in enumerate((0, 10, 90)):
        mean_ms = 70.0 if done else None
        running = scan.model_copy(update={"done": done, "pending": 100 - done, "mean_ms": mean_ms})
        live.update(a_state(seq, a_job("new", running, name="new"), having=executors(4)))
    assert len(calls) == 1


def test_a_job_whose_plan_changes_is_estimated_anew(history: History) -> None:
    live = TrackedJobs(history, itertools.count(), itertools.count())
    scan = a_stage(0, tasks=100)

    def update(seq: int, *stages: StageMessage) -> LiveJob:
        [job] = live.update(a_state(seq, a_job("new", *stages, name="new"), having=executors(4)))
        return job

    first = update(1, scan).prediction
    assert first is not None
    assert update(2, scan.model_copy(update={"running": 5, "pending": 95})).prediction == first
    join = a_stage(1, "waiting", tasks=200, parents=(0,))
    job = update(3, scan.model_copy(update={"done": 50, "pending": 50, "mean_ms": 77.0}), join)
    assert job.prediction != first
    alone = tracked(history, a_job("new", scan, join, name="new"))[0]
    assert job.prediction == alone.prediction
    assert job.mean_ms[0] == pytest.approx(77.0, rel=0.05)  # finished tasks still count
    coalesced = update(4, scan, join.model_copy(update={"tasks": 20, "pending": 20}))
    assert coalesced.prediction != alone.prediction


def test_bytes_and_operators_of_the_history_do_not_count_if_a_driver_reports_none(
    history: History, few_trees: None
) -> None:
    with_plans = History.of(Workload(WITH_PLANS))
    for new in NEW:
        [expected], [job] = tracked(history, a_message(new, None)), tracked(with_plans, a_message(new, None))
        assert job.prediction == expected.prediction


@cases(("execution", "name"), ("static", "joined"), ("static", "words"), ("adaptive", "joined"))
def test_a_real_job_is_alike_in_a_question_of_the_plugin_and_in_its_event_log(
    execution: str, name: str, history: History
) -> None:
    """Both were recorded in one run of Spark 3.5.9: the last question about each job, and the log (slimmed)."""
    folder = Path(__file__).with_name("plugin")
    messages = json.loads((folder / f"{execution}.jobs.json").read_text())
    [served] = tracked(history, JobMessage.model_validate_json(json.dumps(messages[name])))
    imported = import_event_logs([folder / f"{execution}.events.json.gz"]).workload.profiles
    [profile] = [job for job in imported if job.name.startswith(name) and job.num_stages == served.known.num_stages]
    assert has_plan(profile)
    np.testing.assert_array_equal(served.known.edges, profile.edges)
    np.testing.assert_array_equal(stage_features(served.known), stage_features(profile))


def test_a_job_whose_operators_become_known_is_estimated_anew(few_trees: None) -> None:
    history = History.of(Workload(WITH_PLANS))
    live = TrackedJobs(history, itertools.count(), itertools.count())
    message = a_message(NEW_WITH_PLANS[0], None)
    unknown = tuple(stage.model_copy(update={"operators": (), "input_bytes": None}) for stage in message.stages)
    plain = message.model_copy(update={"stages": unknown})
    first, second = (
        live.update(a_state(seq, job, having=executors(4)))[0].prediction for seq, job in enumerate((plain, message))
    )
    [expected] = tracked(history, message)
    assert first != second == expected.prediction
    assert first is not None
    assert second is not None
    assert (first.source, second.source) == ("DAG", "plan")
    reads_nothing = a_job("new", unknown[0].model_copy(update={"input_bytes": 0, "parents": ()}))
    [job] = tracked(history, reads_nothing)
    assert job.prediction is not None
    assert job.prediction.source == "DAG"


def test_without_a_predictor_jobs_have_typical_times() -> None:
    [job] = tracked(History.of(Workload(PAST), "typical"), a_message(NEW[0], None))
    assert not job.estimate.is_predicted
    assert job.prediction is None
    assert len(set(job.mean_ms)) == 1


def test_a_model_file_needs_no_history(history: History) -> None:
    alone = History(predictor=history.predictor)
    service = Service(Srpt, alone)
    with serving(service) as where, Client(where) as client:
        client.ask(a_state(1, a_message(NEW[0], None), having=executors(4)))
        assert service._drivers[1].live._history is alone
    [job] = tracked(pickle.loads(pickle.dumps(alone)), a_message(NEW[0], None))  # for the process that answers
    expected = history.predictor.predict(job.known) if history.predictor is not None else None
    assert expected is not None
    np.testing.assert_array_equal(job.estimate.task_ms, expected.task_ms)


@cases(
    "stages",
    [a_stage(0, tasks=200_000_000)],
    [a_stage(number, tasks=1) for number in range(MOST_STAGES + 1)],
    [a_stage(number, tasks=10**5, parents=tuple(range(number))) for number in range(90)],
    [a_stage(0, "done", tasks=0)],
    [],
)
@cases("name", "\x1b[31m\x00\u202e", "9" * 1024, "q" * 1000 + "1." * 10 + "g")
def test_estimates_are_bounded_whatever_the_job_is(name: str, stages: list[StageMessage], history: History) -> None:
    began_s = time.process_time()
    [job] = tracked(history, a_job("1", *stages, name=name))
    assert time.process_time() - began_s < 5
    assert np.isfinite(job.mean_ms).all()
    assert 0 < job.estimate.first_work_ms < 1e16
    assert np.isfinite(job.log_sd).all()


def test_jobs_of_many_stages_do_not_hold_up_an_answer(history: History) -> None:
    jobs = [
        a_job(str(number), *(a_stage(1_000 * number + stage, tasks=3) for stage in range(999)), name="new")
        for number in range(5)
    ]
    driver = Driver(Srpt(), history, itertools.count(), itertools.count())
    began_s = time.process_time()
    driver.live.update(a_state(1, *jobs, having=executors(4)))
    assert time.process_time() - began_s < 5


def test_the_log_says_what_was_estimated_from_a_dag(history: History, tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "it.jsonl", "srpt")
    known, new = a_message(PAST[0], PAST[0].name), a_message(NEW[0], "new")
    grown = new.model_copy(update={"stages": (*new.stages, a_stage(99, "waiting", tasks=7, parents=(0,)))})
    with serving(Service(Srpt, history, watchers=[log])) as where, Client(where) as client:
        for seq, jobs in enumerate([(known, new), (known, new), (known, grown)]):
            client.ask(a_state(seq + 1, *jobs, having=executors(4)))
    log.close()
    estimates = [line.estimates for line in read_log(tmp_path / "it.jsonl") if isinstance(line, Answered)]
    [[first], nothing, [second]] = estimates[0] or (), estimates[1], estimates[2] or ()
    assert nothing is None
    assert isinstance(first, Estimated)
    assert first.job == second.job == new.id
    assert first.source == second.source == "DAG"
    [job] = tracked(history, new)
    assert job.prediction == (first.source, first.work_ms, first.low_ms, first.high_ms)
    assert first != second


def test_watchers_in_another_process_receive_estimates(history: History) -> None:
    new = a_message(NEW[0], None)
    [job] = tracked(history, new)
    received = _unpack({new.id: new}, *pickle.loads(pickle.dumps(_pack(job))))
    assert received.prediction == job.prediction
    assert received.tasks == job.tasks
