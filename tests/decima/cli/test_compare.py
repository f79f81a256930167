import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import decima
from decima.cli.compare import DEFAULT_SCHEDULERS, SCHEDULERS_THAT_PACK
from decima.cli.main import cli
from decima.evaluation.summaries import scheduler_summaries
from decima.evaluation.variants import GRIDS
from decima.policy.shipped import SHIPPED
from decima.registry import SCHEDULERS
from decima.schedulers.listing import signature
from tests.cases import cases
from tests.decima.cli.commands import SAVED, Compare, assert_one_line_error, assert_same_again, results, succeeded, told
from tests.decima.evaluation.examples import LIBRARY, OWN
from tests.programs import started
from workloads import RandomStream, Workload, random_stream, trace_arrivals, write_workload
from workloads.imperfections import Imperfections

DECIMA = (sys.executable, "-m", "decima")


@pytest.mark.usefixtures("pictures")
def test_compare_shows_a_table_and_saves_json_and_pictures(run: Compare, tmp_path: Path) -> None:
    stream = ("--arrivals", "poisson", "--interval", "3", "--drift", "2:2")
    result = succeeded(run("--schedulers", "fifo,fair", "--json", "r.json", *stream))
    assert {path.name for path in tmp_path.iterdir()} == {"r.json", "tiny.json"}  # pictures need --out
    drawn = succeeded(run("--schedulers", "fifo,fair", "--out", "compare", *stream))
    assert drawn.stderr == ""  # the first command may say that it compiles
    assert drawn.stdout == f"{result.stdout}4 pictures in compare\n"
    rows = [line.split() for line in result.stdout.splitlines()]
    document = json.loads((tmp_path / "r.json").read_text())
    assert "3 s apart, 2 times the rate from 2 s on, " in " ".join(result.stdout.split())
    assert (document["drift"], document["arrivals"], document["interval_s"]) == ("2:2", "poisson", 3)
    for name in ("fifo", "fair"):
        figures = document["schedulers"][name]
        assert next(row for row in rows if row[:1] == [name])[1] == f"{figures['mean_jct_s']:.1f}"
    pictures = {"jct-cdf.png", "jobs-in-system.png", "schedule-fair.png", "schedule-fifo.png"}
    assert {path.name for path in (tmp_path / "compare").iterdir() if path.stat().st_size > 1000} == pictures


def test_faults_are_told_and_failed_jobs_counted(run: Compare) -> None:
    Path("nights.csv").write_text("# time, executors\n0,4\n\n5 2\n8, 4\n")
    faults = ("--task-failures", "0.3", "--stragglers", "0.5:2", "--capacity", "nights.csv")
    text, document = told(run("--schedulers", "fair", *SAVED, *faults, "--executors", "4"))
    assert "3 changes of capacity, 0.3 of runs fail, 0.5 of runs take 2 times as long" in text
    assert document["capacity"] == [[0.0, 4], [5.0, 2], [8.0, 4]]
    assert (document["task_failures"], document["stragglers"]) == (0.3, "0.5:2")
    failed = sum(document["schedulers"]["fair"]["per_seed_failed_jobs"])
    assert failed > 0
    assert f"fair: {failed} of " in text


def test_the_readable_engine_and_metrics_that_are_shown(run: Compare, tmp_path: Path) -> None:
    results = []
    for engine in ("compiled", "simpy"):
        run("--schedulers", "fifo,fair", "--json", f"{engine}.json", "--engine", engine)
        results.append((tmp_path / f"{engine}.json").read_text())
    assert results[0] == results[1]
    found = []
    for options in ("--objective misses", "--show misses,mean", "--objective misses --show mean,misses"):
        words = ("--schedulers", "fifo,fair", "--deadlines", "1.5,2", *options.split())
        text, document = told(run(*words, *SAVED))
        assert "Scheduler Misses Mean JCT vs best" in text
        found.append(document["schedulers"])
    assert found[0] == found[1] == found[2]


