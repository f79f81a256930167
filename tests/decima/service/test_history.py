"""Look-up of a live job in history, and estimates of jobs without history."""

import itertools
from typing import Any

import numpy as np
import pytest

from decima.service.history import History, is_skipped, match_stages
from decima.service.jobs import LiveJob, TrackedJobs
from decima.service.protocol import Exchange, JobMessage, StageMessage
from decima.service.snapshot import cluster_of
from simulator.cluster.known import known_profile
from tests.cases import cases
from tests.decima.service.serving import a_job, a_stage, a_state
from workloads import JobProfile, StageProfile, TaskDurations, Workload, read_workload, write_workload

STREAM = "66d0efdc-7c75-4203-bae3-8cbb009a6ac8"


def profile(name: str, *tasks: int, edges: list[tuple[int, int]] | None = None, ms: float = 100.0) -> JobProfile:
    """Return a profile, by default a chain."""
    chain = [(stage, stage + 1) for stage in range(len(tasks) - 1)]
    stages = tuple(StageProfile(each, TaskDurations.constant(ms * (place + 1))) for place, each in enumerate(tasks))
    return JobProfile(name, stages, np.array(chain if edges is None else edges, dtype=np.int64).reshape(-1, 2))


def chain(*tasks: int, first: int = 10, **changes: Any) -> tuple[StageMessage, ...]:
    return tuple(
        a_stage(
            first + place,
            "waiting" if place else "ready",
            each,
            parents=(first + place - 1,) if place else (),
            **changes,
        )
        for place, each in enumerate(tasks)
    )


def live(history: History, *jobs: JobMessage, time_ms: float = 1000.0) -> list[LiveJob]:
    return TrackedJobs(history, itertools.count(), itertools.count()).update(a_state(1, *jobs, time_ms=time_ms))


def test_known_jobs_take_what_history_tells() -> None:
    # On eight executors, half of the sixteen tasks are fresh; on one, only the first.
    waves = TaskDurations.constant(100.0, first_ms=200.0, fresh_ms=900.0)
    nightly = JobProfile("nightly", (StageProfile(16, waves, "scan"), StageProfile(4, waves, "sum")), [[0, 1]])
    jobs = TrackedJobs(History([nightly]), itertools.count(), itertools.count())
    state = a_state(1, a_job("a", *chain(16, 4), name="nightly"))
    for slots in (1, 8):
        cluster = cluster_of(slots, 0.0, 0.0)
        [job] = jobs.update(state, cluster)
        assert job.recognised
        there = known_profile(nightly, cluster)
        assert job.mean_ms == pytest.approx([stage.durations.mean_ms for stage in there.stages], rel=0.1)
    assert job.mean_ms[0] == pytest.approx((8 * 900 + 8 * 100) / 16, rel=0.05)
    made = (a_stage(10, tasks=4, done=1, running=2, mean_ms=600.0),)
    [job] = live(PLANNED, a_job("a", *made, plan=("Sort", "Scan")))
    assert (job.profile.name, job.profile.num_stages) == ("q1", 3)
    assert job.ids == [10, None, None]
    assert (job.tasks, job.pending, job.running, job.done) == ([4, 2, 1], [1, 2, 1], [2, 0, 0], [1, 0, 0])
    first, second, third = job.mean_ms
    assert 150 < first < 600
    assert second / 200 == pytest.approx(third / 300, rel=0.1)
    assert 1 < second / 200 < first / 100
    # Profiles are scaled in steps of two, so that what is computed from them can be kept.
    assert job.profile.work_ms == pytest.approx(4 * first + 2 * second + third, rel=0.42)
    assert job.ready == [True, False, False]


SMALL, LARGE, OTHER = profile("q1", 4, 2, 1), profile("q1 (2)", 40, 20, 1), profile("q2", 4, 9)
PLANNED = History([SMALL, LARGE, OTHER], {("Sort", "Scan"): ["q1", "q1 (2)"], ("Limit",): ["gone"]})


@cases("job, known",
        (a_job("a", *chain(4, 2, 1), plan=("Sort", "Scan")), SMALL),
        (a_job("a", *chain(38, 20, 1), plan=("Sort", "Scan")), LARGE),
        (a_job("a", *chain(38), plan=("Sort", "Scan")), LARGE),  # more stages are to come
        (a_job("a", *chain(4, 2, 1, 7), plan=("Sort", "Scan")), None),
        (a_job("a", *chain(4), plan=("Limit",)), None),
        (a_job("a", *chain(4), plan=("Never", "Seen")), None),
        (a_job("a", *chain(40, 20, 1), name="q1"), LARGE),
        (a_job("a", *chain(4), name="q2"), OTHER),
        (a_job("a", *chain(4), name="q3"), None),
        (a_job("a", *chain(40, 20, 1)), LARGE),
        (a_job("a", *chain(40, 20, 2)), None),
        (a_job("a", *chain(4, 9)), None),  # a small DAG without a name says nothing,
)  # fmt: skip
def test_a_job_is_recognised_by_its_plan_or_by_its_name_and_dag(job: JobMessage, known: JobProfile | None) -> None:
    assert PLANNED.find(job) is known


@cases("job, known",
        (a_job("a", *chain(4), name="q2", plan=("Never", "Seen")), OTHER),
        (a_job("a", *chain(4), name="q2", plan=("Limit",)), OTHER),  # history has lost the profile of this plan
        (a_job("a", *chain(4), name="q2", plan=("Sort", "Scan")), SMALL),  # the plan says more than the name
        (a_job("a", *chain(40, 20, 1), plan=("Never", "Seen")), None),  # another query may have the same DAG
        (a_job("a", *chain(40, 20, 1), name="q3"), None),
)  # fmt: skip
def test_a_job_of_an_unknown_plan_is_recognised_by_its_name_and_not_by_its_dag(
    job: JobMessage, known: JobProfile | None
) -> None:
    assert PLANNED.find(job) is known


