"""A value of a wrong type raises a one-line error that names its field; NumPy numbers are numbers."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator import (
    Cluster,
    ClusterConfig,
    ClusterEnv,
    ConfigError,
    ExecutorClass,
    Grid,
    GridConfig,
    GridEnv,
    ReferenceCluster,
    SchedulingError,
    Semantics,
    make_cluster,
    run_episode,
)
from simulator.cluster.texts import parse_classes
from tests.cases import cases
from tests.decima.schedulers.own_schedulers import Greedy
from tests.refusal import one_line
from workloads import (
    DecimaError,
    Excerpt,
    JobDistribution,
    JobProfile,
    JobSequence,
    JobSets,
    RandomStream,
    StageProfile,
    TaskDurations,
    Workload,
    WorkloadError,
    batch_arrivals,
    draw_jobs,
    embedded_tpch,
    import_event_logs,
    load_tpch,
    load_tpch_job,
    open_workload,
    poisson_arrivals,
    random_dag,
    random_stream,
    read_alibaba,
    read_event_log,
    read_swf,
    read_wfcommons,
    read_workload,
    scaled,
    simplified,
    synthetic_profiles,
    trace_arrivals,
    uniform_memory,
    write_workload,
)
from workloads.windows import windows

SETS = draw_jobs(JobDistribution(), load=0.5, sets=1, seed=0)
TASKS = TaskDurations.constant(100.0)
STAGE = StageProfile(2, TASKS)
JOB = JobProfile("job", (STAGE,))
JOBS = batch_arrivals([JOB], 2, seed=0)


class Decides:
    """Scheduler that makes a constant decision of any type."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision

    def reset(self, config: ClusterConfig) -> None:
        """Keep no state."""

    def decide(self, observation: Any) -> Any:
        return self.decision


