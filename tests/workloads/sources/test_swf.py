"""Job logs in Standard Workload Format: reading, rejected files, and jobs for a grid and a cluster."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.schedulers.fifo import Fifo
from simulator import ClusterConfig, ExecutorClass, run_episode
from tests.cases import cases
from tests.refusal import one_line
from workloads import Excerpt, JobProfile, JobSets, SwfLog, WorkloadError, read_swf, read_swf_workload, swf_jobs
from workloads.errors import ConfigError
from workloads.imperfections import Imperfections

Shared = Callable[[str], Path]

LOGS = (
    "NASA-iPSC-1993-3.1-cln", "hpc2n_first3171", "lublin-aaroh", "lublin_256", "mira", "theta_argonne", "wagap-2013",
)  # fmt: skip

HEADER = """\
; Version: 2.2
;   Computer: Toy
; Information: http://example.org
;              http://example.org/more
; MaxProcs: 64 (since 1999)
; Note: the first note
; Note: the second note
;
"""


def line(
    submit: Any = 0,
    run: Any = 100,
    allocated: Any = 4,
    used_memory: Any = -1,
    processors: Any = -1,
    memory: Any = -1,
    status: Any = 1,
    user: Any = -1,
    group: Any = -1,
    queue: Any = -1,
) -> str:
    """Return the line of a job, 18 fields."""
    known = (1, submit, 5, run, allocated, -1, used_memory, processors, 200, memory, status)
    fields = (*known, user, group, -1, queue, -1, -1, -1)
    return " ".join(str(each) for each in fields)


def write(folder: Path, *lines: str, header: str = "", name: str = "toy.swf") -> Path:
    path = folder / name
    text = header + "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@cases(
    "tenants, names",
    ("user", ["user-3", "user-12", "default"]),
    ("group", ["group-1", "group-1", "group-2"]),
    ("queue", ["queue-0", "default", "queue-5"]),
    (None, []),
)
def test_the_tenant_of_a_job_is_a_field_of_the_log(tmp_path: Path, tenants: Any, names: list[str]) -> None:
    lines = (
        line(submit=0, user=3, group=1, queue=0),
        line(submit=9, user=12, group=1),
        line(submit=5, group=2, queue=5),
    )
    log = write(tmp_path, *lines)
    found = read_swf_workload(log, tenants=tenants).sequence
    assert found is not None
    order = [0, 2, 1]  # of submission
    assert [each.tenant for each in found.attributes] == ([names[place] for place in order] if names else [])
    with pytest.raises(WorkloadError, match="tenants must be 'user', 'group' or 'queue', got 'pool'"):
        read_swf_workload(log, tenants="pool")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["toy.swf", "toy.swf.gz"])
def test_what_a_log_holds(tmp_path: Path, name: str) -> None:
    log = read_swf(
        write(
            tmp_path,
            line(submit=10, run=60.5, allocated=8, used_memory=100),
            "",
            "  " + line(submit=20, run=30, allocated=-1, processors=16, memory=50).replace(" ", "\t  "),
            "; a comment in between",
            line(submit=20, run=40, allocated=2),
            header=HEADER,
            name=name,
        )
    )
    assert len(log) == 3
    assert (log.submit_s.tolist(), log.run_s.tolist()) == ([10, 20, 20], [60.5, 30, 40])
    assert (log.processors.tolist(), log.processors.dtype) == ([8, 16, 2], np.int64)
    np.testing.assert_array_equal(log.memory_kb, [800, 800, np.nan])
    assert log.header == {
        "Version": "2.2", "Computer": "Toy", "Information": "http://example.org", "MaxProcs": "64 (since 1999)",
        "Note": "the first note",
    }  # fmt: skip
    assert (log.max_processors, log.dropped) == (64, {})
    assert log.summary() == f"{name}: 3 jobs on 64 processors"


def test_a_log_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path, line(), line())
    log = read_swf(path)
    assert read_swf(str(path)) is log
    with pytest.raises(ValueError, match="read-only"):
        log.submit_s[0] = 1
    write(tmp_path, line(), line(), line())
    assert len(read_swf(path)) == 3


def test_processors_memory_and_dropped_jobs_of_a_log(tmp_path: Path) -> None:
    sizes = ((8, 16), (16, 8), (-1, 16), (0, 16), (8, -1))
    each = [line(allocated=allocated, processors=asked, used_memory=10) for allocated, asked in sizes]
    log = read_swf(write(tmp_path, *each))
    assert (log.processors.tolist(), log.memory_kb.tolist()) == ([8, 16, 16, 16, 8], [80, 160, 160, 160, 80])
    log = read_swf(write(tmp_path, line(used_memory=10, memory=99), line(used_memory=0, memory=99)))
    assert log.memory_kb.tolist() == [40, 396]
    log = read_swf(write(tmp_path, line(), line(submit=-1, run=0, allocated=0), line(run=0, allocated=0)))
    assert log.dropped == {"unknown submit time": 1, "run time 0": 1}
    assert log.summary().endswith("dropped 1 with unknown submit time, 1 with run time 0")
    times = (30, 10, 20, 10)
    log = read_swf(write(tmp_path, *(line(submit, run=index + 1) for index, submit in enumerate(times))))
    assert (log.submit_s.tolist(), log.run_s.tolist(), log.num_unsorted) == ([10, 10, 20, 30], [2, 4, 3, 1], 2)
    assert log.summary() == "toy.swf: 4 jobs on 4 processors; 2 submit times out of order, now sorted"
    plain = read_swf(write(tmp_path, line(), line(submit=9)))
    extended = read_swf(write(tmp_path, line() + ' {3,3} "queue', line(submit=9) + " nan x;y"))
    assert extended.submit_s.tolist() == plain.submit_s.tolist()
    assert extended.processors.tolist() == plain.processors.tolist()
    path = tmp_path / "toy.swf"
    path.write_bytes("; Installation: Zürich\n; MaxProcs: 9\n".encode("latin-1") + line().encode())
    assert read_swf(path).max_processors == 9


@cases(
    "header, processors",
    ("; MaxNodes: 10\n; MaxProcs: 20\n", 20), ("; MaxNodes: 10\n", 10), ("; MaxNodes: 10\n; MaxProcs: -1\n", 10),
    ("; MaxNodes: unknown\n; MaxProcs:\n", 7), ("; MaxProcs: 0\n", 7), ("", 7),
)  # fmt: skip
def test_processors_of_the_machine(tmp_path: Path, header: str, processors: int) -> None:
    log = read_swf(write(tmp_path, line(allocated=7), line(allocated=5), header=header))
    assert log.max_processors == processors


@cases(
    "fields, why",
    ({"submit": -1}, "unknown submit time"),
    ({"run": -1}, "unknown run time"),
    ({"run": -300}, "unknown run time"),
    ({"run": 0}, "run time 0"),
    ({"allocated": -1}, "unknown number of processors"),
    ({"allocated": 0, "processors": 0}, "unknown number of processors"),
    ({"status": 2}, "status 2, 3 or 4"),
    ({"status": 3}, "status 2, 3 or 4"),
    ({"status": 4}, "status 2, 3 or 4"),
)
def test_jobs_that_cannot_be_run_again_are_dropped_and_counted(
    tmp_path: Path, fields: dict[str, int], why: str
) -> None:
    log = read_swf(write(tmp_path, line(submit=1), line(**fields), line(submit=2), line(**fields)))
    assert (log.submit_s.tolist(), log.dropped) == ([1, 2], {why: 2})
    assert log.summary() == f"toy.swf: 2 jobs on 4 processors; dropped 2 with {why}"


@pytest.mark.parametrize("status", [-1, 0, 1, 5])
def test_failed_and_cancelled_jobs_that_ran_are_kept(tmp_path: Path, status: int) -> None:
    assert len(read_swf(write(tmp_path, line(status=status)))) == 1


@settings(deadline=None)
@given(jobs=st.lists(st.tuples(st.integers(-1, 50), st.integers(-2, 99), st.integers(-1, 9)), min_size=1))
def test_every_job_is_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, int, int]]
) -> None:
    path = write(tmp_path_factory.getbasetemp(), *(line(*job) for job in jobs), name="any.swf")
    kept = sorted((job for job in jobs if job[0] >= 0 and job[1] > 0 and job[2] > 0), key=lambda job: job[0])
    if not kept:
        with pytest.raises(WorkloadError, match="expected at least one job that can be run"):
            read_swf(path)
        return
    log = read_swf(path)
    columns = log.submit_s.tolist(), log.run_s.tolist(), log.processors.tolist()
    assert list(zip(*columns, strict=True)) == kept
    assert len(log) + sum(log.dropped.values()) == len(jobs)


@cases(
    "lines, message",
    ((line(), "1 2 3"), r"toy.swf: line 3: expected 18 fields, got 3$"),
    ((line(), "", line().rsplit(" ", 1)[0]), r"toy.swf: line 4: expected 18 fields, got 17$"),
    ((line(), line(run="soon")), r"toy.swf: line 3: field 4: expected a number, got 'soon'$"),
    ((line(submit="x" * 999),), rf"toy.swf: line 2: field 2: expected a number, got '{'x' * 40}'$"),
    ((line(submit="\u0665"),), r"toy.swf: line 2: field 2: expected a number, got '\u0665'$"),
    ((line(run="6_0"),), r"toy.swf: line 2: field 4: expected a number, got '6_0'$"),
    ((line(run="\x1b[31m"),), r"toy.swf: line 2: field 4: expected a number, got '\\x1b\[31m'$"),
    ((line(), line(memory="nan")), r"toy.swf: line 3: field 10: expected a number, got 'nan'$"),
    ((line(), line(submit="1e16")), r"toy.swf: line 3: field 2: expected a number, got '1e\+16'$"),
    ((), r"toy.swf: expected at least one job, a line of 18 numbers$"),
    ((line(run=0), line(run=-1)),
     r"toy.swf: expected at least one job that can be run, got 1 with unknown run time, 1 with run time 0$"),
)  # fmt: skip
def test_malformed_logs(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    assert re.search(message, one_line(WorkloadError, read_swf, write(tmp_path, *lines, header="; MaxProcs: 4\n")))


def test_a_line_that_never_ends_and_a_log_of_blank_lines_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.sources.swf._LONGEST_LINE", 80)
    monkeypatch.setattr("workloads.sources.swf._MOST_BLANK", 3)
    whole = line().ljust(77) + "."
    assert len(read_swf(write(tmp_path, whole, "", " ", "\t", line()))) == 2
    with pytest.raises(WorkloadError, match=r"toy.swf: line 2: expected 18 fields, got 80 characters$"):
        read_swf(write(tmp_path, line(), whole + "."))
    with pytest.raises(WorkloadError, match=r"toy.swf: line 5: expected 18 fields, got nothing but blank lines$"):
        read_swf(write(tmp_path, line(), "", " ", "", "", line()))


@pytest.mark.parametrize("name", LOGS)
def test_real_logs(shared: Shared, name: str) -> None:
    path = shared(f"traces/swf/{name}.swf.gz")
    expected = json.loads(shared("traces/swf/STATS.json").read_text())[path.name]
    log = read_swf(path)
    assert len(log) + sum(log.dropped.values()) == expected["jobs"]
    assert sum(log.dropped.values()) == expected["runtime_nonpositive"]
    assert set(log.dropped) <= {"unknown run time", "run time 0"}
    assert log.num_unsorted == expected["out_of_order"]
    assert log.processors.max() == expected["procs_max"]
    for key, value in expected["header"].items():
        assert log.header[key] == value
    limit = expected["header"].get("MaxProcs", expected["header"].get("MaxNodes", expected["procs_max"]))
    assert log.max_processors == int(limit)
    jobs = swf_jobs(log, load=0.9, sets=20, seed=0)
    assert (jobs.load(10).max(axis=1) >= 0.9).all()
    assert jobs.load(10).max(axis=1).mean() < 1.0


def log_of(**changes: Any) -> SwfLog:
    """Return ten jobs of 1 to 10 processors, 100 s apart, that run for 10 to 100 s."""
    numbers = np.arange(1.0, 11.0)
    arguments: dict[str, Any] = {
        "name": "toy", "submit_s": 100 * numbers, "run_s": 10 * numbers, "processors": np.arange(1, 11),
        "memory_kb": np.full(10, np.nan),
    }  # fmt: skip
    return SwfLog(**arguments | changes)


@cases(
    "changes, message",
    ({"submit_s": np.zeros(0)}, "toy: a log needs at least one job"),
    ({"run_s": np.ones(9)}, r"toy: expected run_s of 10 jobs, got shape \(9,\)"),
    ({"submit_s": np.array([*range(9), 2])}, "toy: job 9: expected submit times that ascend"),
    ({"submit_s": np.array([*range(9), np.nan])}, "toy: job 9: expected a finite submit time"),
    ({"run_s": np.arange(10)}, "toy: job 0: expected a run time above 0"),
    ({"processors": np.arange(10)}, "toy: job 0: expected at least one processor"),
    ({"memory_kb": np.arange(-3, 7)}, "toy: job 0: expected memory of at least 0 or NaN"),
    ({"memory_kb": np.array([*range(9), np.inf])}, "toy: job 9: expected memory of at least 0 or NaN"),
    ({"run_s": np.array([1, np.inf, *range(1, 9)])}, "toy: job 1: expected a run time above 0"),
    ({"processors": np.ones((10, 1))}, r"toy: expected processors of 10 jobs, got shape \(10, 1\)"),
)
def test_impossible_logs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        log_of(**changes)


def jobs_of(jobs: JobSets, row: int = 0) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return arrival step, duration and demand of the jobs of one set."""
    count = jobs.num_jobs[row]
    demand = [tuple(each) for each in jobs.demand[row, :count].tolist()]
    return list(zip(jobs.enter[row, :count].tolist(), jobs.duration[row, :count].tolist(), demand, strict=True))