@cases("job, known",
        (a_job("a", *chain(4, 9, name="count at etl.py:12"), name=None), "count at etl.py:12"),
        (a_job("a", *chain(4, 8, 1, name="count at etl.py:12"), name=None), None),
        (a_job("a", *chain(4, name="count at etl.py:99"), name=None), None),
        (a_job("a", *chain(4, 9, name="count at etl.py:12"), name="described"), None),
        (a_job("a", *chain(5, 2), name=f"orders\nid = {STREAM}\nrunId = {STREAM}\nbatch = 9"), "orders (2)"),
        (a_job("a", *chain(7), name=f"report {STREAM}"), "report *"),
)  # fmt: skip
def test_names_are_compared_as_the_import_of_event_logs_makes_them(job: JobMessage, known: str | None) -> None:
    history = History(
        [
            profile("count at etl.py:12", 4, 9),
            profile("orders", 3, 2),
            profile("orders (2)", 5, 2),
            profile("report *", 7),
        ]
    )
    found = history.find(job)
    assert (found and found.name) == known


def test_history_is_a_workload_file(tmp_path: Any) -> None:
    plans = {"q1": ["Sort", "Scan"], "q2": "nonsense", "never": ["Sort"]}
    write_workload(tmp_path / "jobs.json", Workload((SMALL, OTHER), about={"plans": plans}))
    history = History.of(read_workload(tmp_path / "jobs.json"))
    assert len(history) == 2
    assert history.find(a_job("a", *chain(4), plan=("Sort", "Scan"))).name == "q1"  # type: ignore[union-attr]
    assert history.find(a_job("a", *chain(4), plan=("Sort",))) is None


def test_stages_are_matched_and_profiles_kept() -> None:
    diamond = profile("d", 8, 3, 5, 1, edges=[(0, 2), (1, 2), (2, 3)])
    seen = [a_stage(20, tasks=3), a_stage(21, tasks=8), a_stage(23, "waiting", 5, parents=(20, 21))]
    assert match_stages(seen, diamond) == [1, 0, 2]
    assert match_stages([*seen, a_stage(24, tasks=1, parents=(23,))], diamond) == [1, 0, 2, 3]
    assert match_stages([*seen, a_stage(24), a_stage(25)], diamond) is None
    assert match_stages(chain(10, 10, 10, 10), diamond) is None
    jobs = TrackedJobs(History(), itertools.count(), itertools.count())

    def at(done: int, mean_ms: float) -> LiveJob:
        stage = a_stage(1, tasks=100, done=done, running=2, mean_ms=mean_ms)
        return jobs.update(a_state(1, a_job("a", stage)))[0]

    first = at(1, 90.0).profile
    assert at(5, 95.0).profile is first
    assert at(9, 300.0).profile is not first
    assert at(9, 300.0).profile.stages[0].durations.mean_ms == pytest.approx(300.0, rel=0.13)


def test_a_job_that_is_gone_is_forgotten() -> None:
    jobs = TrackedJobs(History(), itertools.count(), itertools.count())
    a, b = a_job("a", *chain(4, 2)), a_job("b", *chain(4, 2))
    numbers = [[job.number for job in jobs.update(a_state(1, *live))] for live in ((a, b), (b,), (b, a))]
    assert numbers == [[0, 1], [1], [1, 2]]


def test_profiles_of_skipped_and_like_jobs() -> None:
    skipped = a_stage(9, "done", 200)
    assert is_skipped(skipped)
    assert not is_skipped(a_stage(9, "done", 200, mean_ms=0.0))
    [found] = live(PLANNED, a_job("a", skipped, *chain(4, 2, 1), plan=("Sort", "Scan")))
    assert found.recognised
    assert found.ids == [10, 11, 12]
    a, b = live(History(), *(a_job(name, *chain(4, 2)) for name in "ab"))
    assert a.profile is b.profile
    jobs = [a_job(str(number), submitted_time_ms=ms) for number, ms in enumerate((5000.0, 5800.0, 6001.0))]
    assert [job.arrival_ms for job in live(History(), *jobs)] == [5000.0, 5000.0, 6001.0]


def test_unknown_stages_and_stages_to_come() -> None:
    own = a_job("a", a_stage(1, done=4, mean_ms=50.0), a_stage(2, "waiting", parents=(1,)))
    unknown = a_job("b", a_stage(3), submitted_time_ms=9e5)
    a, b = live(History(), own, unknown)
    assert a.mean_ms == pytest.approx([50.0, 50.0], rel=0.1)
    assert b.mean_ms == pytest.approx([50.0], rel=0.13)
    [alone] = live(History(), unknown)
    assert alone.mean_ms == pytest.approx([1000.0])
    assert alone.log_sd[0] > b.log_sd[0] * 0.99 > a.log_sd[1] > a.log_sd[0]
    # This is the case under adaptive execution. The last stage returns the result.
    exchanges = (
        Exchange(id=0, kind="Exchange", partitions=20),
        Exchange(id=1, kind="BroadcastExchange", parents=()),
        Exchange(id=2, kind="Exchange", partitions=30, parents=(0, 1)),
    )
    [job] = live(History(), a_job("a", a_stage(7, tasks=4), plan=("X",), exchanges=exchanges))
    assert (job.ids, job.tasks) == ([7, None, None, None], [4, 1, 20, 30])
    assert job.profile.parents == ((), (), (0, 1), (2,))
    done = tuple(a_stage(number, "done", 4, mean_ms=1.0) for number in range(2))
    [job] = live(History(), a_job("a", *done, plan=("X",), exchanges=exchanges))
    assert job.ids == [0, 1, None, None]
