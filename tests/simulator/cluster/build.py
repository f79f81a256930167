"""Builders of jobs, clusters and decisions for tests."""

from collections.abc import Callable, Sequence

import numpy as np

from simulator import Cluster, ClusterConfig, Decision, EpisodeRecord, Observation
from simulator.cluster.observation import CLASS, JOB, NO_ATTRIBUTES, STAGE
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations


def stage(
    tasks: int,
    rest_ms: float,
    *,
    first_ms: float | None = None,
    fresh_ms: float | None = None,
    cpu: float = 1.0,
    memory: float = 0.0,
) -> StageProfile:
    """Return a stage with constant durations, overall or by wave."""
    durations = TaskDurations.constant(rest_ms, first_ms=first_ms, fresh_ms=fresh_ms)
    return StageProfile(tasks, durations, cpu=cpu, memory=memory)


def job(*stages: StageProfile, edges: Sequence[tuple[int, int]] = (), name: str = "job") -> JobProfile:
    """Return a job; ``edges`` are (parent, child)."""
    return JobProfile(name, stages, np.array(edges, dtype=np.int64).reshape(-1, 2))


def chain(*stages: StageProfile, name: str = "chain") -> JobProfile:
    """Return a job whose stages run one after the other."""
    return job(*stages, edges=[(parent, parent + 1) for parent in range(len(stages) - 1)], name=name)


def inflating(tasks: int, levels: dict[int, float]) -> JobProfile:
    """Return a job whose tasks take longer the more executors it holds (work inflation); level -> ms."""
    table = {level: [ms] for level, ms in levels.items()}
    return job(StageProfile(tasks, TaskDurations.from_tables(table, table, table)))


def jobs(*profiles: JobProfile, at: Sequence[float] | None = None, seed: int = 0) -> JobSequence:
    """Return a sequence of jobs that arrive at 0, or at the given times."""
    return JobSequence(profiles, np.zeros(len(profiles)) if at is None else np.array(at, float), seed)


def by_hand() -> Observation:
    """Return an observation as the service builds it.

    It has two jobs, one running task, and five executors of two classes, four of which are free. The first stage of
    job 7 has three tasks, one more than in its profile.
    """
    return Observation(
        ClusterConfig(num_executors=4),
        time_ms=1500.0,
        offered=3,
        executor_class=0,
        source=-1,
        num_schedulable=2,
        jobs=np.array(
            [
                (7, 0, 1, 2, 2, 0, 100.0, 0.0, 70.0, *NO_ATTRIBUTES),
                (12, 2, 0, 1, 1, 2, 1500.0, 0.0, 20.0, *NO_ATTRIBUTES),
            ],
            dtype=JOB,
        ),
        stages=np.array(
            [
                (0, 3, 2, 2, 1, 0, 0, 1, 20.0, 1.0, 0.0, 0.0, 0.0),
                (0, 1, 1, 1, 0, 0, -1, 0, 30.0, 1.0, 0.5, 0.0, 0.0),
                (1, 4, 4, 4, 0, 0, 1, 1, 5.0, 1.0, 0.0, 0.0, 0.0),
            ],
            dtype=STAGE,
        ),
        classes=np.array([(4, 3, 1.0, 0.5), (1, 1, 2.0, 4.0)], dtype=CLASS),
        profiles=(chain(stage(2, 20.0), stage(1, 30.0)), job(stage(4, 5.0))),
    )


class Greedy:
    """Scheduler that gives all offered executors to the first schedulable stage, in order of arrival."""

    def reset(self, config: ClusterConfig) -> None:
        """Keep no state."""

    def decide(self, observation: Observation) -> Decision:
        """Return the first schedulable stage."""
        return greedy(observation)


def greedy(observation: Observation) -> Decision:
    """Give all offered executors to the first schedulable stage."""
    return give(observation, int(np.flatnonzero(observation.schedulable)[0]))


def give(observation: Observation, stage: int, count: int | None = None) -> Decision:
    """Return the decision that commits ``count`` executors (by default all offered ones) to a stage."""
    held = observation.held(int(observation.stage_job[stage]))
    return Decision(stage, held + (observation.offered if count is None else count))


def finish(
    cluster: Cluster, decide: Callable[[Observation], Decision | None] = greedy
) -> tuple[EpisodeRecord, list[float]]:
    """Run an episode to its end; return record and rewards."""
    rewards = []
    while not cluster.done:
        observation = cluster.observe()
        cluster.decide(decide(observation) if observation.num_schedulable else None)
        rewards.append(cluster.reward())
    return cluster.record(), rewards


def runs(record: EpisodeRecord) -> list[tuple[int, int, int, int, float, float]]:
    """Return (job, stage, task, executor, start in ms, finish in ms) of all tasks."""
    table = record.tasks()[["job", "stage", "task", "executor", "start_ms", "finish_ms"]]
    return list(table.itertuples(index=False, name=None))
