"""Slots of executors: cores, other resources, resource profiles, and executors without a registration event."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import cases
from tests.workloads.spark.logs import LogBuilder, stage_info
from workloads import WorkloadError, read_event_log
from workloads.spark.reader import MOST_CORES


def configured(log: LogBuilder, **properties: Any) -> LogBuilder:
    """Add properties of the application; their names have ``_`` for ``.``, without ``spark``."""
    named = {f"spark.{name.replace('_', '.')}": str(value) for name, value in properties.items()}
    return log.add("EnvironmentUpdate", **{"Spark Properties": named})


def profile(log: LogBuilder, number: int, executor: dict[str, float], task: dict[str, float]) -> LogBuilder:
    """Add a resource profile, as Spark writes those of stage-level scheduling."""
    requests = (
        {name: {"Resource Name": name, "Amount": amount} for name, amount in of.items()} for of in (executor, task)
    )
    names = ("Executor Resource Requests", "Task Resource Requests")
    return log.add("ResourceProfileAdded", **{"Resource Profile Id": number}, **dict(zip(names, requests, strict=True)))


def devices(**counts: int) -> dict[str, Any]:
    """Return the field ``Resources`` of an executor with the given numbers of devices."""
    return {
        "Resources": {
            name: {"name": name, "addresses": [str(place) for place in range(count)]} for name, count in counts.items()
        }
    }


def slots(tmp_path: Any, log: LogBuilder) -> dict[str, int]:
    """Return the slots of each executor of a log, to which a job of one task on executor 1 is added."""
    log.job(0, [stage_info(0, 1)], at=2000).run(0, 2000, 2100, executor="1").job_end(0, 2100).end()
    [application] = read_event_log(log.write(tmp_path / "log"))
    return {executor.name: executor.slots for executor in application.executors}


@cases(
    "properties, expected",
    ({}, 8),
    ({"task_cpus": 3}, 2),
    ({"task_cpus": 16}, 1),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 1}, 1),
    ({"executor_resource_gpu_amount": 2, "task_resource_gpu_amount": 1}, 2),
    ({"executor_resource_gpu_amount": 3, "task_resource_gpu_amount": 2}, 1),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0.25}, 4),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0.2}, 5),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0.333}, 3),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0.1}, 8),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0.1666666667}, 5),
    # A task never uses halves of two devices.
    ({"executor_resource_gpu_amount": 3, "task_resource_gpu_amount": 0.7}, 3),
    ({"executor_resource_gpu_amount": 2, "task_resource_gpu_amount": 0.4}, 4),
    (
        {
            "executor_resource_gpu_amount": 4, "task_resource_gpu_amount": 1,
            "executor_resource_fpga_amount": 1, "task_resource_fpga_amount": 0.5,
        },
        2,
    ),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0.25, "task_cpus": 4}, 2),
    # Tasks need none, or the number of the executor is unknown.
    ({"executor_resource_gpu_amount": 1}, 8),
    ({"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 0}, 8),
    ({"task_resource_gpu_amount": 1}, 8),
    ({"executor_resource_gpu_discoveryScript": "x.sh", "executor_resource_gpu_vendor": "v"}, 8),
)  # fmt: skip
def test_the_scarcest_resource_limits_the_tasks_at_once(tmp_path, properties, expected):
    assert slots(tmp_path, configured(LogBuilder(), **properties).executor("1", cores=8)) == {"1": expected}
    # It does not matter whether the properties come before or after the executor.
    assert slots(tmp_path, configured(LogBuilder().executor("1", cores=8), **properties)) == {"1": expected}


def test_devices_of_the_executor_come_before_the_configuration(tmp_path):
    log = configured(LogBuilder(), executor_resource_gpu_amount=1, task_resource_gpu_amount=1)
    log.executor("1", cores=8, **devices(gpu=2)).executor("2", cores=8, **devices()).executor("3", cores=8)
    assert slots(tmp_path, log) == {"1": 2, "2": 1, "3": 1}
    log = configured(LogBuilder(), task_resource_gpu_amount=0.5).executor("1", cores=8, **devices(gpu=3, other=1))
    assert slots(tmp_path, log) == {"1": 6}


def test_stage_level_scheduling(tmp_path):
    """Each executor has a resource profile; profile 0 is the configuration, which Spark also writes as an event."""
    log = configured(LogBuilder(), task_cpus=2)
    profile(log, 0, {"cores": 8, "memory": 1024}, {"cpus": 2.0})
    profile(log, 1, {"cores": 4, "gpu": 1}, {"cpus": 1.0, "gpu": 0.5})
    profile(log, 2, {"cores": 8}, {"cpus": 8.0})
    log.executor("1", cores=8, **{"Resource Profile Id": 0})
    log.executor("2", cores=4, **{"Resource Profile Id": 1})
    log.executor("3", cores=4, **{"Resource Profile Id": 1}, **devices(gpu=2))
    log.executor("4", cores=8, **{"Resource Profile Id": 2}).executor("5", cores=8, **{"Resource Profile Id": 9})
    assert slots(tmp_path, log) == {"1": 4, "2": 2, "3": 4, "4": 1, "5": 4}
    gpu = {"executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 1}
    log = profile(configured(LogBuilder(), **gpu), 0, {"cores": 4}, {"cpus": 1.0})
    log = profile(log, 1, {"cores": 4}, {"cpus": 2.0}).executor("1", cores=4)
    assert slots(tmp_path, log.executor("2", cores=4, **{"Resource Profile Id": 1})) == {"1": 1, "2": 2}
    log = profile(configured(LogBuilder(), task_cpus=2), 0, {}, {"cpus": 4.0}).executor("1", cores=8)
    assert slots(tmp_path, log) == {"1": 2}  # the event is what Spark used


def test_stages_on_executors_of_another_profile_are_noted(tmp_path):
    """Without dynamic allocation, Spark lets a stage choose what its tasks need, not its executors."""
    log = LogBuilder()
    profile(log, 1, {}, {"cpus": 4.0}).executor("1", cores=4)
    for job, number in enumerate((0, 1)):
        log.job(job, [stage_info(job, 1) | {"Resource Profile Id": number}], at=2000)
        log.run(job, 2000, 2100, executor="1").job_end(job, 2100)
    [application] = read_event_log(log.end().write(tmp_path / "log"))
    assert application.executors[0].slots == 4
    assert application.report.problems == (
        f"{tmp_path}/log: 1 stages ran on executors of another resource profile; "
        "the slots are those of the executors' profile",
    )


@cases(
    "properties, message",
    ({"task_resource_gpu_amount": "-1"}, "amount of a resource: -1"),
    ({"task_cpus": "many"}, "could not convert string to float: 'many'"),
    ({"executor_resource_gpu_amount": "1e30"}, "amount of a resource: 1e30"),
    ({"executor_resource_gpu_amount": "nan"}, "amount of a resource: nan"),
)
def test_amounts_that_are_refused(tmp_path, properties, message):
    with pytest.raises(WorkloadError, match=f"log:3: SparkListenerEnvironmentUpdate without a usable {message}"):
        slots(tmp_path, configured(LogBuilder(), **properties))


def test_extreme_amounts(tmp_path):
    for tiny in ("1e-300", "0"):
        properties = {"task_cpus": tiny, "task_resource_gpu_amount": tiny, "executor_resource_gpu_amount": 1}
        assert slots(tmp_path, configured(LogBuilder(), **properties).executor("1", cores=4)) == {"1": 4}
    assert slots(tmp_path, LogBuilder().executor("1", cores=MOST_CORES)) == {"1": MOST_CORES}
    with pytest.raises(WorkloadError, match=f"Total Cores: 65537, expected at most {MOST_CORES}"):
        slots(tmp_path, LogBuilder().executor("1", cores=MOST_CORES + 1))
    assert slots(tmp_path, configured(LogBuilder(), master="local[999999999]")) == {"1": MOST_CORES}


def at_once(log: LogBuilder, *tasks: tuple[str, int, int, int]) -> LogBuilder:
    """Add a job with a task for each (executor, launch, finish, time in its code)."""
    log.job(0, [stage_info(0, len(tasks))], at=2000).submit(0, 2000)
    for place, (executor, start, end, run) in enumerate(tasks):
        log.task(0, place, executor, start, end, metrics={"Executor Run Time": run})
    end = max(task[2] for task in tasks)
    return log.complete(0, end).job_end(0, end).end(end)


def unregistered(tmp_path: Any, log: LogBuilder, *tasks: tuple[str, int, int, int]) -> dict[str, int]:
    [application] = read_event_log(at_once(log, *tasks).write(tmp_path / "log"))
    return {executor.name: executor.slots for executor in application.executors}


FOUR = [("driver", 2000 + place, 3000, 900) for place in range(4)]


@cases(
    "master, expected",
    ("local[6]", 6), ("local[6, 3]", 6), ("local[6,3]", 6), ("local[2]", 4), ("local", 4), ("local[*]", 4),
    ("local[*, 2]", 4), ("local-cluster[2, 5, 1024]", 5), ("yarn", 4), ("spark://local:7077", 4), ("", 4),
)  # fmt: skip
def test_executors_that_are_not_registered_have_the_cores_of_the_master(tmp_path, master, expected):
    """And at least as many slots as tasks ran at once."""
    assert unregistered(tmp_path, configured(LogBuilder(), master=master), *FOUR) == {"driver": expected}


def test_tasks_at_once_are_those_whose_code_ran_at_once(tmp_path):
    """A slot takes its next task before the driver has noted the end of the task before."""
    handed_over = [("1", 2000, 2110, 95), ("1", 2100, 2210, 95), ("1", 2200, 2300, 95)]
    assert unregistered(tmp_path, LogBuilder(), *handed_over) == {"1": 1}
    in_a_row = [("1", 2000, 2100, 100), ("1", 2100, 2200, 100)]
    assert unregistered(tmp_path, LogBuilder(), *in_a_row) == {"1": 1}
    without_metrics = [("1", 2000, 2110, 0), ("1", 2100, 2210, 0)]
    assert unregistered(tmp_path, LogBuilder(), *without_metrics) == {"1": 2}
    longer_than_the_task = [("1", 2000, 2100, 999), ("1", 2100, 2200, 999)]
    assert unregistered(tmp_path, LogBuilder(), *longer_than_the_task) == {"1": 1}


def test_executors_that_are_not_registered_are_alike(tmp_path):
    tasks = [*FOUR[:2], ("2", 2000, 2100, 90)]
    assert unregistered(tmp_path, LogBuilder(), *tasks) == {"driver": 2, "2": 2}
    log = configured(LogBuilder(), executor_cores=8, task_cpus=2)
    assert unregistered(tmp_path, log, *tasks) == {"driver": 4, "2": 4}
    log = LogBuilder().executor("7", cores=6).executor("8", cores=6).executor("9", cores=2)
    assert unregistered(tmp_path, log, *tasks) == {"7": 6, "8": 6, "9": 2, "driver": 6, "2": 6}
    gpu = {"executor_cores": 8, "executor_resource_gpu_amount": 1, "task_resource_gpu_amount": 1}
    assert unregistered(tmp_path, configured(LogBuilder(), **gpu), ("1", 2000, 2100, 90)) == {"1": 1}


def test_slots_decide_waves_and_levels(tmp_path):
    """Four tasks at once on an executor without registration are the first in their slots, on four executors."""
    [application] = read_event_log(at_once(configured(LogBuilder(), master="local[4]"), *FOUR).write(tmp_path / "log"))
    [query] = application.queries
    assert query.tasks["slot"].tolist() == [0, 1, 2, 3]
    assert set(query.tasks["level"]) == {4}
    assert len(set(query.tasks["wave"])) == 1