#: One example of each kind of check; arguments without any check are found below.
WORKLOADS: dict[str, Callable[[], Any]] = {
    "rest_ms must be a number, got '2'": lambda: TaskDurations.constant("2"),
    "fresh_ms must be a number, got True": lambda: TaskDurations.constant(1, fresh_ms=True),
    "durations must be an array of float64, got bool": lambda: TaskDurations.sampled([True]),
    "fresh must be of the type dict, got 3": lambda: TaskDurations.from_tables(3, {}, {}),
    "durations at level 1 must be an array of numbers": lambda: TaskDurations.from_tables({}, {}, {1: 2.0}),
    "the number of tasks must be a whole number of 1 to 200,000,000, got '2'": lambda: StageProfile("2", TASKS),
    "name must be of the type str, got None": lambda: StageProfile(2, TASKS, None),
    "the memory demand must be a number, got False": lambda: StageProfile(2, TASKS, memory=False),
    "name must be of the type str, got 3": lambda: JobProfile(3, (STAGE,)),
    "stages[1] must be of the type StageProfile, got 'map'": lambda: JobProfile("job", (STAGE, "map")),
    "profiles[0] must be of the type JobProfile, got 1": lambda: JobSequence([1], [0.0]),
    "arrival_ms must be numbers, got ['0']": lambda: JobSequence([JOB], ["0"]),
    "the seed must be a whole number that is not negative, got '0'": lambda: JobSequence([JOB], [0], "0"),
    "num_jobs must be a whole number of 1 to 10,000,000, got '2'": lambda: batch_arrivals([JOB], "2", seed=0),
    "num_jobs must be a whole number of 1 to 10,000,000, got True": lambda: batch_arrivals([JOB], True, seed=0),
    "profiles must be several of the type JobProfile, got 'tpch'": lambda: batch_arrivals("tpch", 2, seed=0),
    "mean_interval_ms must be a number, got '3'": lambda: poisson_arrivals([JOB], 2, "3", seed=0),
    "the length of a window must be a number, got '2'": lambda: windows(JOBS, "2"),
    "profile must be of the type JobProfile, got 5": lambda: scaled(5),
    "num_profiles must be a whole number of at least 1, got '5'": lambda: synthetic_profiles("5"),
    "profiles[0] must be of the type JobProfile, got 'x'": lambda: Workload(["x"]),
    "from_s must be a number, got '2'": lambda: Excerpt(from_s="2"),
    "speed_up must be a number, got True": lambda: Excerpt(speed_up=True),
    "short must be of the type tuple, got 3": lambda: JobDistribution(short=3),
    "distribution must be of the type JobDistribution, got 'code'": lambda: draw_jobs("code", load=0.5, sets=1, seed=0),
}
CLUSTERS: dict[str, Callable[[], Any]] = {
    "moving_delay_ms: expected a number, got '2'": lambda: ClusterConfig(moving_delay_ms="2"),
    "max_time_ms: expected a number, got True": lambda: ClusterConfig(max_time_ms=True),
    "num_executors: expected a whole number, got '5'": lambda: ClusterConfig("5"),
    "executor_classes[0]: expected a value of the type ExecutorClass, got '5'": lambda: ClusterConfig(
        executor_classes=["5"]
    ),
    "semantics: expected a value of the type Semantics, got 3": lambda: ClusterConfig(semantics=3),
    "reward: expected a text, got 3": lambda: ClusterConfig(reward=3),
    "engine: expected 'compiled' or 'simpy', got 'simpi' (did you": lambda: ClusterConfig(engine="simpi"),
    "nearest_level: expected true or false, got 'no'": lambda: Semantics(nearest_level="no"),
    "executor classes must be of the type str, got 3": lambda: parse_classes(3),
    "config must be of the type ClusterConfig, got 3": lambda: run_episode(3, JOBS, Greedy()),
    "sequence must be of the type JobSequence, got [1, 2]": lambda: run_episode(ClusterConfig(), [1, 2], Greedy()),
    "scheduler must have the methods decide and reset, got 'fair'": lambda: run_episode(ClusterConfig(), JOBS, "fair"),
    "scheduler must be an object, got the class Greedy: call it": lambda: run_episode(ClusterConfig(), JOBS, Greedy),
}
DECISIONS = {
    "decide must return a Decision of a stage and a limit, or None, got 3": 3,
    "decide must return a Decision of a stage and a limit, or None, got (1,)": (1,),
    "decide must return a Decision of a stage and a limit, or None, got (1, 2, 3)": (1, 2, 3),
    "a decision is a stage and a limit, all of them whole numbers, got 0, True": (0, True),
    "a decision is a stage and a limit, all of them whole numbers, got a, b": "ab",
}


