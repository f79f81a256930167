"""Job logs in Standard Workload Format as jobs for a cluster of executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from decima.schedulers.fifo import Fifo
from simulator.cluster.config import ClusterConfig, ExecutorClass
from simulator.cluster.episode import run_episode
from tests.workloads.sources.test_swf import line, write
from workloads.errors import ConfigError
from workloads.excerpt import Excerpt
from workloads.imperfections import Imperfections
from workloads.job import JobProfile
from workloads.sources.swf import read_swf_workload

Shared = Callable[[str], Path]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four processors for 100 s, two for 60.5 s twice, with memory; one job did not run."""
    return write(
        tmp_path,
        line(submit=50, run=100, allocated=4),
        line(submit=60, run=60.5, allocated=2, used_memory=1024**2),
        line(submit=90, run=60.5, allocated=2, used_memory=1024**2),
        line(submit=95, run=0),
    )


def told(profile: JobProfile) -> tuple[int, float, float, float]:
    """Tasks, their duration in s, and what each demands."""
    [stage] = profile.stages
    return stage.num_tasks, stage.durations.mean_ms / 1000, stage.cpu, stage.memory


def test_a_job_is_a_task_for_each_of_its_processors(log: Path) -> None:
    workload = read_swf_workload(log)
    assert [told(profile) for profile in workload.profiles] == [(4, 100, 1, 0), (2, 60.5, 1, 0)]
    assert workload.sequence is not None
    assert workload.sequence.arrival_ms.tolist() == [0, 10_000, 40_000]
    first, second, third = workload.sequence.profiles
    assert second is third
    assert (first.name, second.name, workload.name) == ("1: 4 x 100 s", "2: 2 x 60.5 s", "toy")
    assert workload.about == {
        "source": "a job log in Standard Workload Format",
        "log": "toy.swf: 3 jobs on 4 processors; dropped 1 with run time 0",
        "jobs": "a task for each processor",
        "demands": "in processors, memory left out",
        "excerpt": {},
    }


def test_a_gang_is_one_task_on_all_processors_at_once(log: Path) -> None:
    workload = read_swf_workload(log, gang=True)
    assert [told(profile) for profile in workload.profiles] == [(1, 100, 4, 0), (1, 60.5, 2, 0)]
    assert workload.sequence is not None
    machines = ClusterConfig(
        executor_classes=(ExecutorClass(1, 4.0, 1.0), ExecutorClass(1, 2.0, 1.0)), moving_delay_ms=0.0
    )
    record = run_episode(machines, workload.sequence, Fifo())
    assert record.completion_ms.tolist() == [100_000, 70_500, 131_000]
    small = ClusterConfig(executor_classes=(ExecutorClass(9, 2.0, 1.0),))
    with pytest.raises(ConfigError, match=r"no executor class can run stage 0 of job 0 \(1: 4 x 100 s\)"):
        run_episode(small, workload.sequence, Fifo())


@pytest.mark.parametrize("gang", [False, True])
def test_demands_may_be_shares_of_an_executor(log: Path, gang: bool) -> None:
    _, memorable = read_swf_workload(log, executor=(8, 4), gang=gang).profiles
    assert told(memorable) == ((1, 60.5, 2 / 8, 2 / 4) if gang else (2, 60.5, 1 / 8, 1 / 4))


@pytest.mark.parametrize(("gang", "share"), [(False, 2 / 11), (True, 2 / 4)])
def test_the_share_of_failed_tasks_is_that_of_jobs_whose_end_is_known(
    tmp_path: Path, gang: bool, share: float
) -> None:
    statuses = {1: 4, 0: 2, 5: 8, -1: 16}
    lines = [line(allocated=processors, status=status) for status, processors in statuses.items()]
    path = write(tmp_path, *lines, line(allocated=3, status=1), line(allocated=2, status=0))
    assert read_swf_workload(path, gang=gang).imperfections == Imperfections(task_failures=share)
    unknown = write(tmp_path, line(status=-1), line(status=5))
    assert read_swf_workload(unknown, gang=gang).imperfections == Imperfections()


def test_how_jobs_and_demands_are_taken_is_told(log: Path) -> None:
    about = read_swf_workload(log, Excerpt(until_s=35), (8, 2.5), gang=True).about
    assert about["jobs"] == "one task on all processors at once"
    assert about["demands"] == "shares of 8 processors and 2.5 GiB"
    assert about["excerpt"] == {"until_s": 35}


def test_a_log_of_a_machine(shared: Shared) -> None:
    workload = read_swf_workload(shared("traces/swf/NASA-iPSC-1993-3.1-cln.swf.gz"))
    assert workload.sequence is not None
    assert len(workload.sequence) == 18_066
    assert len(workload.profiles) < 9_000
    assert max(profile.num_tasks for profile in workload.profiles) == 128
