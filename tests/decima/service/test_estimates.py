"""Service and simulator compute the same estimates, bit for bit."""

import itertools
from typing import Any

import numpy as np
import pytest

from decima.service.history import History
from decima.service.jobs import TrackedJobs
from decima.service.protocol import JobMessage, StageMessage, StateMessage
from simulator import Cluster, ClusterConfig
from simulator.cluster import estimates
from simulator.cluster.config import Knowledge
from tests.simulator.cluster.build import greedy
from workloads import JobProfile, StageProfile, TaskDurations, poisson_arrivals, synthetic_profiles

ERRORS = Knowledge(job_error=1.0, stage_error=0.7)


def message(cluster: Cluster, number: int) -> StateMessage:
    """Return the driver's message about the live jobs of a simulated cluster."""
    state, seen, now = cluster._state, cluster.snapshot(), cluster.clock.now
    running: dict[int, list[float]] = {}
    for executor in state.executors:
        if executor.start >= 0 and executor.stage >= 0:
            running.setdefault(int(executor.stage), []).append(now - executor.start)
    jobs = []
    for job in seen.job_id.tolist():
        parents, first = cluster.sequence.profiles[job].parents, int(state.jobs["first_stage"][job])
        made = []
        for place, of_stage in enumerate(parents):
            row = state.stages[first + place]
            times = running.get(first + place, [])
            waits = "ready" if row.incomplete_parents == 0 else "waiting"
            made.append(
                StageMessage(
                    id=first + place,
                    state="done" if row.finished == row.num_tasks else waits,  # type: ignore[arg-type]
                    tasks=int(row.num_tasks),
                    done=int(row.finished),
                    running=len(times),
                    pending=int(row.num_tasks - row.started),
                    mean_ms=float(row.finished_ms / row.finished) if row.finished else None,
                    running_ms=float(sum(times)),
                    parents=tuple(first + parent for parent in of_stage),
                )
            )
        at_work = sum(stage.running for stage in made)
        jobs.append(
            JobMessage(id=str(job), name=f"job {job}", submitted_time_ms=job * 1e6, running=at_work, stages=tuple(made))
        )
    return StateMessage(type="state", seq=number, time_ms=float(now), jobs=tuple(jobs), executors=())


def test_service_and_simulator_give_the_same_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service receives an episode as messages; its history has the estimates of the simulated schedulers."""
    history: list[JobProfile] = []
    make = estimates.from_history

    def remember(profile: JobProfile, prior: Any, knowledge: Any, factor: float) -> estimates.Estimate:
        stages = tuple(
            StageProfile(each.num_tasks, TaskDurations.constant(each.durations.mean_ms * factor))
            for each in profile.stages
        )
        history.append(JobProfile(f"job {len(history)}", stages, profile.edges))
        return make(profile, prior, knowledge, factor)

    monkeypatch.setattr(estimates, "from_history", remember)
    sequence = poisson_arrivals(synthetic_profiles(8), 12, 20_000.0, seed=3)
    cluster = Cluster(ClusterConfig(10, knowledge=ERRORS), sequence)
    live = TrackedJobs(
        History(history, knowledge=ERRORS, prior=cluster.observe().prior), itertools.count(), itertools.count()
    )
    compared = late = 0
    for number in itertools.count():
        if cluster.done:
            break
        seen = cluster.observe()
        jobs = live.update(message(cluster, number))
        assert all(job.recognised for job in jobs)
        for job, row, profile in zip(jobs, seen.jobs, seen.profiles, strict=True):
            stages = seen.stages[row["first_stage"] :][: profile.num_stages]
            assert job.mean_ms == pytest.approx(stages["mean_task_ms"].tolist(), rel=1e-12)
            assert job.log_sd == pytest.approx(stages["log_sd"].tolist(), rel=1e-12)
            assert job.belief["log_sd"][0] == pytest.approx(row["log_sd"], rel=1e-12)
            assert job.first_work_ms == pytest.approx(row["first_work_ms"], rel=1e-12)
            assert job.profile.work_ms == pytest.approx(profile.work_ms, rel=1e-9)
            compared += 1
            late += int(job.belief["is_late"][0])
        cluster.decide(greedy(seen) if seen.num_schedulable else None)
    assert compared > 100
    assert late > 0
    assert np.isfinite(cluster.completion_ms).all()