@cases(
    "options",
    "--schedulers fair",
    "--schedulers weighted-fair,random --training 2 --seed 3 --semantics decima-sim",
    "--schedulers fifo --arrivals poisson --interval 0.5 --moving-delay 0",
    "--schedulers fifo --arrivals poisson --interval 2 --drift 1:0.25:synthetic",
    "--schedulers fifo --executor-lifetime 3 --executor-return 2 --lost-output --stragglers 0.1:3 --speculation",
    "--schedulers fifo --executor-lifetime 1000 --executor-return never",
    "--schedulers drf,tetris:1:0.2 --classes 2x0.5,2x1 --memory-demand uniform",
)
def test_the_json_holds_a_command_that_gives_the_same_json(run: Compare, tmp_path: Path, options: str) -> None:
    succeeded(run(*options.split(), "--json", "r.json"))
    assert_same_again(tmp_path / "r.json", "--processes", "1", "--out", "elsewhere")


def test_winners_and_losers_are_told_by_query_and_all_jobs_are_written(run: Compare, tmp_path: Path) -> None:
    result = succeeded(run("--schedulers", "fifo,fair", "--by", "query", "--csv", "jobs.csv", "--json", "r.json"))
    assert "Mean JCT by query, s" in result.stdout
    jobs = pd.read_csv(tmp_path / "jobs.csv")
    assert set(jobs["scheduler"]) == {"fifo", "fair"}
    entry = json.loads((tmp_path / "r.json").read_text())["schedulers"]["fifo"]
    assert jobs[jobs["scheduler"] == "fifo"]["slowdown"].mean() == pytest.approx(entry["slowdown"])
    by_query = jobs[jobs["scheduler"] == "fair"].groupby("query")["jct_s"].mean()
    assert all(f"{value:.1f}" in result.stdout for value in by_query)
    assert_one_line_error(run("--csv", "nowhere/jobs.csv"), "cannot write nowhere/jobs.csv")


def test_columns_are_chosen_and_the_first_one_compared(run: Compare, tmp_path: Path) -> None:
    drawn = ("--deadlines", "2,4", "--tenants", "2", "--weights", "1,4")
    options = ("--schedulers", "fifo,fair", "--show", "misses,p99,jain", *drawn, "--by", "tenant")
    words, report = told(run(*options, *SAVED, "--csv", "jobs.csv"))
    assert "deadlines at slack 2 to 4, 2 tenants, weights 1, 4" in words
    assert "Scheduler Misses p99 JCT Jain vs best" in words
    assert "Mean JCT by tenant, s" in words
    assert "(Student's t, for quantiles and maxima a bootstrap)" in words
    assert "vs best: difference of the Misses in percentage points from that of" in words
    assert (report["deadlines"], report["tenants"], report["weights"]) == ("2,4", 2, "1,4")
    jobs = pd.read_csv(tmp_path / "jobs.csv")
    missed = jobs["tardiness_s"] > 0
    for name, entry in report["schedulers"].items():
        mine = jobs["scheduler"] == name
        assert entry["metrics"]["deadline_misses"]["mean"] == pytest.approx(missed[mine].mean())
        assert 0.5 <= entry["metrics"]["jain"]["mean"] <= 1
    assert "--show misses,p99,jain" in report["command"]


@cases(
    "objective, rules, is_learned",
    ("misses", {"edf", "atc"}, True),
    ("carbon:synthetic-wind", {"carbon-price:5", "carbon-slack"}, False),
)
def test_by_default_rules_for_the_objective_take_part(
    run: Compare, shipped: dict[str, Path], objective: str, rules: set[str], is_learned: bool
) -> None:
    """``decima`` is compared if a policy was trained for the objective, and fits."""
    _, document = told(run("--deadlines", "2,4", "--objective", objective, *SAVED, "--seeds", "1"))
    names = set(document["schedulers"])
    assert names >= {"fair", "srpt", *rules}
    assert "decima" not in names or is_learned


