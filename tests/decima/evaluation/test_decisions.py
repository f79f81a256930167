"""Decisions of an episode, told once more."""

from __future__ import annotations

import pytest

from decima.evaluation.comparison import Comparison
from decima.evaluation.decisions import Decided, decisions
from decima.schedulers import Scheduler
from simulator import Decision, Observation
from tests.decima.evaluation.examples import conditions, run


class Half(Scheduler):
    """The last stage that can run gets two executors; the other two idle until something has happened."""

    def decide(self, observation: Observation) -> Decision | None:
        stage = int(observation.schedulable.nonzero()[0][-1])
        limit = observation.held(int(observation.stage_job[stage])) + 2
        return None if observation.time_ms == 0 and observation.offered == 2 else Decision(stage, limit)


def test_a_decision_is_told_by_the_numbers_of_job_and_stage() -> None:
    compared = Comparison(conditions(num_experiments=2), {"half": Half(), "fifo": "fifo"})
    compared.run(1)
    taken = decisions(compared, "half")
    jobs = len(compared.conditions.sequence(5))
    assert taken[:2] == [Decided(0.0, 4, jobs - 1, 0, 2), Decided(0.0, 2, -1, -1, 0)]
    told = [each for each in taken if each.job >= 0]
    assert {(each.job, each.stage) for each in told} == {
        (job, stage) for job in range(jobs) for stage in (0, 1)
    }
    record = compared.episodes["half"]
    assert [each.time_ms for each in taken] == sorted(each.time_ms for each in taken)
    assert taken[-1].time_ms <= record.end_ms


def test_a_tuned_scheduler_is_asked_with_the_setting_that_it_had() -> None:
    compared = run("weighted-fair", num_experiments=1)
    fixed = compared.tuned["weighted-fair"]
    assert decisions(compared, "weighted-fair") == decisions(run(fixed, num_experiments=1), fixed)


def test_there_are_none_of_an_experiment_that_has_not_finished() -> None:
    with pytest.raises(ValueError, match="empty"):
        decisions(Comparison(conditions(), ["fifo"]), "fifo")