@cases(
    "call, error, message",
    *[pytest.param(call, WorkloadError, message, id=message) for message, call in WORKLOADS.items()],
    *[pytest.param(call, ConfigError, message, id=message) for message, call in CLUSTERS.items()],
    *[
        pytest.param(
            lambda decision=decision: run_episode(ClusterConfig(2), JOBS, Decides(decision)),
            SchedulingError,
            message,
            id=message,
        )
        for message, decision in DECISIONS.items()
    ],
)
def test_a_wrong_type_is_refused_with_its_field(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    assert one_line(error, call).startswith(message)


LOG = "tests/no-such-log"
#: Public functions and classes, with arguments that are right or only lack a file.
CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    batch_arrivals: {"profiles": [JOB], "num_jobs": 2, "seed": 0},
    poisson_arrivals: {"profiles": [JOB], "num_jobs": 2, "mean_interval_ms": 3.0, "seed": 0},
    trace_arrivals: {"profiles": [JOB], "arrival_ms": [0.0], "seed": 0},
    uniform_memory: {"sequence": JOBS},
    scaled: {"profile": JOB, "durations": 1.0, "tasks": 1.0},
    simplified: {"profile": JOB},
    synthetic_profiles: {"num_profiles": 2, "seed": 0},
    random_dag: {"num_stages": 3, "random": np.random.default_rng(0)},
    random_stream: {"seed": 0, "purpose": RandomStream.POLICY},
    embedded_tpch: {"sizes": ["2g"], "queries": [1]},
    open_workload: {"name_or_path": "synthetic"},
    read_workload: {"path": LOG},
    write_workload: {"path": f"{LOG}/x.json", "workload": Workload((JOB,))},
    read_swf: {"path": LOG},
    read_wfcommons: {"paths": [LOG]},
    read_alibaba: {"path": LOG},
    read_event_log: {"path": LOG},
    import_event_logs: {"paths": [LOG]},
    load_tpch: {"directory": LOG, "sizes": ["2g"], "queries": [1]},
    load_tpch_job: {"directory": LOG, "size": "2g", "query": 1},
    draw_jobs: {"distribution": JobDistribution(), "load": 0.5, "steps": 5, "sets": 1, "seed": 0},
    JobDistribution: dict.fromkeys(("num_resources", "slots"), 20) | {"short": (1, 3), "short_share": 0.5},
    Excerpt: {"from_s": 0.0, "until_s": 1.0, "sample": 2, "seed": 0, "speed_up": 1.0, "scale_tasks": 1.0},
    Workload: {"profiles": (JOB,), "sequence": JOBS, "name": "x", "about": {}},
    JobProfile: {"name": "x", "stages": (STAGE,), "edges": np.zeros((0, 2), int)},
    StageProfile: {"num_tasks": 1, "durations": TASKS, "name": "", "cpu": 1.0, "memory": 0.0},
    TaskDurations: {"levels": TASKS.levels, "values": TASKS.values, "cells": TASKS.cells, "mean_ms": 1.0},
    JobSequence: {"profiles": (JOB,), "arrival_ms": [0.0], "seed": 0},
    JobSets: {name: getattr(SETS, name) for name in ("enter", "duration", "demand", "num_jobs", "steps")},
    ClusterConfig: {each.name: getattr(ClusterConfig(2), each.name) for each in fields(ClusterConfig)},
    ExecutorClass: {"count": 1, "cpu": 1.0, "memory": 1.0},
    Semantics: {"nearest_level": True},
    run_episode: {"config": ClusterConfig(2), "sequence": JOBS, "scheduler": Greedy()},
    make_cluster: {"config": ClusterConfig(2), "sequence": JOBS},
    Cluster: {"config": ClusterConfig(2), "sequence": JOBS},
    ReferenceCluster: {"config": ClusterConfig(2), "sequence": JOBS},
    ClusterEnv: {"make_sequence": lambda seed: JOBS, "config": None, "max_jobs": 2, "max_stages": 5, "view": None},
    Grid: {"config": GridConfig(), "jobs": SETS},
    GridConfig: {each.name: getattr(GridConfig(), each.name) for each in fields(GridConfig)},
    GridEnv: {"make_jobs": lambda seed: SETS, "config": GridConfig()},
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_any_argument_of_any_type_is_taken_or_refused_in_one_line(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = []
    for name in CALLS[call]:
        for wrong in ("2", True, None, object(), [1], 3, 2.5, {}, {1: 2}):
            try:
                call(**{**CALLS[call], name: wrong})
            except DecimaError as error:
                messages.append(str(error))
    assert messages
    assert not any("\n" in message for message in messages)


def test_numbers_of_numpy_are_numbers() -> None:
    config = ClusterConfig(np.int64(5), moving_delay_ms=np.float32(2), max_time_ms=np.int32(10**6))
    assert config == ClusterConfig(5, moving_delay_ms=2.0, max_time_ms=1e6)
    assert type(config.num_executors) is int
    assert type(config.moving_delay_ms) is float
    stage = StageProfile(np.int8(3), TaskDurations.constant(np.float64(5.0)), cpu=np.int64(1))
    jobs = poisson_arrivals([JobProfile("job", [stage])], np.uint16(2), np.float32(3.0), seed=np.int64(1))
    assert run_episode(config, jobs, Greedy()).metrics()["completed_jobs"] == 2
    many = 10**5000
    with pytest.raises(ConfigError, match="moving_delay_ms: expected a number below 1e308, got a int"):
        ClusterConfig(moving_delay_ms=many)