def test_the_objective_carbon_brings_its_signal(run: Compare) -> None:
    found = []
    for options in ("--objective carbon:synthetic-wind:60", "--objective carbon --carbon synthetic-wind:60"):
        text, document = told(run("--schedulers", "fair,carbon-price:5", *options.split(), *SAVED))
        assert "Scheduler Carbon Mean JCT vs best" in text
        found.append(document)
    assert found[0]["schedulers"] == found[1]["schedulers"]
    assert "--objective carbon:synthetic-wind:60" in found[0]["command"]
    assert_one_line_error(
        run("--objective", "carbon:a.csv", "--carbon", "b.csv"),
        "--objective carbon:a.csv: --carbon is another signal, b.csv",
    )


def test_columns_classes_and_tuned_settings_are_shown(run: Compare) -> None:
    assert_one_line_error(run("--show", "p98"), "no metric named 'p98' (did you mean 'p99'?), expected names of mean,")
    assert_one_line_error(run("--show", "p99,mean,p99"), "'p99,mean,p99': the same metric twice")
    assert_one_line_error(run("--by", "tenant"), "--by tenant: the jobs have no tenants; --tenants draws them")
    assert_one_line_error(run("--deadlines", "1,2,3"), "deadlines: expected at most 2 values, got (1.0, 2.0, 3.0)")
    named = "graphene-star:-1:0.5"  # no picture of a thumb
    words, document = told(run("--schedulers", named, "--classes", "2x1,3x0.5:1", *SAVED))
    assert named in words
    assert "5 executors (3 of cpu 0.5, memory 1; 2 of cpu 1, memory 1)" in words
    assert "No stage fits executors of cpu 0.5, memory 1." in words
    assert (document["classes"], document["executors"]) == ("3x0.5:1,2x1", 5)
    result = run("--schedulers", "weighted-fair,tuned-weighted-fair", "--training", "1")
    assert "weighted-fair: weighted-fair:" in result.stdout
    assert "known only in hindsight" in result.stdout


def test_a_workload_file_with_jobs_is_replayed_exactly(run: Compare, tmp_path: Path) -> None:
    sequence = trace_arrivals(LIBRARY.profiles[:2], [0.0, 500.0])
    write_workload(tmp_path / "exact.json", Workload(LIBRARY.profiles, sequence, "exact"))
    exact = ("--workload", "exact.json", "--executors", "2", "--seeds", "2", "--processes", "1")
    _, document = told(run("--schedulers", "fair", *SAVED, base=exact))
    assert (document["jobs"], document["arrivals"]) == (2, "exact")
    assert_one_line_error(run("--jobs", "5", base=exact), "--jobs has no effect")


def test_faults_are_as_measured(run: Compare, tmp_path: Path) -> None:
    measured = Imperfections(task_failures=0.05, executor_lifetime_s=500)
    write_workload(tmp_path / "night.json", Workload(LIBRARY.profiles, imperfections=measured))
    small = shlex.split("--workload night.json --executors 2 --seeds 1 --jobs 3 --processes 1")
    for options, failures, lifetime_s in (((), 0.05, 500.0), (("--task-failures", "0"), 0.0, 500.0)):
        text, document = told(run("--schedulers", "fair", *SAVED, *options, base=small))
        assert ("0.05 of runs fail" in text) == (failures > 0)
        assert (document["task_failures"], document["executor_lifetime_s"]) == (failures, lifetime_s)


def test_executors_that_never_come_back(run: Compare) -> None:
    lost = ("--schedulers", "fair", "--executor-return", "never", "--executor-lifetime")
    text, document = told(run(*lost, "500", *SAVED))
    assert "executors lost after 500 s, never back" in text
    assert document["executor_return_s"] is None
    assert_one_line_error(run(*lost, "0.001"), "cannot complete: 4 executors are lost")