def whole(log: SwfLog, work: int, *, slots: int, steps: int, **options: Any) -> JobSets:
    """Return one set of all jobs of a log with ``work`` unit-steps of the busier resource."""
    jobs = swf_jobs(log, load=(work - 0.5) / (slots * steps), sets=1, slots=slots, steps=steps, seed=0, **options)
    assert jobs.num_jobs.tolist() == [len(log)]
    assert jobs.load(slots).max() == pytest.approx(work / (slots * steps))
    return jobs


def test_shares_and_sets_of_a_log() -> None:
    log = log_of(
        submit_s=np.zeros(4),
        run_s=np.array([1.0, 10.0, 10.5, 9999.0]),
        processors=np.array([1, 13, 14, 200]),
        memory_kb=np.array([np.nan, 70.0, 71.0, 200.0]),
        header={"MaxProcs": "130"},
    )
    work = 1 * 1 + 1 * 7 + 2 * 8 + 3 * 10
    jobs = whole(log, work, slots=10, steps=20, max_duration=3, step_s=10.0, machine_memory_kb=100.0)
    assert jobs_of(jobs) == [(0, 1, (1, 1)), (0, 1, (1, 7)), (0, 2, (2, 8)), (0, 3, (10, 10))]
    log = log_of(processors=np.ones(10))
    # Durations are 1 to 10, and a set needs ten steps of them.
    jobs = swf_jobs(log, load=1.0, sets=300, steps=10, slots=1, max_duration=10, step_s=10.0, seed=0)
    starts, counts = np.unique(jobs.duration[:, 0], return_counts=True)
    assert starts.tolist() == list(range(1, 11))
    assert counts.min() > 10
    found = {row[0]: [duration for duration in row if duration] for row in jobs.duration.tolist()}
    assert [found[start] for start in (1, 2, 3, 5, 10)] == [[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5], [5, 6], [10]]
    jobs = swf_jobs(log, load=4.6, sets=100, steps=10, slots=1, max_duration=10, step_s=10.0, seed=0)
    assert set(jobs.duration[:, 0].tolist()) == set(range(1, 5))
    many = swf_jobs(log_of(), load=0.1, sets=30, seed=5)
    few = swf_jobs(log_of(), load=0.1, sets=4, seed=5)
    assert [jobs_of(many, row) for row in range(4)] == [jobs_of(few, row) for row in range(4)]
    other = swf_jobs(log_of(), load=0.1, sets=30, seed=6)
    assert [jobs_of(many, row) for row in range(30)] != [jobs_of(other, row) for row in range(30)]


