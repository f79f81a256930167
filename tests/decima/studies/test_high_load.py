"""Which jobs and decisions make the difference at high load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError
from decima.schedulers import Fair
from decima.studies.high_load import LEVELS, executors_by_load, high_load, plot_high_load
from decima.studies.study import Study
from decima.studies.study_report import RULE, shown
from simulator import ClusterConfig, run_episode
from tests.simulator.cluster.build import job, jobs, stage


def test_executors_of_a_job_by_the_jobs_in_the_system() -> None:
    """Four executors, tasks of 10 ms. They stay with job 0, which is alone at first; then the others share."""
    config = ClusterConfig(4, moving_delay_ms=0.0, warmup_delay_ms=0.0)
    large, small = job(stage(10, 10.0)), job(stage(4, 10.0))
    record = run_episode(config, jobs(large, small, small, at=[0.0, 5.0, 6.0]), Fair())
    assert record.completion_ms.tolist() == [30.0, 40.0, 50.0]
    others, largest = executors_by_load(record, np.array([0]))
    assert largest[0] == pytest.approx(100 / 30)
    assert others[0] == pytest.approx(40 / 20)
    assert others[1] == pytest.approx(40 / 20)
    assert np.isnan([*others[2:], *largest[1:]]).all()
    assert len(others) == len(LEVELS)


def test_a_study_of_high_load(study: Study) -> None:
    tiny = replace(study, num_jobs=6)
    outcome = high_load(tiny, load=0.5)
    names = ["fair", "profiled-srpt:2.5", "profiled-srpt:6", "decima:embedded-batch", RULE]
    assert list(outcome.extra["executors"]) == names
    assert list(outcome.extra["change_of_jct"]) == names[:-1]
    assert [table.row_count for table in outcome.tables] == [5, len(LEVELS), len(LEVELS)]
    assert len(plot_high_load(outcome).axes) == 3
    assert '"executors"' in shown(outcome, "x").json
    with pytest.raises(CompareError, match="4 jobs, expected at least 5"):
        high_load(replace(study, num_jobs=4), load=0.5)