def test_executors_take_as_long_to_move_as_was_measured(run: Compare, tmp_path: Path) -> None:
    measured = Workload(LIBRARY.profiles, name="night", about={"executor_startup_ms": 3500})
    write_workload(tmp_path / "night.json", measured)
    small = shlex.split("--workload night.json --executors 2 --seeds 2 --jobs 3 --processes 1")
    text, own = told(run("--schedulers", "fair", *SAVED, base=small))
    assert "Executors take 3.5 s to move to another job, their start-up time in night.json" in text
    text, same = told(run("--schedulers", "fair", "--moving-delay", "3.5", *SAVED, base=small))
    assert "start-up time" not in text
    assert own["schedulers"] == same["schedulers"]


def test_windows_of_a_workload_file_are_the_experiments(run: Compare, tmp_path: Path) -> None:
    sequence = trace_arrivals(LIBRARY.profiles, [0.0, 1000.0, 60_000.0, 120_000.0])
    write_workload(tmp_path / "exact.json", Workload(LIBRARY.profiles, sequence, "exact"))
    windows = ("--workload", "exact.json", "--executors", "2", "--window", "30", "--processes", "1")
    few = ("--schedulers", "weighted-fair,fifo", "--seeds", "2", "--training", "1")
    text, document = told(run(*few, *SAVED, base=windows))
    assert "windows of 30 s of exact, 2 executors, 2 experiments" in text
    assert (document["window_s"], document["jobs"], document["seeds"]) == (30, 2, [0, 1])
    one, other = document["schedulers"]["fifo"]["per_seed_mean_jct_s"]
    assert one != other
    assert_same_again(tmp_path / "r.json", "--processes", "1")
    assert_one_line_error(run("--schedulers", "fifo", base=windows), "exact: 3 windows with jobs, expected at least 20")
    assert_one_line_error(
        run(*few[:4], base=windows), "expected at least 8: up to number 1 to compare on, and 6 to tune"
    )
    assert_one_line_error(run("--window", "30"), "tiny: no windows, the workload has no arrival times")


def test_a_scheduler_in_the_users_folder_is_found(run: Compare, tmp_path: Path) -> None:
    (tmp_path / "mine_in_this_folder.py").write_text(
        f"from {OWN.rstrip(':')} import Greedy\nclass Mine(Greedy):\n    pass\n"
    )
    result = succeeded(run("--schedulers", "fair,mine_in_this_folder:Mine", "--out", "compare"))
    assert "mine_in_this_folder:Mine" in result.stdout
    assert (tmp_path / "compare" / "schedule-mine_in_this_folder-Mine.png").exists()


def test_lists_versions_and_helps() -> None:
    result = CliRunner().invoke(cli, ["schedulers"])
    names = {line.split()[0] for line in result.stdout.splitlines() if line.strip()}
    assert {*map(signature, SCHEDULERS), "weighted-fair", *(f"tuned-{name}" for name in GRIDS)} < names
    groups = scheduler_summaries()
    assert list(groups) == ["Rules", "Rules with searched weights", "Networks"]
    assert all(text for group in groups.values() for text in group.values())
    assert "srpt-tuned:JITTER" in groups["Rules with searched weights"]
    assert all(name in groups["Networks"]["decima:POLICY"] for name in SHIPPED)
    assert CliRunner().invoke(cli, ["--version"]).stdout == f"decima {decima.__version__}\n"
    alone = CliRunner().invoke(cli, [])
    assert "compare" in alone.stdout
    assert alone.exit_code == 0
    assert "--moving-delay" in CliRunner().invoke(cli, ["compare", "--help"]).stdout