def test_units_of_memory_and_lengths_of_jobs() -> None:
    log = log_of(
        submit_s=np.zeros(100), run_s=np.ones(100), processors=np.arange(1, 101), memory_kb=np.full(100, np.nan)
    )
    jobs = whole(log, 5050, slots=100, steps=5, max_duration=1)
    assert jobs.demand[0, :, 0].tolist() == list(range(1, 101))
    jobs = swf_jobs(log_of(), load=0.5, sets=3, seed=0)
    assert (jobs.demand[..., 1][jobs.duration > 0] == 1).all()
    memory_kb = np.array([11.0] * 9 + [40.0])
    log = log_of(memory_kb=memory_kb, run_s=np.ones(10), processors=np.ones(10), header={"MaxProcs": "10"})
    jobs = whole(log, 9 * 2 + 4, slots=4, steps=6, max_duration=1)
    assert jobs.demand[0, :, 1].tolist() == [2] * 9 + [4]
    run_s = np.arange(1.0, 1001.0)
    log = log_of(submit_s=run_s, run_s=run_s, processors=np.ones(1000), memory_kb=np.full(1000, np.nan))
    expected = np.minimum(np.ceil(run_s / 95.005), 10)  # the 95th percentile is 950.05 s
    jobs = whole(log, int(expected.sum()), slots=1, steps=50, max_duration=10)
    assert jobs.duration[0].tolist() == expected.tolist()
    submit_s = 1e9 + np.array([0.0, 1.0, 49.0, 50.0, 51.0, 99.0, 100.0])
    log = log_of(submit_s=submit_s, run_s=np.ones(7), processors=np.ones(7), memory_kb=np.full(7, np.nan))
    jobs = whole(log, 7, slots=1, steps=20, max_duration=1)
    assert jobs.enter.tolist() == [[0, 0, 9, 10, 10, 19, 19]]


