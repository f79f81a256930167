"""Answers to a driver: the policy's decisions, as in a simulated cluster."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from decima.policy.shipped import SHIPPED
from decima.registry import SCHEDULERS, make_scheduler
from decima.service.history import History
from decima.service.jobs import QuestionError
from decima.service.protocol import Answer, Exchange, ExecutorMessage, StateMessage
from decima.service.service import Decided, Driver
from simulator import ClusterConfig, Decision, Observation, SchedulingError, run_episode
from simulator.cluster.config import EXACT
from tests.cases import cases
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import a_job, a_stage, a_state, executors
from tests.refusal import one_line
from workloads import JobProfile, JobSequence, TaskDurations, batch_arrivals, open_workload, poisson_arrivals

SLOTS = 8
Decide = Callable[[Observation], Decision | None]


def steady(profile: JobProfile) -> JobProfile:
    """Return the same profile with tasks that all take their mean."""
    stages = [replace(stage, durations=TaskDurations.constant(stage.durations.mean_ms)) for stage in profile.stages]
    return JobProfile(profile.name, tuple(stages), profile.edges)


PROFILES = tuple(steady(each) for each in open_workload().profiles if each.num_tasks < 400)
SEQUENCES = {
    "batch": [batch_arrivals(PROFILES, 10, seed) for seed in range(12)],
    "stream": [poisson_arrivals(PROFILES, 10, 15_000.0, seed) for seed in range(12)],
}


def driver(scheduler: str | Decide = "srpt", *profiles: JobProfile) -> Driver:
    return Driver(make_scheduler(scheduler), History(profiles), itertools.count(), itertools.count())


def arriving(sequence: JobSequence) -> list[tuple[JobProfile, float]]:
    return list(zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True))


def served_jct_ms(scheduler: str, sequence: JobSequence, history: tuple[JobProfile, ...], hidden: bool) -> float:
    known = History(history, knowledge=EXACT)
    serving = Driver(make_scheduler(scheduler), known, itertools.count(), itertools.count())
    spark = ScriptedSpark(arriving(sequence), lambda state: serving.decide(state).answer, SLOTS, hidden)
    return float(np.mean(spark.run()))


@pytest.mark.parametrize("arrivals", SEQUENCES)
@pytest.mark.parametrize("scheduler", ["fifo", "fair", "srpt", "decima"])
def test_served_jobs_take_as_long_as_in_the_simulator(scheduler: str, arrivals: str) -> None:
    """Whether Spark creates its stages at the start or later. Both know the exact durations."""
    config = ClusterConfig(SLOTS, moving_delay_ms=0.0, warmup_delay_ms=0.0)
    sequences = SEQUENCES[arrivals]
    simulated = np.mean([run_episode(config, each, make_scheduler(scheduler)).mean_jct_ms for each in sequences])
    for hidden in (False, True):
        served = np.mean([served_jct_ms(scheduler, each, PROFILES, hidden) for each in sequences])
        assert served == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "graphene" else [])
        for name in (*SCHEDULERS, *(f"decima:{name}" for name in SHIPPED))
    ],
)  # fmt: skip
def test_every_scheduler_can_serve(scheduler: str) -> None:
    """This includes schedulers that need profiles, without any history."""
    sequence = batch_arrivals(PROFILES, 3, seed=5)
    for history in ((), PROFILES):
        serving = driver(scheduler, *history)
        spark = ScriptedSpark(arriving(sequence), lambda state, serving=serving: serving.decide(state).answer, SLOTS)
        assert all(jct_ms > 0 for jct_ms in spark.run())
        assert spark.tasks_started == sum(profile.num_tasks for profile in sequence.profiles)


def test_without_history_it_is_still_better_than_fair() -> None:
    batches = SEQUENCES["batch"]
    fair = np.mean([served_jct_ms("fair", each, (), False) for each in batches])
    online = np.mean([served_jct_ms("decima", each, (), False) for each in batches])
    assert online < 0.8 * fair


def test_the_same_questions_have_the_same_answers() -> None:
    def answers() -> list[Answer]:
        serving, found = driver("decima"), []

        def ask(state: StateMessage) -> Answer:
            found.append(serving.decide(state).answer)
            return found[-1]

        ScriptedSpark(arriving(SEQUENCES["stream"][0]), ask, SLOTS).run()
        return found

    assert answers() == answers()


def test_long_running_tasks_make_a_job_longer_and_older_plugins_do_not_tell_of_them() -> None:
    def ask(**running: float) -> Decided:
        job = a_job("a", a_stage(7, running=2, **running), a_stage(8, "waiting", parents=(7,)))
        question = a_state(1, job, having=executors(3, "a", "a"))
        told = question.model_dump_json(exclude_unset=True)
        assert ("running_ms" in told) == bool(running)
        return driver().decide(StateMessage.model_validate_json(told))

    untold, short, long = ask(), ask(running_ms=0.0), ask(running_ms=600_000.0)
    assert (untold.answer, untold.jobs[0].mean_ms) == (short.answer, short.jobs[0].mean_ms)
    assert all(after > before for after, before in zip(long.jobs[0].mean_ms, short.jobs[0].mean_ms, strict=True))


def limited(limit: int) -> Decide:
    """Decide with the same limit for every job."""

    def decide(seen: Observation) -> Decision | None:
        stage = int(seen.schedulable.argmax())
        return Decision(stage, limit) if seen.held(int(seen.stage_job[stage])) < limit else None

    return decide


def slots(answer: Answer) -> dict[int, int | None]:
    return {stage.id: stage.slots for stage in answer.stages}


def test_free_slots_are_committed_and_executors_stay_or_are_told_where_to_go() -> None:
    answer = driver(limited(3)).decide(a_state(1, a_job("a", a_stage(7)), having=executors(8))).answer
    assert slots(answer) == {7: 3}
    assert (answer.limits, answer.rest) == ({"a": 3}, "hold")
    # Spark refills the slot without a question, and no other job gets it.
    first, second = a_job("a", a_stage(7, running=4)), a_job("b", a_stage(8))
    answer = driver("fair").decide(a_state(1, first, second, having=executors(2, *"aaaa"))).answer
    assert slots(answer) == {7: 4, 8: 2}
    last, other = a_job("a", a_stage(7, tasks=4, done=2, running=2)), a_job("b", a_stage(8))
    answer = driver("fifo").decide(a_state(1, last, other, having=executors(0, *"aa"))).answer
    assert slots(answer) == {8: 2}
    # Spark cannot distinguish a waiting slot from a free slot, and would assign it to another job.
    parent, child = a_stage(7, tasks=4, done=2, running=2), a_stage(9, "waiting", parents=(7,))
    waiting = ExecutorMessage(id="waits", slots=1, running=0, job="a")
    other = a_job("b", a_stage(8, tasks=9, done=7, running=2), a_stage(10, tasks=50), submitted_time_ms=9e4)
    state = a_state(1, a_job("a", parent, child), other, having=(waiting, *executors(0, *"aabb")))
    assert 10 not in slots(driver("fifo").decide(state).answer)


def test_leaving_and_large_executors_count_by_slots() -> None:
    some = tuple(ExecutorMessage(id=str(number), slots=1, running=0, leaving=number < 3) for number in range(8))
    decided = driver("fifo").decide(a_state(1, a_job("a", a_stage(7, tasks=50)), having=some))
    assert slots(decided.answer) == {7: 5}
    assert decided.slots == 5
    large = (ExecutorMessage(id="large", slots=6, running=2, job="a"),)
    answer = driver("fifo").decide(a_state(1, a_job("a", a_stage(7, running=2, tasks=50)), having=large)).answer
    assert slots(answer) == {7: 6}


def test_spark_never_stands_still_and_new_stages_are_followed() -> None:
    # If a scheduler leaves all slots idle, there is a last call, then Spark's own order.
    state = a_state(1, a_job("a", a_stage(7)), having=executors(4))
    assert slots(driver(lambda seen: None).decide(state).answer) == {}
    assert driver(lambda seen: None).decide(state).answer.rest == "fill"
    last_call = driver(lambda seen: Decision(int(seen.schedulable.argmax()), 4) if seen.last_call else None)
    assert slots(last_call.decide(state).answer) == {7: 4}
    running = a_state(1, a_job("a", a_stage(7, running=1)), having=executors(3, "a"))
    assert driver(lambda seen: None).decide(running).answer.rest == "hold"
    serving = driver("fifo")
    serving.decide(a_state(1, a_job("a", a_stage(1, running=2)), a_job("b"), having=executors(0, *"aa")))
    both = a_job("a", a_stage(1, "done"), a_stage(5, parents=(1,))), a_job("b", a_stage(6))
    assert slots(serving.decide(a_state(2, *both, having=executors(4))).answer) == {5: 4}
    assert slots(serving.decide(a_state(3, both[1], having=executors(4))).answer) == {6: 4}


@cases("state", a_state(1), a_state(1, a_job("a", a_stage(1))), a_state(1, a_job("a"), having=executors(2)))
def test_where_there_is_nothing_to_decide_spark_does_as_it_likes(state: StateMessage) -> None:
    answer = driver("decima").decide(state).answer
    assert (answer.stages, answer.limits, answer.rest) == ((), {}, "fill")


def test_slots_wait_between_stages_of_a_job_unless_it_is_idle() -> None:
    # The last task of a stage has ended, and Spark is about to submit the next stage, so the slots must wait.
    done, child = a_stage(7, "done", 4, mean_ms=9.0), a_stage(9, "waiting", parents=(7,))
    waiting = tuple(ExecutorMessage(id=str(number), slots=1, running=0, job="a") for number in range(4))
    jobs = a_job("a", done, child), a_job("b", a_stage(8, tasks=50), submitted_time_ms=9e4)
    answer = driver("fifo").decide(a_state(1, *jobs, having=waiting)).answer
    assert (slots(answer), answer.rest) == ({}, "hold")
    # Under adaptive execution Spark may create a stage late, and the driver would not ask again.
    exchanges = (Exchange(id=0, kind="Exchange", partitions=4),)
    waiting = tuple(ExecutorMessage(id=str(number), slots=1, running=0, job="a") for number in range(4))
    query = a_job("a", a_stage(7, "done", 4, mean_ms=9.0), plan=("Exchange",), exchanges=exchanges)
    other = a_job("b", a_stage(8, tasks=50), submitted_time_ms=9e4)
    assert slots(driver("fifo").decide(a_state(1, query, other, having=waiting)).answer) == {8: 4}


@cases(
    "state, message",
    (a_state(1, a_job("a", a_stage(1), a_stage(1)), having=executors(1)), "two stages have the same id"),
    (a_state(1, a_job("a"), a_job("a"), having=executors(1)), "two jobs have the same id"),
    (a_state(1, having=executors(1) * 2), "two executors have the same id"),
    (a_state(1, a_job("a", a_stage(1, parents=(2,)), a_stage(2, parents=(1,))), having=executors(1)), "cycle"),
    (a_state(1, having=(ExecutorMessage(id="e", slots=10**9, running=0),)), "slots"),
    (a_state(1, a_job("a", *map(a_stage, range(6000)))), "stages"),
)
def test_what_makes_no_sense_is_refused(state: StateMessage, message: str) -> None:
    assert re.search(message, one_line(QuestionError, driver().decide, state))


@pytest.mark.parametrize("decision", [Decision(-1, 3), Decision(7, 3), Decision(1, 3), Decision(0, 0)])
def test_what_cannot_be_done_is_not_answered(decision: Decision) -> None:
    waiting = a_stage(9, "waiting", parents=(7,))
    with pytest.raises(SchedulingError):
        driver(lambda seen: decision).decide(a_state(1, a_job("a", a_stage(7), waiting), having=executors(4)))