def test_outputs_are_checked_before_the_work_begins(run: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.evaluation.comparison.Comparison.run", lambda *_: pytest.fail("the work began"))
    assert_one_line_error(run("--json", "missing/r.json"), "cannot write")


def test_the_installed_command_ends_errors_with_a_status(library: Path, tmp_path: Path) -> None:
    command = [*DECIMA, "compare", "--workload", str(library), "--schedulers", "fair,fare"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("decima: error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "compare").exists()


def assert_group_ends(group: int) -> None:
    """Assert that no process of the group remains after a short time."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a process is left")


SLOW_AFTER_FIRST = '''
import os
import time
from tests.decima.schedulers.own_schedulers import Greedy

class Slow(Greedy):
    """Is quick on the first seed and takes an hour on every other."""

    def decide(self, observation):
        if {profile.name for profile in observation.profiles} != {"job-20"}:  # whose jobs are both of that kind
            os.write(1, b"waiting\\n")  # in one piece, as two processes do it at once
            time.sleep(3600)
        return super().decide(observation)
'''


#: The command, printing a line for each finished experiment.
TALKATIVE = """
import threading
from decima.cli.main import main
from decima.evaluation import comparison
from decima.workers.processes import Processes

run, start, first_finished = comparison.run_comparisons, Processes._start_if_worthwhile, threading.Event()

def talk(comparisons, workers, on_step, *others):
    told = []

    def step(*steps):
        on_step(*steps)
        if len(comparisons[0].finished) > len(told):
            told.append(None)
            print("finished", flush=True)
            first_finished.set()

    run(comparisons, workers, step, *others)

def start_later(pool, work):
    first_finished.wait()  # or, where the machine is busy, another process might finish it while this one waits
    start(pool, work)

if __name__ == "__main__":
    comparison.run_comparisons, Processes._start_if_worthwhile = talk, start_later
    main()
"""


@pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")
@pytest.mark.parametrize(("processes", "number"), [("1", signal.SIGTERM), ("2", signal.SIGINT)])
def test_ctrl_c_and_sigterm_keep_the_experiments_that_have_finished(
    library: Path, tmp_path: Path, processes: str, number: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_AFTER_FIRST)
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    options = ["--schedulers", "fair,slow:Slow", "--seeds", "4", "--jobs", "2", "--executors", "2"]
    outputs = ["--json", "r.json", "--processes", processes]
    command = [sys.executable, "talkative.py", "compare", "--workload", str(library), *options, *outputs]
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    with started(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = sorted(process.stdout.readline() for _ in range(1 + int(processes)))
        assert said == ["finished\n", *["waiting\n"] * int(processes)]
        os.killpg(process.pid, number)  # it reaches the workers too
        stdout, stderr = process.communicate()
        assert process.returncode == 130
        assert_group_ends(process.pid)
    *progress, line = stderr.splitlines()
    assert all(each.startswith(("Compiling", "Comparing: ")) for each in progress)  # where the machine is busy
    assert line == "decima: interrupted, 1 of 4 experiments finished"
    assert "1 of 4 experiments" in stdout
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["seeds"], document["complete"]) == ([0], False)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(10))
def test_sigterm_ends_a_comparison_in_one_line_at_any_moment(tmp_path: Path, moment: int) -> None:
    options = ["--seeds", "400", "--jobs", "10", "--processes", "2", "--json", "r.json"]
    command = [sys.executable, "-m", "decima", "compare", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with started(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        while "compare" not in {path.name for path in tmp_path.iterdir()}:  # imported, and at work
            time.sleep(0.01)
        time.sleep(random_stream(moment, RandomStream.GENERATOR).uniform(0, 20))
        os.killpg(process.pid, signal.SIGTERM)
        _, stderr = process.communicate()
        assert process.returncode == 130
        assert_group_ends(process.pid)
    *told, line = stderr.splitlines()
    assert all(each.startswith("Comparing: ") for each in told)
    assert line.startswith("decima: interrupted, ")
    finished = int(line.split()[2])
    assert (tmp_path / "r.json").exists() == (finished > 0)


def test_ctrl_c_before_anything_has_finished_leaves_old_results_alone(
    run: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("decima.evaluation.comparison.run_comparisons", interrupted)
    (tmp_path / "r.json").write_text("old")
    result = run("--json", "r.json")
    assert (result.exit_code, result.stderr) == (130, "decima: interrupted, 0 of 2 experiments finished\n")
    assert (tmp_path / "r.json").read_text() == "old"


def test_checkpoints_and_fitting_policies_are_taken(run: Compare, policy: Path, shipped: dict[str, Path]) -> None:
    done = succeeded(run(*SAVED, "--schedulers", "fifo,fair", "--checkpoint", str(policy), "--out", "compare"))
    assert f"decima: the network {policy}, whose training is unknown" in done.stdout
    assert list(results()["schedulers"]) == ["fifo", "fair", "decima"]
    assert results()["schedulers"]["decima"]["policy"] == str(policy)
    assert Path("compare/schedule-decima.png").exists()
    assert_same_again(Path("r.json"), "--processes", "1", "--out", "elsewhere")
    done = succeeded(run("--schedulers", "decima", "--arrivals", "poisson", "--interval", "5"))
    assert "decima: the rule srpt-tuned, as no" in done.stdout


def test_checkpoint_says_which_policy_decima_follows(run: Compare, shipped: dict[str, Path], policy: Path) -> None:
    schedulers = "decima,fair,decima:packing-tpch"
    succeeded(run(*SAVED, "--schedulers", schedulers, "--checkpoint", str(policy)))
    figures = results()["schedulers"]
    assert list(figures) == ["decima", "fair", "decima:packing-tpch"]
    assert figures["decima"]["policy"] == str(policy)
    succeeded(run(*SAVED, "--schedulers", f"decima:{policy}"))
    alone = results()["schedulers"][f"decima:{policy}"]
    assert alone["per_seed_mean_jct_s"] == figures["decima"]["per_seed_mean_jct_s"]


@pytest.mark.usefixtures("not_shipped")
def test_by_default_it_takes_part_unless_no_policy_ships(run: Compare) -> None:
    succeeded(run(*SAVED, "--seeds", "1", "--training", "1"))
    assert ",".join([*results()["schedulers"], "decima"]) == DEFAULT_SCHEDULERS


def test_by_default_those_that_pack_take_part_where_executors_differ(run: Compare) -> None:
    small = ("--seeds", "1", "--training", "1", "--classes", "2x0.5,2x1", "--jobs", "2")
    done = succeeded(run(*SAVED, *small))
    assert ",".join([*results()["schedulers"], "decima"]) == SCHEDULERS_THAT_PACK
    assert "decima is left out: no shipped network" in done.stdout


def test_one_sentence_says_what_the_table_means(run: Compare) -> None:
    table = succeeded(run("--schedulers", "fifo,fair,srpt", "--json", "r.json"))
    means = {name: entry["mean_jct_s"] for name, entry in results()["schedulers"].items()}
    first = min(means, key=means.__getitem__)
    sooner = f"{1 - means[first] / means['fair']:.0%} sooner under {first}"
    said = f"Jobs complete {sooner} than under fair sharing, on average."
    assert (said in table.stdout) == (first != "fair")
    assert "sooner" not in run("--schedulers", "fifo,srpt").stdout
    assert "sooner" not in run("--schedulers", "fair,srpt", "--show", "p99").stdout


def test_a_page_to_explore_is_written(run: Compare, tmp_path: Path) -> None:
    succeeded(run("--schedulers", "fifo,fair", "--report", "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "decima compare --schedulers fifo,fair" in page
    assert "record-1" in page
    assert "A decision explained" not in page
    succeeded(run("--schedulers", "fair,decima:tpch-batch", "--report", "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "A decision explained" in page
    assert "srpt: runs stage" in page
    assert "What speaks for that stage, and what against it" in page
    assert_one_line_error(run("--report", "nowhere/page.html"), "cannot write nowhere/page.html")


def test_a_trace_for_perfetto_is_written(run: Compare, tmp_path: Path) -> None:
    succeeded(run("--schedulers", "fifo,weighted-fair", "--training", "1", "--trace-events", "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == ["fifo", "weighted-fair"]
    assert {event["ph"] for event in events} == set("MXbei")
