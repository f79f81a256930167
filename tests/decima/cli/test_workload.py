"""The commands ``decima workload``."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from decima.cli.main import cli
from simulator import ClusterConfig
from simulator.cluster.known import known_profile
from tests.decima.cli.commands import assert_one_line_error, succeeded
from tests.workloads.sources.test_wfcommons import document
from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from workloads import Workload, read_workload, synthetic_profiles, trace_arrivals, write_workload
from workloads.sources.alibaba import COLUMNS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["workload", *arguments])


def import_spark(*arguments: str) -> Result:
    return run("import", "spark", *arguments)


@pytest.mark.usefixtures("pictures")
def test_import_makes_a_workload_that_can_be_shown(tmp_path: Path) -> None:
    for number in range(2):
        small_log(app=f"app-{number}").write(tmp_path / "logs" / str(number))
    result = succeeded(import_spark("logs", "--out", "mine.json", "--set", "fresh_ms=1500", "--levels", "1,8"))
    assert result.stderr == ""
    assert "fresh_ms" in result.stdout
    assert "1,500" in result.stdout
    assert "1 profile from 2 runs of queries in mine.json" in result.stdout
    workload = read_workload("mine.json")
    assert (workload.name, workload.profiles[0].stages[0].durations.levels.tolist()) == ("mine", [1, 8])

    shown = succeeded(run("show", "mine.json", "--out", "dags.png"))
    row = next(line.split() for line in shown.stdout.splitlines() if workload.profiles[0].name in line)
    known = known_profile(workload.profiles[0], ClusterConfig())
    times = [f"{ms / 1000:.1f}" for ms in (known.work_ms, known.critical_path_ms.max(), known.height_ms.max())]
    assert row[-9:-2] == ["2", "4", *times, "1", "0"]
    assert "path of work (s)  least time (s)" in shown.stdout
    assert row[-2:] == ["1", "8"]
    assert "source: Spark event logs" in shown.stdout
    assert Image.open("dags.png").size == (800, 560)


def test_real_recordings_are_imported(shared) -> None:
    logs = [str(path) for path in sorted(shared("spark/eventlogs").glob("q0[36]_*.json.gz"))]
    result = succeeded(import_spark(*logs, "--out", "mine.json.gz"))
    assert "contention at 2" in result.stdout
    assert "all executors were on one machine, where scans took" in result.stdout
    assert "s to start (median)" in result.stdout
    assert "8 runs predicted from the other runs of their query: mean error" in result.stdout
    assert "are not reliable" not in result.stdout
    separate = import_spark(*logs, "--out", "separate.json", "--separate-machines")
    assert "contention" not in separate.stdout
    assert "durations on 1; 2; 4 executors were measured" in run("show", "separate.json").stdout
    workload = read_workload("mine.json.gz")
    assert len(workload.profiles) == 2
    assert workload.profiles[0].stages[0].durations.levels.tolist() == [1, 2, 4, 5, 10, 20, 40, 50, 60, 80, 100]


def test_damaged_logs_are_refused_and_kept_in_part_on_request(tmp_path: Path) -> None:
    text = small_log().text
    (tmp_path / "cut").write_bytes(text[: text.index(b"SparkListenerJobEnd")])
    assert_one_line_error(import_spark("cut", "--out", "mine.json"), "no query ran to its end")
    assert not (tmp_path / "mine.json").exists()
    result = succeeded(import_spark("cut", "--out", "mine.json", "--partial"))
    assert "mid-line" in result.stdout
    assert read_workload("mine.json").profiles[0].num_tasks == 4


def test_arrivals_are_kept_and_what_is_given_twice_counts_once(tmp_path: Path) -> None:
    night = LogBuilder(name="night").executor("0")
    for number, start in enumerate((2000, 5000, 6500)):
        night.sql(number, start, f"q{number % 2}").job(number, [stage_info(number, 2)], at=start + 100, sql=number)
        night.run(number, start + 100, start + 500).job_end(number, start + 500).sql_end(number, start + 600)
    night.end().write(tmp_path / "night")
    night.write(tmp_path / "again")
    result = succeeded(import_spark("night", "again", "--out", "mine.json", "--arrivals"))
    assert "night: app-1 is given twice, counted once" in result.stdout
    assert "2 profiles from 3 runs of queries, which arrive in 0.1 minutes, in mine.json" in result.stdout
    sequence = read_workload("mine.json").sequence
    assert sequence is not None
    assert sequence.arrival_ms.tolist() == [0, 3000, 4500]
    assert [profile.name for profile in sequence.profiles] == ["q0", "q1", "q0"]


TRACE = """\
M1,10,j_1,1,Terminated,1000,1004,100.0,0.5
R2_1,1,j_1,1,Terminated,1004,1005,50.0,0.25
task_a,4,j_2,1,Terminated,1060,1062,100.0,0.5
M1,1,j_3,1,Failed,1070,1072,100.0,0.5
M1,6,j_4,1,Terminated,1120,1180,200.0,1
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A table with four jobs, one of which failed."""
    (tmp_path / "batch_task.csv").write_text(TRACE)
    return "batch_task.csv"


def test_a_trace_of_alibaba_is_imported_shown_and_replayed(trace: str) -> None:
    result = succeeded(run("import", "alibaba", trace, "--out", "mine.json"))
    assert result.stderr == ""
    assert "jobs in the table: 4\ndropped: an unfinished task 1\n" in result.stdout
    assert "3 jobs of 4 stages and 21 tasks, which arrive in 2.0 minutes, in mine.json\n" in result.stdout
    workload = read_workload("mine.json")
    assert workload.sequence is not None
    assert workload.sequence.arrival_ms.tolist() == [0, 60_000, 120_000]
    assert workload.profiles[0].stages[0].cpu == 1 / 96

    shown = succeeded(run("show", "mine.json"))
    rows = [line.split() for line in shown.stdout.splitlines()]
    place = rows.index(["j_1", "2", "11", "41.0", "41.0", "5.0", "0.00521-0.0104", "0.0025-0.005", "any"])
    assert [row[0] for row in rows[place - 1 : place + 3]] == ["profile", "j_1", "j_2", "j_4"]
    assert "3 jobs with arrival times" in shown.stdout

    line = "compare --workload mine.json --executors 3 --seeds 1 --schedulers fifo --processes 1"
    compared = succeeded(CliRunner().invoke(cli, shlex.split(line)))
    assert "the 3 jobs of mine" in compared.stdout


def test_priorities_and_samples_of_a_trace(trace: str) -> None:
    names = ",".join((*COLUMNS, "rank"))
    Path(trace).write_text(f"{names}\n" + "".join(f"{line},3\n" for line in TRACE.splitlines()))
    result = run("import", "alibaba", trace, "--out", "mine.json", "--priority", "rank")
    assert "weights: 1 + the highest rank of a job's tasks\n" in result.stdout
    workload = read_workload("mine.json")
    assert workload.sequence is not None
    assert workload.sequence.weight.tolist() == [4.0, 4.0, 4.0]
    result = succeeded(run("import", "alibaba", trace, "--out", "mine.json", "--sample", "2", "--library"))
    assert "2 jobs of" in result.stdout
    assert "without their arrivals, in mine.json" in result.stdout
    workload = read_workload("mine.json")
    assert len(workload.profiles) == 2
    assert workload.sequence is None


def test_a_part_of_a_trace_faster_and_smaller(trace: str) -> None:
    part = shlex.split("--from 1050 --until 1121 --speed-up 6 --scale-tasks 4 --seed 7 --executor 2,1")
    result = succeeded(run("import", "alibaba", trace, "--out", "mine.json", *part))
    workload = read_workload("mine.json")
    assert workload.sequence is not None
    assert [job.name for job in workload.profiles] == ["j_2", "j_4"]
    assert (workload.sequence.arrival_ms.tolist(), workload.sequence.seed) == ([0, 10_000], 7)
    assert [job.num_tasks for job in workload.profiles] == [1, 2]
    assert [(job.stages[0].cpu, job.stages[0].memory) for job in workload.profiles] == [(0.5, 0.5), (1, 1)]
    assert "excerpt: from_s 1050.0, until_s 1121.0, seed 7, speed_up 6.0, scale_tasks 4.0" in result.stdout


def test_workflows_are_imported(tmp_path: Path) -> None:
    for name, second in (("late", 30), ("early", 0)):
        content = document(
            {"a_1": "", "a_2": "", "b": "a_1 a_2"}, executed=f"2020-01-01T00:00:{second:02}Z", coreCount=2
        )
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    result = succeeded(run("import", "wfcommons", "late.json", "early.json", "--out", "mine.json", "--executor", "4,1"))
    assert "arrivals: executedAt\n" in result.stdout
    assert "2 jobs of 4 stages and 6 tasks, which arrive in 0.5 minutes, in mine.json\n" in result.stdout
    workload = read_workload("mine.json")
    assert [job.name for job in workload.profiles] == ["early", "late"]
    assert workload.profiles[0].stages[0].cpu == 0.5
    succeeded(run("import", "wfcommons", "late.json", "--out", "mine.json"))
    assert read_workload("mine.json").profiles[0].stages[0].cpu == 1


def test_what_show_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    result = succeeded(run("show"))
    assert sum(line.startswith("tpch-q") for line in result.stdout.splitlines()) == 132
    assert "extrapolated: " in result.stdout
    monkeypatch.setattr("decima.cli.workload.MOST_ROWS", 2)
    write_workload("w.json", Workload(synthetic_profiles(3), None))
    result = run("show", "w.json")
    assert sum(line.startswith("synthetic-") for line in result.stdout.splitlines()) == 2
    assert "the first 2 of 3 profiles; --profile shows other profiles" in result.stdout


@pytest.mark.usefixtures("pictures")
def test_show_some_profiles_and_draw_them() -> None:
    profiles = synthetic_profiles(6)
    write_workload("w.json", Workload(profiles, trace_arrivals(profiles[:2], [0.0, 1.0])))
    result = succeeded(
        run("show", "w.json", "--profile", "synthetic-4", "--profile", "synthetic-0", "--out", "two.png")
    )
    names = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("synthetic")]
    assert names == ["synthetic-4", "synthetic-0"]
    assert "2 jobs with arrival times" in result.stdout
    assert Image.open("two.png").size == (800, 300)


def test_an_import_that_is_far_off_says_what_that_means(tmp_path: Path) -> None:
    log = LogBuilder().executor("0")
    for job, duration in enumerate((1000, 5000, 1000, 5000)):
        at = 10_000 + 50_000 * job
        log.sql(job, at - 900, "q").job(job, [stage_info(job, 1)], at=at, sql=job).run(job, at, at + duration)
        log.job_end(job, at + duration).sql_end(job, at + duration)
    log.end(10**6).write(tmp_path / "log")
    result = run("import", "spark", str(tmp_path / "log"), "--out", str(tmp_path / "jobs.json"))
    text = " ".join(result.stdout.split())
    assert "are not reliable" in text
    assert "of a run was the driver's own time" in text
