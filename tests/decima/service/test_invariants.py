"""Invariants of all questions and replays, and limits of the service."""

import itertools

import numpy as np
import pytest

from decima.registry import make_scheduler
from decima.schedulers.base import Scheduler
from decima.service import page as pages
from decima.service.history import History
from decima.service.jobs import TrackedJobs
from decima.service.log import Answered, Line, Question, Started, Welcomed
from decima.service.protocol import Answer, ExecutorMessage, JobMessage, StageOrder
from decima.service.replay import Replayed, live_report, replayed
from decima.service.server import ServeError
from decima.service.service import Driver
from simulator import ClusterConfig, Decision, Observation
from tests.decima.service.scripted_cluster import Application
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import a_job, a_stage, a_state, executors
from tests.decima.service.test_applications import Shares, a_profile, shared, work
from tests.decima.service.test_driver import PROFILES, SEQUENCES, SLOTS, arriving
from tests.decima.service.test_page import a_page, get
from tests.decima.service.test_server import listen_briefly


class Checked(Scheduler):
    """Checks the observations of another scheduler, and returns its decisions."""

    def __init__(self, name: str) -> None:
        self.scheduler, self.asked, self.sources = make_scheduler(name), 0, set[int]()
        self._last: Observation | None = None

    def reset(self, config: ClusterConfig) -> None:
        self.scheduler.reset(config)

    def decide(self, seen: Observation) -> Decision | None:
        self.asked += 1
        self.sources.add(seen.source)
        held = seen.jobs["executors"]
        assert (held >= 0).all()
        free = seen.offered if seen.source < 0 else 0
        assert held.sum() + free <= seen.num_executors, "no executor is of two jobs"
        if seen.source >= 0:
            assert seen.offered <= held[seen.source], "what is offered is what the source holds"
        assert seen.num_schedulable == seen.schedulable.sum()
        assert (seen.unclaimed_tasks[seen.schedulable] > 0).all()
        ready = seen.ready_rank >= 0
        ranks = set(zip(seen.stage_job[ready].tolist(), seen.ready_rank[ready].tolist(), strict=True))
        assert len(ranks) == ready.sum(), "stages of a job become ready one after the other"
        for job, stage in enumerate(seen.next_stage.tolist()):
            mine = np.flatnonzero(seen.schedulable & (seen.stage_job == job))
            first = mine[seen.ready_rank[mine] >= 0]
            if not mine.size:
                assert stage == -1
            elif first.size:
                assert stage == first[np.argmin(seen.ready_rank[first])]
            else:
                assert stage == mine[0]
        return self.scheduler.decide(seen)