@settings(deadline=None)
@given(st.data())
def test_sets_are_runs_of_jobs_that_just_reach_the_load(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    log = log_of(
        submit_s=np.sort(random.integers(0, 30, count)),
        run_s=random.exponential(100.0, count) + 1.0,
        processors=random.integers(1, 20, count),
        memory_kb=np.where(random.random(count) < 0.5, np.nan, random.exponential(100.0, count)),
    )
    steps, slots = 6, 4
    options: dict[str, Any] = {"steps": steps, "slots": slots, "max_duration": 5, "seed": 3}
    with pytest.raises(WorkloadError, match="all its jobs have a load of") as error:
        swf_jobs(log, load=1e6, sets=1, **options)
    most = 0.999 * float(str(error.value).split("load of ")[1].split(",")[0])
    every = [job[1:] for job in jobs_of(swf_jobs(log, load=most, sets=1, **options))]
    assert len(every) == count
    load = data.draw(st.floats(most / 100, most))
    jobs = swf_jobs(log, load=load, sets=4, **options)
    for row, offered in enumerate(jobs.load(slots)):
        taken = [job[1:] for job in jobs_of(jobs, row)]
        assert any(every[start : start + len(taken)] == taken for start in range(len(every)))
        duration, demand = taken[-1]
        assert offered.max() >= load - 1e-9
        assert (offered - duration * np.array(demand) / (slots * steps)).max() < load + 1e-9


@cases(
    "changes, message",
    ({"load": 0.0}, "load must be above 0 and finite, got 0.0"),
    ({"load": float("nan")}, "load must be above 0 and finite, got nan"),
    ({"load": 4.0}, "toy: all its jobs have a load of 3.85, too few for 4.0"),
    ({"step_s": 0.0}, "step_s must be above 0 and finite, got 0.0"),
    ({"machine_memory_kb": -1.0}, "machine_memory_kb must be above 0 and finite, got -1.0"),
    ({"sets": 0}, "sets must be a whole number of at least 1, got 0"),
    ({"slots": 2.5}, "slots must be a whole number of at least 1, got 2.5"),
    ({"max_duration": 0}, "max_duration must be a whole number of at least 1, got 0"),
    ({"seed": -1}, "the seed must be a whole number that is not negative, got -1"),
)
def test_what_cannot_be_drawn(changes: dict[str, Any], message: str) -> None:
    # Job i runs for i steps of 10 s and has i of 10 units: 385 in all, of 100.
    valid: dict[str, Any] = {"load": 1.0, "sets": 1, "steps": 10, "step_s": 10.0, "seed": 0}
    with pytest.raises(WorkloadError, match=message):
        swf_jobs(log_of(), **valid | changes)


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
    """Return numbers of tasks, their durations in s, and demands."""
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


def test_gangs_and_demands_are_told(log: Path) -> None:
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
    about = read_swf_workload(log, Excerpt(until_s=35), (8, 2.5), gang=True).about
    assert about["jobs"] == "one task on all processors at once"
    assert (about["demands"], about["excerpt"]) == ("shares of 8 processors and 2.5 GiB", {"until_s": 35})


@pytest.mark.parametrize("gang", [False, True])
def test_demands_may_be_shares_of_an_executor(log: Path, gang: bool) -> None:
    _, memorable = read_swf_workload(log, executor=(8, 4), gang=gang).profiles
    assert told(memorable) == ((1, 60.5, 2 / 8, 2 / 4) if gang else (2, 60.5, 1 / 8, 1 / 4))


@pytest.mark.parametrize(("gang", "share"), [(False, 2 / 11), (True, 2 / 4)])
def test_the_share_of_failed_tasks_is_that_of_jobs_whose_end_is_known(tmp_path: Path, gang: bool, share: float) -> None:
    statuses = {1: 4, 0: 2, 5: 8, -1: 16}
    lines = [line(allocated=processors, status=status) for status, processors in statuses.items()]
    path = write(tmp_path, *lines, line(allocated=3, status=1), line(allocated=2, status=0))
    assert read_swf_workload(path, gang=gang).imperfections == Imperfections(task_failures=share)
    unknown = write(tmp_path, line(status=-1), line(status=5))
    assert read_swf_workload(unknown, gang=gang).imperfections == Imperfections()


def test_a_log_of_a_machine(shared: Shared) -> None:
    workload = read_swf_workload(shared("traces/swf/NASA-iPSC-1993-3.1-cln.swf.gz"))
    assert workload.sequence is not None
    assert len(workload.sequence) == 18_066
    assert len(workload.profiles) < 9_000
    assert max(profile.num_tasks for profile in workload.profiles) == 128
