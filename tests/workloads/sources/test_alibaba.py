"""Alibaba's trace of 2018: parsing of names, dropped jobs, rejected files, and memory."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from tests.refusal import refusal
from workloads import Excerpt, JobProfile, Workload, WorkloadError
from workloads.imperfections import Imperfections
from workloads.sources import alibaba
from workloads.sources.alibaba import COLUMNS, read_alibaba

Shared = Callable[[str], Path]


def row(
    task: str = "M1",
    job: str = "j_1",
    instances: object = 2,
    status: str = "Terminated",
    start: object = 100,
    end: object = 110,
    cpu: object = "100.0",
    memory: object = "0.5",
) -> str:
    """Return a line of the table."""
    return f"{task},{instances},{job},1,{status},{start},{end},{cpu},{memory}"


def write(folder: Path, *rows: str, name: str = "batch_task.csv") -> Path:
    path = folder / name
    text = "".join(f"{each}\n" for each in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read(folder: Path, *rows: str, **options: Excerpt) -> Workload:
    return read_alibaba(write(folder, *rows), **options)


def edges(profile: JobProfile) -> set[tuple[str, str]]:
    """Return the edges by stage names."""
    names = [stage.name for stage in profile.stages]
    return {(names[parent], names[child]) for parent, child in profile.edges.tolist()}


def refused(folder: Path, *rows: str, name: str = "batch_task.csv") -> str:
    return refusal(read_alibaba, WorkloadError, write(folder, *rows, name=name))


@pytest.mark.parametrize("name", ["batch_task.csv", "batch_task.csv.gz"])
def test_a_job_and_its_demands(tmp_path: Path, name: str) -> None:
    path = write(
        tmp_path,
        row("R3_1_2", start=130, end=131, cpu=50, memory=""),
        row("M1", instances="7.0", start=90, end=120),
        row("M2", start=95, end=95, cpu="", memory=0.39),
        name=name,
    )
    workload = read_alibaba(path)
    (job,) = workload.profiles
    assert job.name == "j_1"
    assert workload.name == "batch_task"
    assert workload.sequence is not None
    assert workload.sequence.arrival_ms.tolist() == [0.0]
    assert [(stage.name, stage.num_tasks) for stage in job.stages] == [("M1", 7), ("M2", 2), ("R3_1_2", 2)]
    assert [stage.durations.mean_ms for stage in job.stages] == [30_000, 500, 1000]
    assert [stage.cpu for stage in job.stages] == [1 / 96, 1 / 96, 0.5 / 96]
    assert [stage.memory for stage in job.stages] == pytest.approx([0.005, 0.0039, 0])
    assert edges(job) == {("M1", "R3_1_2"), ("M2", "R3_1_2")}


def test_demands_names_and_failed_instances(tmp_path: Path) -> None:
    (job,) = read_alibaba(write(tmp_path, row(cpu=200, memory=1.07)), executor=(4, 2)).profiles
    assert (job.stages[0].cpu, job.stages[0].memory) == (0.5, 0.535)
    # A failed task counts as one failed instance.
    rows = [row(job="good", instances=10), row(job="bad", instances=30, status="Failed")]
    rows += [row("M2", job="bad", instances=10), row("M3", job="bad", instances=99, status="Waiting")]
    assert read(tmp_path, *rows).imperfections == Imperfections(task_failures=1 / 50)
    assert read(tmp_path, row()).imperfections == Imperfections(task_failures=0.0)
    (job,) = read(tmp_path, row("task_Nzg3MQ=="), row("MergeTask")).profiles
    assert [stage.name for stage in job.stages] == ["task", "MergeTask"]


def test_a_job_arrives_with_its_first_task_and_its_rows_may_be_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row("R2_1", "late", start=300, end=310),
        row("M1", "early", start=200, end=210),
        row("M1", "late", start=250, end=260),
        row("R2_1", "early", start=900, end=910),
        row("M1", "also late", start=250, end=260),
    ]
    for block in (1 << 24, 130, 50):  # the whole, a few lines, one line
        monkeypatch.setattr(alibaba, "_BLOCK", block)
        workload = read(tmp_path, *rows)
        assert [job.name for job in workload.profiles] == ["early", "late", "also late"]
        assert [job.num_stages for job in workload.profiles] == [2, 2, 1]
        assert workload.sequence is not None
        assert workload.sequence.profiles == workload.profiles
        assert workload.sequence.arrival_ms.tolist() == [0, 50_000, 50_000]
        assert refused(tmp_path, *rows, "M1,2") == "line 6: expected 9 fields, got 2"


@cases(
    "tasks, expected",
    (("M1", "R2_1_Stg4"), {("M1", "R2_1_Stg4")}), (("M1", "J2_1_"), {("M1", "J2_1_")}),
    (("M1", "J02_01"), {("M1", "J02_01")}), (("M1", "J2_1_1"), {("M1", "J2_1_1")}),
    (("M1", "Stage2_1"), {("M1", "Stage2_1")}), (("M3", "R1_3"), {("M3", "R1_3")}),
    (("task_Nzg3MQ==", "task_Mg==", "MergeTask"), set()), (("M1", "task_1"), set()), (("1", "2_1"), set()),
)  # fmt: skip
def test_what_names_mean(tmp_path: Path, tasks: tuple[str, ...], expected: set[tuple[str, str]]) -> None:
    (job,) = read(tmp_path, *map(row, tasks)).profiles
    assert edges(job) == expected
    assert job.num_stages == len(tasks)


def test_a_piece_of_a_number_is_no_parent(tmp_path: Path) -> None:
    """A name of 50 characters ends in a number that does not ascend: it was cut."""
    name = "J99_" + "_".join(map(str, range(10, 25)))
    assert len(f"{name}_2") == 50
    others = [row(f"M{number}") for number in (*range(10, 25), 2)]
    whole = {(f"M{number}", name) for number in range(10, 25)}
    for end, parents in (("_2", set()), ("_", set()), ("_S", set())):
        workload = read(tmp_path, *others, row(name + end))
        assert edges(workload.profiles[0]) == {(parent, name + end) for parent, _ in whole | parents}
    assert read(tmp_path, *others, row(f"{name}_2")).about["task names cut at 50 characters"] == 1
    assert read(tmp_path, *others, row(f"{name[:-1]}_2")).about["task names cut at 50 characters"] == 0
    ascending = f"J9_{'_'.join(map(str, range(100, 111)))}_25"
    assert len(ascending) == 49  # so its last parent is kept
    (job,) = read(tmp_path, *(row(f"M{number}") for number in (*range(100, 111), 25)), row(ascending)).profiles
    assert ("M25", ascending) in edges(job)
    ascending = f"J9_{'_'.join(map(str, range(100, 112)))}"
    assert len(ascending) == 50  # and its last parent may be complete: it is kept
    (job,) = read(tmp_path, *(row(f"M{number}") for number in range(100, 112)), row(ascending)).profiles
    assert ("M111", ascending) in edges(job)


@st.composite
def dags(draw: st.DrawFn) -> dict[int, set[int]]:
    """Draw task numbers in any order, with the numbers of their parents."""
    numbers = draw(st.permutations(draw(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=8))))
    return {
        number: draw(st.sets(st.sampled_from(numbers[:place]), max_size=4)) if place else set()
        for place, number in enumerate(numbers)
    }


@given(dags(), st.randoms())
def test_any_dag_is_read_from_names(tmp_path_factory: pytest.TempPathFactory, dag: dict[int, set[int]], random) -> None:
    folder = tmp_path_factory.mktemp("names")
    names = {
        number: f"{random.choice('MRJ')}{'_'.join(map(str, [number, *sorted(parents)]))}"
        for number, parents in dag.items()
    }
    rows = [row(name, job) for name in names.values() for job in ("j_1", "j_2")]
    random.shuffle(rows)
    for job in read(folder, *rows).profiles:
        expected = {(names[parent], names[child]) for child, parents in dag.items() for parent in parents}
        assert edges(job) == expected
        assert sorted(stage.name for stage in job.stages) == sorted(names.values())


@cases(
    "rows, why",
    ([row(status="Failed")], "an unfinished task"),
    ([row("M1"), row("R2_1", status="Running", start=0, end=0)], "an unfinished task"),
    ([row(instances="")], "a task without instances"),
    ([row(instances=0)], "a task without instances"),
    ([row(start="")], "a task without times"),
    ([row(start=0)], "a task without times"),
    ([row(end=0)], "a task without times"),
    ([row(end="")], "a task without times"),
    ([row(start=110, end=109)], "a task that ends before its start"),
    ([row("M1_1")], "a task that is its own parent"),
    ([row("M1"), row("R3_1_2")], "a parent that is not there"),
    ([row("M1"), row("R3_1_12345678901")], "a parent that is not there"),
    ([row("M1"), row("R2_999999999")], "a parent that is not there"),
    ([row("M1"), row("R1")], "a number that two tasks have"),
    ([row("M1_2"), row("R2_1")], "parents in a cycle"),
    ([row("M1"), row("R2_1_4"), row("R3_2"), row("R4_3"), row("R5_4")], "parents in a cycle"),
)
def test_jobs_that_cannot_be_run_again_are_dropped_and_counted(tmp_path: Path, rows: list[str], why: str) -> None:
    # Jobs before and after it have tasks with the numbers that it lacks.
    others = [row(f"M{number}", job) for number in (1, 2, 3) for job in ("a", "b")]
    workload = read(tmp_path, *others[:3], *rows, *others[3:])
    assert [job.name for job in workload.profiles] == ["a", "b"]
    assert (workload.about["dropped"], workload.about["jobs in the table"]) == ({why: 1}, 3)
    assert refused(tmp_path, *rows) == f"expected at least one job that can be run again, got 1 with {why}"


def test_parents_without_a_number_and_tasks_without_one(tmp_path: Path) -> None:
    others = [row(f"M{number}", job) for job in "abc" for number in (0, 2**29)]
    workload = read(tmp_path, row("M0", "bad"), row("R1_0_12345678901", "bad"), *others)
    assert workload.about["dropped"] == {"a parent that is not there": 1}
    assert [job.name for job in workload.profiles] == ["a", "b", "c"]
    workload = read(tmp_path, row("task_a"), row("task_b"), row("task_a"))
    assert (workload.profiles[0].num_stages, workload.about["dropped"]) == (3, {})


def test_jobs_are_counted_once_and_assumptions_told(tmp_path: Path) -> None:
    about = read_alibaba(write(tmp_path, row()), executor=(4, 12.5)).about
    assert about == {
        "source": "batch_task of Alibaba's cluster trace of 2018",
        "jobs in the table": 1,
        "dropped": {},
        "task names cut at 50 characters": 0,
        "durations": "instances are taken to last as long as their task",
        "demands": "shares of 4 cores and 12.5 % of a machine's memory",
        "excerpt": {},
    }
    workload = read(
        tmp_path,
        row("M1", "good"),
        row("M1_1", "bad", end=1),
        row("M1_1", "bad", instances=0),
        row("M1_2", "cyclic"),
        row("M2_1", "cyclic"),
    )
    assert workload.about["dropped"] == {"a task without instances": 1, "parents in a cycle": 1}


def test_columns_are_named_by_headers(tmp_path: Path) -> None:
    columns = ("job_name", "end_time", "more", *(name for name in COLUMNS if name not in ("job_name", "end_time")))
    values = dict(zip(COLUMNS, row("M1").split(","), strict=True)) | {"more": "x"}
    for line in (",".join(columns), "\ufeff" + ",".join(columns)):
        workload = read(tmp_path, line, ",".join(values[name] for name in columns))
        assert workload.profiles[0].stages[0].durations.mean_ms == 10_000
    without_type = [name for name in COLUMNS if name != "task_type"]
    assert read(tmp_path, ",".join(without_type), ",".join(values[name] for name in without_type))

    def message(priority: str, *rows: str) -> str:
        return refusal(partial(read_alibaba, priority=priority), WorkloadError, write(tmp_path, *rows))

    header = ",".join((*COLUMNS, "rank"))
    assert message("rank", row()) == "line 1: expected column names, among them rank"
    assert message("prio", header, f"{row()},0") == "line 1: expected one column prio, got 0"
    for wrong in ("-1", "1048576"):
        expected = f"line 3: rank: expected a number from 0 to 2^20, got '{float(wrong)}'"
        assert message("rank", header, f"{row()},0", f"{row()},{wrong}") == expected
    with pytest.raises(WorkloadError, match="a column without another meaning, got 'plan_cpu'"):
        read_alibaba(write(tmp_path, row()), priority="plan_cpu")


def test_the_weight_of_a_job_is_one_more_than_its_highest_priority(tmp_path: Path) -> None:
    rows = [
        ",".join((*COLUMNS, "priority")), f"{row(start=300, end=310)},0", f"{row('M1', 'j_2')},2.5",
        f"{row('R2_1', 'j_2')},9", f"{row(job='dropped', status='Failed')},7",
        f"{row('M1', 'j_3', start=200, end=210)},",
    ]  # fmt: skip
    path = write(tmp_path, *rows)
    found = read_alibaba(path, priority="priority").sequence
    assert found is not None
    assert [each.name for each in found.profiles] == ["j_2", "j_3", "j_1"]
    assert found.weight.tolist() == [10.0, 1.0, 1.0]
    plain = read_alibaba(path).sequence
    assert plain is not None
    assert plain.weight.tolist() == [1.0, 1.0, 1.0]


def test_headers_line_ends_and_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [name for name in COLUMNS if name != "status"] + ["status"]
    rows = [row(task).replace(",Terminated", "") + ",Terminated" for task in ("M1", "R2_1")]
    path = tmp_path / "batch_task.csv"
    for end in ("\r\n", "\n"):
        path.write_bytes(end.join([",".join(columns), *rows]).encode())
        assert read_alibaba(path).profiles[0].num_stages == 2
    monkeypatch.setattr(alibaba, "_BLOCK", 100)
    assert refused(tmp_path, row(), "x" * 1000) == "line 2: expected 9 fields, got 100 characters"


HEADER = ",".join(COLUMNS)


@cases(
    "rows, message",
    ([], "expected at least one task, a line of 9 fields"),
    ([HEADER], "expected at least one task, a line of 9 fields"),
    ([HEADER.replace(",plan_mem", "")], "line 1: expected one column plan_mem, got 0"),
    ([HEADER + ",status"], "line 1: expected one column status, got 2"),
    ([row(), row()[:20], row()], "line 2: expected 9 fields, got 5"),
    ([HEADER, row(), row() + ",1"], "line 3: expected 9 fields, got 10"),
    ([row(), "", row()], "line 2: expected 9 fields, got 1"),
    # Two mistakes that compensate each other.
    ([row(), row() + ",1", row()[:-4]], "line 2: expected 9 fields, got 10"),
    ([row(), row(start="soon")], "line 2: start_time: expected a number, got 'soon'"),
    ([HEADER, row(), row(memory="0.5.")], "line 3: plan_mem: expected a number, got '0.5.'"),
    ([row(memory="\x1b[31m")], "line 1: plan_mem: expected a number, got '\\x1b[31m'"),
    ([row(cpu='"100"')], "line 1: plan_cpu: expected a number, got '\"100\"'"),
    ([row(cpu=-1)], "line 1: plan_cpu: expected a number from 0 to 2^31, got '-1.0'"),
    ([row(memory="1e400")], "line 1: plan_mem: expected a number from 0 to 2^31, got 'inf'"),
    ([row(instances=1.5)], "line 1: instance_num: expected a whole number from 0 to 2^31, got '1.5'"),
    ([row(instances=2**31)], "line 1: instance_num: expected a whole number from 0 to 2^31, got '2147483648.0'"),
    ([row(start=-5)], "line 1: start_time: expected a whole number from 0 to 2^31, got '-5.0'"),
    ([row(), row(job="")], "line 2: job_name: expected a text, got ''"),
    ([row(task="")], "line 1: task_name: expected a text, got ''"),
    ([row(status="")], "line 1: status: expected a text, got ''"),
)
def test_malformed_tables_are_refused_with_the_line(tmp_path: Path, rows: list[str], message: str) -> None:
    assert refused(tmp_path, *rows) == message
    assert refused(tmp_path, *rows, name="batch_task.csv.gz") == message


@given(st.binary(max_size=200))
def test_whatever_is_no_table_is_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "batch_task.csv"
    path.write_bytes(data)
    assert refusal(read_alibaba, WorkloadError, path)


def test_the_sample_of_the_trace(shared: Shared) -> None:
    """All cycles in the sample come from names that were cut."""
    workload = read_alibaba(shared("traces/alibaba2018_dag_tasks/selected_DAGs.csv.gz"))
    assert workload.about["jobs in the table"] == 2120
    assert workload.about["dropped"] == {"an unfinished task": 42}
    assert (workload.about["task names cut at 50 characters"], len(workload.profiles)) == (330, 2078)
    assert sum(job.num_stages for job in workload.profiles) == 53_809
    assert sum(job.num_tasks for job in workload.profiles) == 3_092_128
    jobs = {job.name: job for job in workload.profiles}
    assert edges(jobs["j_2"]) == {("M1", "R2_1")}
    assert [stage.durations.mean_ms for stage in jobs["j_2"].stages] == [7000, 10_000]
    assert [stage.memory for stage in jobs["j_2"].stages] == [0.002, 0.002]
    assert max(stage.cpu for job in workload.profiles for stage in job.stages) == 2 / 96


@pytest.mark.slow
def test_a_million_tasks_take_little_memory(tmp_path: Path) -> None:
    """About 110 bytes each: the whole trace, of 14 million tasks, stays below 2 GB."""

    def peak_bytes(num_jobs: int) -> int:
        path = tmp_path / "batch_task.csv"
        with path.open("w") as file:
            for job in range(num_jobs):
                for task in ("M1", "M2", "R3_1_2", f"task_{job:030}"):
                    file.write(row(task, f"j_{job}") + "\n")
        code = (
            "import resource, sys; from workloads import Excerpt, read_alibaba;"
            "print(len(read_alibaba(sys.argv[1], Excerpt(sample=100)).profiles));"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=300
        )
        sampled, peak = map(int, done.stdout.split())
        assert sampled == 100
        return peak

    more = 250_000
    assert peak_bytes(1000 + more) - peak_bytes(1000) < 4 * more * 140
