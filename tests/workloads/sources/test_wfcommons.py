"""Workflows in WfFormat: jobs, arrivals, and rejected files."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.refusal import refusal
from workloads import JobProfile, Wave, WorkloadError, read_wfcommons

Shared = Callable[[str], Path]


def document(
    parents: dict[str, str], runtimes: dict[str, float] | None = None, executed: str | None = None, **measured: Any
) -> dict[str, Any]:
    """Return a workflow; words after a task are its parents, runtimes are 1 s, measurements may be added."""
    children = {task: [other for other in parents if task in parents[other].split()] for task in parents}
    execution = {
        "makespanInSeconds": 1,
        "tasks": [{"id": task, "runtimeInSeconds": (runtimes or {}).get(task, 1), **measured} for task in parents],
    }
    return {
        "name": "toy",
        "schemaVersion": "1.5",
        "createdAt": "2020-04-03T12:00:00Z",
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": task, "id": task, "parents": parents[task].split(), "children": children[task]}
                    for task in parents
                ]
            },
            "execution": execution if executed is None else execution | {"executedAt": executed},
        },
    }


def write(folder: Path, content: object, name: str = "toy.json") -> Path:
    path = folder / name
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(folder: Path, content: object, **options: Any) -> JobProfile:
    return read_wfcommons([write(folder, content)], **options).profiles[0]


def stages(job: JobProfile) -> list[tuple[str, int, tuple[str, ...]]]:
    """Return names of stages, numbers of tasks, names of parents."""
    return [
        (stage.name, stage.num_tasks, tuple(job.stages[parent].name for parent in parents))
        for stage, parents in zip(job.stages, job.parents, strict=True)
    ]


DIAMOND = {
    "split": "", "work_1": "split", "work_2": "split", "work_ID003": "split", "merge": "work_1 work_2 work_ID003",
}  # fmt: skip


@pytest.mark.parametrize("name", ["toy.json", "toy.json.gz"])
def test_tasks_of_a_program_with_the_same_neighbours_are_a_stage(tmp_path: Path, name: str) -> None:
    runtimes = {"work_1": 2.5, "work_2": 3.0, "work_ID003": 0.0}
    workload = read_wfcommons([write(tmp_path, document(DIAMOND, runtimes), name)])
    (job,) = workload.profiles
    assert job.name == "toy"
    assert stages(job) == [("split", 1, ()), ("work", 3, ("split",)), ("merge", 1, ("work",))]
    assert job.stages[1].durations.values.tolist() == [2500, 3000, 0]
    assert (job.stages[0].durations.spread, job.work_ms) == ((1000, 1000), pytest.approx(7500))
    (alike,) = read_wfcommons([write(tmp_path, document(DIAMOND), name)]).profiles
    assert alike.stages[1].durations.table(Wave.REST)[1].tolist() == [1000]
    assert {(stage.cpu, stage.memory) for stage in job.stages} == {(1, 0)}


@cases(
    "parents",
    {"a_1": "", "a_2": "", "b_1": "a_1", "b_2": "a_2"},  # chains side by side
    {"a_1": "", "a_2": "", "b_1": "a_1 a_2", "b_2": "a_1"},
    {"a_1": "", "b_2": ""},  # different programs
    {"a_1": "", "a_2": "a_1"},
)
def test_other_tasks_are_stages_of_their_own(tmp_path: Path, parents: dict[str, str]) -> None:
    job = read(tmp_path, document(parents))
    assert job.num_stages == len(parents)
    assert len(job.edges) == sum(len(each.split()) for each in parents.values())


def test_demands_names_and_arrivals_of_workflows(tmp_path: Path) -> None:
    for left_out in ("parents", "children"):
        content = document(DIAMOND)
        for task in content["workflow"]["specification"]["tasks"]:
            task[left_out] = []
        assert len(read(tmp_path, content).edges) == 2
    assert [name for name, _, _ in stages(read(tmp_path, document({"42": "", "x": ""})))] == ["42", "x"]
    content = document({"a_1": "", "a_2": "", "b": "a_1"}, coreCount=2, memoryInBytes=2**30)
    measured = content["workflow"]["execution"]["tasks"]
    measured[1]["coreCount"] = 3
    measured[2] = {"id": "b", "runtimeInSeconds": 1}
    content["workflow"]["specification"]["tasks"][1]["children"] = ["b"]
    job = read(tmp_path, content, executor=(4, 8))
    assert [(stage.cpu, stage.memory) for stage in job.stages] == [(0.75, 0.125), (1, 0)]
    assert {(stage.cpu, stage.memory) for stage in read(tmp_path, content).stages} == {(1, 0)}
    content = document({"x": ""})
    del content["createdAt"]
    workload = read_wfcommons([write(tmp_path, document({"x": ""}), "a.json"), write(tmp_path, content, "b.json")])
    assert workload.sequence is not None
    assert (workload.sequence.arrival_ms.tolist(), workload.about["arrivals"]) == ([0, 0], "all at once")
    path = write(tmp_path, document(DIAMOND))
    with pytest.raises(WorkloadError, match="2 are named 'toy'"):
        read_wfcommons([path, path])
    with pytest.raises(WorkloadError, match="at least one file"):
        read_wfcommons([])


@pytest.fixture
def _own_time_zone() -> Iterator[None]:
    yield
    time.tzset()


@cases(
    "executed, clock, arrival_s, names",
    (("2020-12-27T18:23:37+00:00", "20201227T182307+0000", "12-27-20T18:24:07Z"), "executedAt", [0, 30, 60], "bac"),
    (("2020-12-27T18:23:37", "2020-12-27T18:23:37Z", "2020-12-27T08:23:38-10:00"), "executedAt", [0, 0, 1], "abc"),
    (("2020-12-27T18:23:37", "yesterday", "2020-12-27T18:23:37"), "createdAt", [0, 1, 2], "abc"),
    ((None, "2020-12-27T18:23:37", None), "createdAt", [0, 1, 2], "abc"),
)
@pytest.mark.usefixtures("_own_time_zone")
def test_jobs_arrive_when_they_ran_or_were_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    executed: tuple[str | None, ...],
    clock: str,
    arrival_s: list[float],
    names: str,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # the reader's time zone does not matter
    time.tzset()
    paths = []
    for second, (name, text) in enumerate(zip("abc", executed, strict=True)):
        content = document({"x": ""}, executed=text) | {"createdAt": f"2020-12-30T00:00:0{second}"}
        paths.append(write(tmp_path, content, f"{name}.json"))
    workload = read_wfcommons(paths)
    assert workload.sequence is not None
    assert workload.sequence.arrival_ms.tolist() == [1000 * each for each in arrival_s]
    assert "".join(job.name for job in workload.profiles) == names
    assert workload.about["arrivals"] == clock


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    content = document(DIAMOND)
    change(content)
    return content


def tasks(content: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = content["workflow"]["specification"]["tasks"]
    return found


def measured(content: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = content["workflow"]["execution"]["tasks"]
    return found


PLACE = "workflow.specification.tasks"


@cases(
    "content, message",
    (changed(lambda each: each.update(schemaVersion="1.4")), "schemaVersion: expected '1.5', got '1.4'"),
    (changed(lambda each: each["workflow"].pop("execution")), "workflow.execution: this key is required"),
    (changed(lambda each: tasks(each).clear()), f"{PLACE}: expected at least one entry"),
    (
        changed(lambda each: tasks(each)[1]["parents"].append("nobody")),
        f"{PLACE}[1].parents[1]: expected the id of a task, got 'nobody'",
    ),
    (
        changed(lambda each: tasks(each)[4]["children"].append("nobody")),
        f"{PLACE}[4].children[0]: expected the id of a task, got 'nobody'",
    ),
    (changed(lambda each: tasks(each)[0]["parents"].append("merge")), "the stages form a cycle: 0 -> 1 -> 2"),
    (changed(lambda each: tasks(each)[0]["parents"].append("split")), "the stages form a cycle: 0"),
    (changed(lambda each: tasks(each)[2].update(id="work_1")), f"{PLACE}[1].id: another task has this id"),
    (changed(lambda each: measured(each).pop(0)), f"{PLACE}[0]: workflow.execution.tasks has no runtime of 'split'"),
    (
        changed(lambda each: measured(each)[1].update(runtimeInSeconds=-1)),
        "workflow.execution.tasks[1].runtimeInSeconds: expected greater than or equal to 0, got -1",
    ),
    (
        changed(lambda each: measured(each)[0].update(memoryInBytes=float("nan"))),
        "workflow.execution.tasks[0].memoryInBytes: expected a finite number, got nan",
    ),
)
def test_malformed_workflows_are_refused_with_the_place(tmp_path: Path, content: object, message: str) -> None:
    assert refusal(lambda path: read_wfcommons([path]), WorkloadError, write(tmp_path, content)) == message


def test_instances_of_wfcommons(shared: Shared) -> None:
    files = sorted(shared("traces/wfinstances/original").glob("*.json.gz"))
    workload = read_wfcommons(files)
    assert len(workload.profiles) == 32
    assert sum(job.num_stages for job in workload.profiles) == 1184
    assert sum(job.num_tasks for job in workload.profiles) == 2428
    assert workload.about["arrivals"] == "executedAt"
    jobs = {job.name: job for job in workload.profiles}
    blast = jobs["makeflow__blast__blast-chameleon-large-001"]
    assert [(stage.name, stage.num_tasks) for stage in blast.stages] == [
        ("split_fasta", 1), ("blastall", 100), ("cat_blast", 1), ("cat", 1),
    ]  # fmt: skip
    assert blast.work_ms == pytest.approx(154_331_200, rel=1e-6)
