"""Several applications share the slots of a cluster: targets, and the bound on executors."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import make_scheduler
from decima.schedulers import Fair, Scheduler
from decima.service.history import History
from decima.service.protocol import Answer, ExecutorMessage, JobMessage
from decima.service.service import Connected, Service
from simulator import ClusterConfig, Decision, Observation
from tests.decima.service.scripted_cluster import Application, ScriptedCluster
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import a_hello, a_job, a_stage, a_state
from tests.decima.service.test_driver import PROFILES, driver, steady
from workloads import JobProfile, StageProfile, TaskDurations, open_workload
from workloads.arrivals import WorkPrior

SLOTS = 8
DELAY_MS = 3000.0
ALL = tuple(map(steady, open_workload().profiles))


def shared(
    applications: list[Application],
    policy: str = "srpt",
    *,
    slots: int = SLOTS,
    delay_ms: float = DELAY_MS,
    history: tuple[JobProfile, ...] = (),
    watch: Callable[[ScriptedCluster], None] = lambda cluster: None,
) -> ScriptedCluster:
    """Return a cluster that has run all applications."""
    clusters: list[ScriptedCluster] = []
    service = Service(
        lambda: make_scheduler(policy), History(history), slots=slots, clock=lambda: clusters[0].now / 1000
    )
    clusters.append(ScriptedCluster(service, applications, delay_ms, watch))
    clusters[0].run()
    return clusters[0]


def a_profile(tasks: int, task_ms: float, last: int = 1) -> JobProfile:
    stages = (StageProfile(tasks, TaskDurations.constant(task_ms)), StageProfile(last, TaskDurations.constant(task_ms)))
    return JobProfile("two stages", stages, np.array([[0, 1]]))


PROFILE = st.builds(a_profile, st.integers(1, 60), st.sampled_from([50.0, 400.0, 3000.0]), st.integers(1, 9))
KILLED = st.one_of(st.just(float("inf")), st.floats(0.0, 60_000.0))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.lists(PROFILE, min_size=1, max_size=3), KILLED), min_size=1, max_size=5
    ),
    st.integers(1, 9),
    st.sampled_from([200.0, 3000.0, 12_000.0]),
    st.sampled_from(["fifo", "fair", "srpt", "decima"]),
)  # fmt: skip
def test_there_are_never_more_executors_than_slots_and_every_task_runs_once(
    drawn: list[tuple[int, list[JobProfile], float]], slots: int, delay_ms: float, policy: str
) -> None:
    """The service alone limits the slots, while applications arrive, end and die."""
    applications = [
        Application(f"app-{number}", float(arrival_ms), profiles, dies_ms=dies_ms)
        for number, (arrival_ms, profiles, dies_ms) in enumerate(drawn)
    ]

    def watch(cluster: ScriptedCluster) -> None:
        assert sum(each.slots for each in cluster.applications) <= slots
        assert all(each.target >= 0 for each in cluster.applications)

    cluster = shared(applications, policy, slots=slots, delay_ms=delay_ms, watch=watch)
    tasks = sum(profile.num_tasks for each in applications for profile in each.profiles)
    assert cluster.tasks <= tasks
    for each in applications:
        assert each.end_ms == each.end_ms or each.dies_ms < float("inf")
    if all(each.dies_ms == float("inf") for each in applications):
        assert cluster.tasks == tasks


def test_the_mean_completion_is_below_that_of_fifo_and_of_equal_shares() -> None:
    """Standalone Spark runs one application after the other, or gives each application a constant share."""
    means: Counter[str] = Counter()
    for seed in range(3):
        profiles = [ALL[place] for place in np.random.default_rng(seed).integers(0, len(ALL), 4)]
        applications = [Application(f"app-{number}", 0.0, [each]) for number, each in enumerate(profiles)]
        cluster = shared(applications, history=ALL)
        means["shared"] += float(np.mean([each.end_ms for each in cluster.applications]))

        def alone_ms(profile: JobProfile, slots: int) -> float:
            serving = driver("fifo", *ALL)
            return (
                DELAY_MS + ScriptedSpark([(profile, 0.0)], lambda state: serving.decide(state).answer, slots).run()[0]
            )

        means["static"] += float(np.mean([alone_ms(each, SLOTS // 4) for each in profiles]))
        means["fifo"] += float(np.mean(np.cumsum([alone_ms(each, SLOTS) for each in profiles])))
    assert means["shared"] < 0.85 * min(means["static"], means["fifo"])


@pytest.mark.parametrize("policy", ["las", "srpt"])  # attained service, and a prediction
def test_clocks_of_drivers_that_differ_change_nothing(policy: str) -> None:
    ends = []
    for clocks_ms in ((0.0, 0.0, 0.0), (600_000.0, 0.0, 3_600_000.0)):
        applications = [
            Application(f"app-{number}", 2000.0 * number, [ALL[number], ALL[number + 9]], clock_ms=clock_ms)
            for number, clock_ms in enumerate(clocks_ms)
        ]
        ends.append([each.end_ms for each in shared(applications, policy, history=ALL).applications])
    assert ends[0] == ends[1]


def test_no_application_gets_an_executor_only_to_lose_it_again() -> None:
    """Equal applications under fair sharing do not exchange executors back and forth."""
    targets: dict[str, list[int]] = {}

    def watch(cluster: ScriptedCluster) -> None:
        for each in cluster.applications:
            known = targets.setdefault(each.name, [0])
            if each.target != known[-1]:
                known.append(each.target)

    shared([Application(f"app-{n}", 0.0, [a_profile(400, 1000.0, 40)]) for n in range(4)], "fair", watch=watch)
    for name, each in targets.items():
        assert each == sorted(each), name


class Shares:
    """A service, and questions of applications that the test writes itself."""

    def __init__(self, scheduler: Callable[[], Any] = Fair, slots: int = 4, history: History | None = None) -> None:
        self.now_s = 0.0
        self.service = Service(scheduler, history, slots=slots, clock=lambda: self.now_s)
        self._drivers: dict[str, Connected] = {}
        self._seq = 0

    def ask(
        self, name: str, *jobs: JobMessage, running: int = 0, idle: int = 0, leaving: int = 0, **changes: Any
    ) -> int | None:
        """Return the target of an application with these executors."""
        return self.answer(name, *jobs, running=running, idle=idle, leaving=leaving, **changes).executors

    def answer(
        self, name: str, *jobs: JobMessage, running: int, idle: int, leaving: int, moves: bool = True, **changes: Any
    ) -> Answer:
        if name not in self._drivers:
            hello = a_hello(application=name, moves_executors=moves)
            self._drivers[name], _ = self.service.welcome(hello.model_dump_json().encode())
            if moves and not running + idle + leaving:
                # A new application waits a moment for its first executors.
                assert self.ask(name, *jobs, **changes) == 0
                self.now_s += 1.0
        job = jobs[0].id if jobs else None
        some = [
            ExecutorMessage(
                id=f"{number}", slots=1, running=int(number < running), job=job, leaving=number >= running + idle
            )
            for number in range(running + idle + leaving)
        ]
        self._seq += 1
        state = a_state(self._seq, *jobs, having=tuple(some)).model_copy(update=changes)
        return self.service.answer(self._drivers[name], state.model_dump_json().encode())

    def leave(self, name: str) -> None:
        self.service.leave(self._drivers.pop(name))


def work(tasks: int = 100, ms: float = 10_000.0, **changes: Any) -> JobMessage:
    return a_job("a", a_stage(1, tasks=tasks, mean_ms=ms, done=1, **changes))


def test_applications_alone_get_all_and_moves_must_be_worth_it() -> None:
    # This also holds at the end of a job, since releasing executors would only cost restarts.
    shares = Shares()
    assert shares.ask("one", work()) == 4
    assert shares.ask("one", work(3, running=1), running=1, idle=3) == 4
    shares.now_s = 100.0
    assert shares.ask("one", running=0, idle=4) == 4
    # The job has two very short tasks, for which one executor is enough, or two tasks of a minute.
    for ms, executors in ((10.0, 1), (60_000.0, 2)):
        assert Shares(slots=2).ask("one", work(3, ms), move_ms=3000.0) == executors
    # This holds for all decisions of the policy.
    assert Shares(lambda: make_scheduler(lambda seen: None)).ask("one", work()) == 1


def give_away(shares: Shares) -> None:
    """Let "one" give some of its four executors to "two", which gets them when they have left."""
    shares.now_s = 60.0
    done = a_job("a", a_stage(1, "done", mean_ms=1.0), a_stage(2, tasks=3, done=0, running=2, mean_ms=10_000.0))
    lower = shares.ask("one", done, running=2, idle=2)
    assert lower is not None
    assert lower < 4
    assert shares.ask("two", work()) == 0  # it is told to leave, and still there
    assert shares.ask("one", done, running=2, idle=lower - 2, leaving=4 - lower) == lower
    assert shares.ask("two", work()) == 0
    assert shares.ask("one", done, running=2, idle=lower - 2) == lower
    assert shares.ask("two", work()) == 4 - lower


def test_slots_of_another_are_given_away_only_when_they_are_free() -> None:
    shares = Shares()
    assert shares.ask("one", work()) == 4
    assert shares.ask("one", work(running=4), running=4) == 4
    assert shares.ask("two", work()) == 0
    # Idle executors: fair gives one of the two that it holds too many to the other.
    give_away(shares)


def test_executors_on_their_way_and_of_ended_applications() -> None:
    shares = Shares()
    assert shares.ask("one", work()) == 4
    assert shares.ask("one", work(), running=0, idle=1) == 4
    assert shares.ask("two", work()) == 0
    shares = Shares()
    shares.ask("one", work())
    shares.ask("one", idle=4)
    shares.leave("one")
    assert shares.ask("two", work()) == 4
    shares = Shares()
    assert shares.ask("one", work()) == 4
    shares.now_s = 100.0
    # At first no other application wants them; then one does.
    shares.ask("one", a_job("a", a_stage(1, tasks=2, done=1, running=1)), running=1)
    assert shares.ask("two", work()) == 3
    shares = Shares()
    assert shares.ask("one", work(), idle=3, moves=False) is None


def test_applications_without_work_or_connection_lose_their_slots_late() -> None:
    shares = Shares()
    shares.ask("one", work())
    shares.ask("one", work(running=4), running=4)
    assert shares.ask("one", idle=4) == 4
    assert shares.ask("two", work()) == 0
    assert shares.ask("one", idle=4) == 4
    shares.now_s = 10.0
    assert shares.ask("one", idle=4) == 0
    assert shares.ask("one") == 0
    assert shares.ask("two", work()) == 4
    shares = Shares()
    shares.ask("one", work())
    shares.leave("one")
    assert shares.ask("two", work()) == 0
    assert shares.ask("one", work(running=4), running=4) == 4
    shares.leave("one")
    shares.now_s = 20.0
    assert shares.ask("two", work()) == 4
    # It comes again after all, with its executors: no application gets more until slots are free.
    assert shares.ask("one", work(running=4), running=4) == 4
    assert shares.ask("three", work()) == 0


def test_the_policy_sees_delays_and_jobs_to_come() -> None:
    configs: list[ClusterConfig] = []
    # The distribution is that of a single application; without history it is None.
    priors: dict[int, set[WorkPrior | None]] = {}

    class Sees(Scheduler):
        def reset(self, config: ClusterConfig) -> None:
            configs.append(config)
            self.seen = priors.setdefault(config.num_executors, set())

        def decide(self, observation: Observation) -> Decision | None:
            self.seen.add(observation.prior)
            return None

    shares = Shares(Sees)
    for move_ms in (None, 3100.0, 7000.0, 6800.0):
        shares.ask("one", work(), move_ms=move_ms)
    delays = [config.moving_delay_ms for config in configs if config.num_executors == 4]
    assert delays == [3000.0, 7000.0]
    for history in (None, History([a_profile(5, 100.0), *PROFILES])):
        priors.clear()
        Shares(Sees, history=history).ask("one", work(), running=1, idle=2)
        expected = None if history is None else history.prior
        assert priors == {4: {expected}, 3: {expected}}  # all slots, and those of the application


def test_ready_stages_are_ranked_over_all_applications() -> None:
    """The scheduler of the shared slots sees the order in which stages of different applications became ready."""
    seen: list[list[int]] = []

    class Watched(Fair):
        def decide(self, observation: Observation) -> Decision | None:
            seen.append(observation.ready_rank.tolist())
            return super().decide(observation)

    shares = Shares(Watched)
    for number in range(2):
        shares.ask(f"app-{number}", a_job(f"job {number}", a_stage(0, tasks=3)))
    assert seen[-1] == [0, 1]