@pytest.mark.parametrize("policy", ["fair", "srpt"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_scheduler_is_shown_each_executor_once(policy: str, hidden: bool) -> None:
    sequence, checked = SEQUENCES["stream"][1], Checked(policy)
    serving = Driver(checked, History(PROFILES if hidden else ()), itertools.count(), itertools.count())
    ScriptedSpark(arriving(sequence), lambda state: serving.decide(state).answer, SLOTS, hidden=hidden).run()
    assert checked.asked > 50
    assert {-1, 0, 1} <= checked.sources


@pytest.mark.parametrize("policy", ["fair", "srpt"])
def test_where_applications_share_slots_each_is_shown_once_too(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Checked] = []

    def make(name: str) -> Checked:
        checked.append(Checked(name))
        return checked[-1]

    monkeypatch.setattr("tests.decima.service.test_applications.make_scheduler", make)
    sizes = [(60, 400.0, 9), (9, 3000.0, 3), (40, 400.0, 1), (20, 3000.0, 8)]
    applications = [
        Application(f"app-{number}", 4000.0 * number, [a_profile(*each), a_profile(*each)])
        for number, each in enumerate(sizes)
    ]
    cluster = shared(applications, policy, slots=7)
    assert cluster.tasks == sum(profile.num_tasks for each in applications for profile in each.profiles)
    assert max(len(each.sources) for each in checked) > 2


def test_stages_are_ranked_and_executors_on_their_way_waited_for() -> None:
    # The ranks are over all jobs, not by stage number. A stage that is not ready or does not exist yet has no rank.
    live = TrackedJobs(History(), itertools.count(), itertools.count())

    def ranks(seq: int, *states: str) -> list[list[int]]:
        stages = [a_stage(number, state) for number, state in enumerate(states)]
        jobs = live.update(a_state(seq, a_job("a", *stages[:3]), a_job("b", *stages[3:]), having=executors(2)))
        return [job.ranks for job in jobs]

    assert ranks(1, "waiting", "ready", "waiting", "waiting") == [[-1, 0, -1], [-1]]
    assert ranks(2, "waiting", "ready", "ready", "waiting") == [[-1, 0, 1], [-1]]
    assert ranks(3, "waiting", "done", "ready", "ready", "waiting") == [[-1, 0, 1], [2, -1]]
    assert ranks(4, "ready", "done", "ready", "ready", "ready") == [[3, 0, 1], [2, 4]]
    # One of four executors has registered, and there is work for only one: the final number is still unknown.
    shares = Shares()
    assert shares.ask("one", work()) == 4
    last = a_job("a", a_stage(1, tasks=2, done=1, running=1))
    shares.now_s += 1.0
    assert shares.ask("one", last, running=1) == 4
    shares.now_s += 100.0
    assert shares.ask("one", last, running=1) == 1


def by_hand(*lines: Line) -> Replayed:
    [found] = replayed(
        [
            Started(policy="p", shadow=False, time_ms=0.0),
            Welcomed(driver=1, application="app-1", name="etl", spark="3.5.9", time_ms=0.0),
            *lines,
        ]
    )
    return found


def asked(
    time_ms: float, *jobs: JobMessage, having: tuple[ExecutorMessage, ...] | None = None, gone: tuple[str, ...] = ()
) -> Question:
    return Question(driver=1, seq=int(time_ms), time_ms=time_ms, jobs=jobs, executors=having, gone=gone)


def answered(*orders: tuple[int, int]) -> Answered:
    stages = tuple(StageOrder(id=stage, slots=slots) for stage, slots in orders)
    return Answered(driver=1, answer=Answer(seq=1, stages=stages), took_ms=1.0, policy_ms=1.0)


def test_answers_that_did_not_happen_and_places_of_executors() -> None:
    # The answer gives the stage two slots, but at 200 ms only one task has started.
    def having(*running: int) -> tuple[ExecutorMessage, ...]:
        return tuple(ExecutorMessage(id=f"{number}", slots=1, running=each) for number, each in enumerate(running))

    found = by_hand(
        asked(100.0, a_job("a", a_stage(1, tasks=2)), having=having(0, 0)),
        answered((1, 2)),
        asked(200.0, a_job("a", a_stage(1, tasks=2, running=1)), having=having(1, 0)),
        asked(300.0, a_job("a", a_stage(1, tasks=2, done=1, running=1))),
        asked(400.0, gone=("a",)),
    ).record
    assert (found.task_executor.tolist(), found.task_finish_ms[0]) == ([0, 0], found.task_start_ms[1])

    # The lowest index is first, so that a schedule has as many rows as simultaneous executors.
    def three(*names: str) -> tuple[ExecutorMessage, ...]:
        return tuple(ExecutorMessage(id=name, slots=1, running=1, job="a") for name in names)

    def stage(running: int) -> JobMessage:
        return a_job("a", a_stage(1, tasks=20, running=running))

    found = by_hand(
        asked(100.0, stage(3), having=three("1", "2", "3")),
        asked(200.0, stage(1), having=three("3")),
        asked(300.0, stage(2), having=three("3", "4")),
        asked(400.0, gone=("a",)),
    ).record
    assert found.config.num_executors == 3
    late = found.tasks().query("start_ms >= 250")
    assert sorted(set(late["executor"].tolist())) == [0, 2]


def test_jobs_have_names_and_stages_run_though_no_question_shows_it() -> None:
    found = by_hand(
        asked(100.0, a_job("a", a_stage(1), name="report"), a_job("b", a_stage(2)), having=executors(2)),
        asked(200.0, gone=("a", "b")),
    )
    assert [profile.name for profile in found.record.sequence.profiles] == ["report", "b"]
    # The stages ran between two questions. Each task has one executor; the job holds those that ran, at least one.
    found = by_hand(
        asked(100.0, a_job("a", a_stage(1, tasks=4)), having=executors(2)),
        asked(300.0, a_job("a", a_stage(1, "done", 4, mean_ms=100.0), a_stage(2, tasks=1))),
        asked(400.0, gone=("a",)),
    ).record
    ran = found.task_executor >= 0
    assert ran.sum() >= 4
    assert (found.task_parallelism[ran] >= 1).all()
    assert (found.task_parallelism[ran] <= found.config.num_executors).all()
    assert (found.task_finish_ms[ran] >= found.task_start_ms[ran]).all()


def test_executors_run_what_drivers_say_and_many_are_answered() -> None:
    # Of two free executors and a busy one, the replay assigns the running task to the busy executor.
    some = (*executors(2), ExecutorMessage(id="z", slots=1, running=1, job="a"))
    found = by_hand(
        asked(
            100.0, a_job("a", a_stage(1, tasks=1)), having=(*executors(2), ExecutorMessage(id="z", slots=1, running=0))
        ),
        asked(200.0, a_job("a", a_stage(1, tasks=1, running=1)), having=some),
        asked(300.0, gone=("a",)),
    ).record
    assert (found.task_executor.tolist(), found.task_start_ms.tolist()) == ([2], [pytest.approx(100.0)])
    # The number of executors exceeds small integers; each stage gets one executor per task.
    serving = Driver(make_scheduler("fifo"), History(), itertools.count(), itertools.count())
    job = a_job("a", a_stage(1, tasks=300))
    decided = serving.decide(a_state(1, job, having=executors(300)))
    assert decided.slots == 300
    assert [(order.id, order.slots) for order in decided.answer.stages] == [(1, 300)]


def test_of_many_drivers_the_first_have_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    one = by_hand(asked(100.0, a_job("a", a_stage(1)), having=executors(2)), asked(200.0, gone=("a",)))
    for most, pictures in ((2, 4), (3, 6), (5, 6)):
        monkeypatch.setattr("decima.service.replay.MOST_PICTURES", most)
        found = live_report([one] * 3)
        assert len(found.pictures) == pictures
        assert any("Pictures show the first" in note for note in found.notes) == (most < 3)


def test_more_pages_than_are_served_are_told_that_it_is_too_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_READERS", 1)
    with a_page() as (_, where):
        first, connection = get(where, "/events")
        assert first.status == 200
        assert first.readline().startswith(b"data: ")
        second, other = get(where, "/events")
        assert (second.status, second.read()) == (503, b"too many pages are open")
        connection.close()
        other.close()


@pytest.mark.parametrize("address", ["65536", "99999"])
def test_a_port_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ServeError, match=r"cannot listen on .*: .*port must be"):
        listen_briefly(address)
