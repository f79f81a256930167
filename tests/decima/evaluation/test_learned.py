"""Decima among the schedulers: which policy it follows, and that comparisons know what to do with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from decima.cli.compare import DEFAULT_SCHEDULERS
from decima.cli.main import cli
from decima.evaluation.comparison import PAPER_SCHEDULERS
from decima.evaluation.workers import Workers
from decima.policy import shipped as policies
from decima.policy.config import PAPER_POLICY
from decima.policy.files import load_actor, save_policy
from decima.policy.policy import Policy, load_policy
from decima.policy.scheduler import NeuralScheduler
from decima.policy.shipped import SHIPPED, default_policy
from decima.registry import SCHEDULERS, make_scheduler
from decima.schedulers.base import SchedulerError
from decima.show.plots import comparison_pictures
from decima.show.report import comparison_notes, comparison_table, scheduler_summaries
from simulator import run_episode
from tests.decima.evaluation.examples import (
    CLUSTER,
    LIBRARY,
    comparison,
    conditions,
    finished,
)
from tests.decima.evaluation.examples import (
    run as compared,
)
from tests.decima.policy.examples import changed
from tests.simulator.cluster.build import chain, stage
from workloads import (
    JobSequence,
    Workload,
    embedded_workload,
    load_tpch,
    trace_arrivals,
    write_workload,
)

SMALL = changed(PAPER_POLICY, embedding=2, hidden=(3,), head_hidden=(3,))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file."""
    save_policy(tmp_path / "policy.npz", Policy(SMALL, seed=1))
    return tmp_path / "policy.npz"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """All policies are there, and differ."""
    for seed, name in enumerate(SHIPPED):
        path = tmp_path / f"{name}.npz"
        save_policy(path, Policy(SMALL, seed))
        monkeypatch.setitem(SHIPPED, name, path)
    return SHIPPED


@pytest.fixture
def not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy is there."""
    for name in SHIPPED:
        monkeypatch.setitem(SHIPPED, name, tmp_path / "nowhere" / f"{name}.npz")


def sequence() -> JobSequence:
    return conditions().sequence(3)


# Which policy.


def test_policies_are_files_beside_their_module() -> None:
    assert list(SHIPPED) == ["tpch-batch", "tpch-stream", "embedded-batch", "embedded-stream"]
    folder = Path(policies.__file__).parent
    assert all(path == folder / f"{name}.npz" for name, path in SHIPPED.items())


def test_policies_that_are_there_can_be_read() -> None:
    for path in SHIPPED.values():
        if path.exists():
            assert load_actor(path).arrays["stage_head.0.weight"].size > 1000


def timed(workload: Workload, *arrival_ms: float) -> Workload:
    jobs = trace_arrivals(workload.profiles[: len(arrival_ms)], arrival_ms)
    return Workload(workload.profiles, jobs, workload.name)


def test_the_published_profiles_have_their_own_policies(shared: Callable[[str], Path]) -> None:
    published = Workload(load_tpch(shared("tpch"), ["2g"]), None, "tpch")
    assert default_policy(published, "batch") == "tpch-batch"
    assert default_policy(published, "poisson") == "tpch-stream"
    assert default_policy(timed(published, 0, 0), "poisson") == "tpch-batch"
    assert default_policy(timed(published, 0, 7), "batch") == "tpch-stream"


@pytest.mark.parametrize("workload", [embedded_workload(), LIBRARY], ids=["embedded", "own"])
def test_everything_else_has_those_of_the_embedded_set(workload: Workload) -> None:
    assert default_policy(workload, "batch") == "embedded-batch"
    assert default_policy(workload, "poisson") == "embedded-stream"
    assert default_policy(timed(workload, 5, 5, 5), "poisson") == "embedded-batch"
    assert default_policy(timed(workload, 0, 0, 1), "batch") == "embedded-stream"


def test_published_profiles_are_told_by_their_names() -> None:
    """They name no stages; one job of another kind is enough to make it another workload."""
    one = chain(stage(1, 10), name="tpch-q3-50g")
    assert default_policy(Workload((one,)), "batch") == "tpch-batch"
    assert default_policy(Workload((one, chain(stage(1, 10), name="etl"))), "batch") == "embedded-batch"


# As a scheduler.


def test_a_policy_file_is_a_scheduler(policy: Path) -> None:
    ours = run_episode(CLUSTER, sequence(), make_scheduler(f"decima:{policy}"))
    theirs = run_episode(CLUSTER, sequence(), NeuralScheduler(load_policy(policy)))
    assert ours.completion_ms.tolist() == theirs.completion_ms.tolist()


def test_a_shipped_policy_goes_by_its_name(shipped: dict[str, Path]) -> None:
    for name, path in shipped.items():
        assert _weights(make_scheduler(f"decima:{name}")) == _weights(make_scheduler(f"decima:{path}"))
    assert _weights(make_scheduler("decima")) == _weights(make_scheduler("decima:embedded-batch"))
    assert _weights(make_scheduler("decima")) != _weights(make_scheduler("decima:embedded-stream"))


def _weights(scheduler: Any) -> list[float]:
    return scheduler.policy.arrays["stage_head.0.weight"].ravel().tolist()  # type: ignore[no-any-return]


def test_a_policy_is_read_once_unless_it_changes(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr("decima.registry.load_actor", lambda path: read.append(path) or load_actor(path))
    first, again = (make_scheduler(f"decima:{policy}") for _ in range(2))
    assert first is not again
    assert read == [policy]
    save_policy(policy, Policy(SMALL, seed=2))
    os.utime(policy, ns=(0, 7))
    assert _weights(make_scheduler(f"decima:{policy}")) != _weights(first)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("decima", "the policy 'embedded-batch' does not come with this installation"),
        ("decima:tpch-batch", "the policy 'tpch-batch' does not come with this installation"),
        (
            "decima:",
            "the policy '' is no file, nor does it ship: expected a policy file or one of tpch-batch",
        ),
        ("decima:batch", "the policy 'batch' is no file, nor does it ship"),
        ("decima:no/such.npz", "the policy 'no/such.npz' is no file, nor does it ship"),
        ("decima:.", "the policy '.' is no file, nor does it ship"),
        ("decima:text.npz", "text.npz: not a policy, or cut off: expected a NumPy archive of arrays"),
        ("Decima", "unknown scheduler 'Decima': expected one of random, fifo"),
    ],
)
@pytest.mark.usefixtures("not_shipped")
def test_what_is_no_policy_is_refused_in_one_line(
    spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npz").write_text("no policy")
    with pytest.raises(SchedulerError) as error:
        make_scheduler(spec)
    assert message in str(error.value)
    assert repr(spec) in str(error.value)
    assert "\n" not in str(error.value)


def test_nobody_who_does_not_learn_waits_for_pytorch(tmp_path: Path) -> None:
    """Nor does whoever wants help, a list, a comparison, or a decision of a policy that has learned."""
    code = """
import sys
import decima, decima.cli.main, decima.evaluation.comparison, decima.policy.shipped, decima.show.report
import decima.registry
for options in (["--help"], ["schedulers"], ["compare", "--help"],
                ["compare", "--schedulers", "fifo,decima", "--jobs", "1", "--seeds", "1", "--processes", "1"]):
    decima.cli.main.cli(options, standalone_mode=False)
print([name for name in ("torch", "torch_geometric") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "[]"


# In comparisons.


def test_the_policy_fits_the_workload_unless_it_is_named(shipped: dict[str, Path], policy: Path) -> None:
    def followed(**given: Any) -> str:
        return comparison("fair", "decima", **given).schedulers["decima"]

    assert followed() == "decima:embedded-batch"
    assert followed(arrivals="poisson") == "decima:embedded-stream"
    assert followed(policy="tpch-batch") == "decima:tpch-batch"
    assert followed(policy=str(policy)) == f"decima:{policy}"
    named = f"decima:{policy}"
    assert comparison("fair", named, policy="tpch-batch").schedulers == {"fair": "fair", named: named}


@pytest.mark.usefixtures("not_shipped")
def test_a_comparison_without_its_policy_is_refused_at_once() -> None:
    with pytest.raises(SchedulerError, match="the policy 'embedded-batch' does not come with"):
        comparison("fair", "decima")


def test_results_do_not_depend_on_the_number_of_processes(policy: Path) -> None:
    given = {"num_experiments": 2, "policy": str(policy)}
    one, two = (compared("fair", "decima", processes=processes, **given) for processes in (1, 2))
    assert one.to_json() == two.to_json()
    entry = json.loads(one.to_json())["schedulers"]["decima"]
    assert entry["policy"] == str(policy)
    first = run_episode(CLUSTER, one.conditions.sequence(5), NeuralScheduler(load_policy(policy)))
    assert entry["per_seed_avg_jct_s"][0] == first.jct_ms.mean() / 1000


def test_it_is_shown_beside_the_others(shipped: dict[str, Path], tmp_path: Path) -> None:
    schedulers = ("fair", "decima", "decima:tpch-stream", f"decima:{shipped['tpch-batch']}")
    shown = compared(*schedulers, num_experiments=1)
    assert shown.table().index.tolist() == list(schedulers)
    assert comparison_table(shown).row_count == 4
    assert "decima: the policy embedded-batch." in comparison_notes(shown)
    assert len([note for note in comparison_notes(shown) if note.startswith("decima")]) == 1
    pictures = list(comparison_pictures(shown))
    assert pictures[1:3] == ["schedule-decima", "schedule-decima-tpch-stream"]
    entries = json.loads(shown.to_json())["schedulers"]
    assert "policy" not in entries["decima:tpch-stream"]


def test_it_is_no_classic_scheduler(shipped: dict[str, Path]) -> None:
    assert "decima" not in SCHEDULERS
    assert finished({"fifo": [9.0], "decima": [1.0], "decima:tpch-batch": [2.0]}).best_classic == "fifo"
    alone = finished({"decima": [1.0]})
    assert alone.best_classic is None
    assert np.isnan(alone.summary("decima")["difference_s"])


def threads(shared: None, item: int) -> int:
    import torch

    return torch.get_num_threads()


def test_a_worker_process_has_one_thread_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Workers(None, 2) as workers:
        assert list(workers.map(threads, range(2))) == [1, 1]


# On the command line.


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a small ``decima compare`` with more options, in an empty folder."""
    write_workload(tmp_path / "tiny.json", LIBRARY)
    monkeypatch.chdir(tmp_path)
    small = ["--workload", "tiny.json", "--jobs", "3", "--executors", "4", "--seeds", "2"]
    small += ["--training", "1", "--processes", "1", "--json", "r.json"]

    def run(*options: str) -> Result:
        return CliRunner().invoke(cli, ["compare", *small, *options])

    return run


def results() -> dict[str, Any]:
    return json.loads(Path("r.json").read_text())  # type: ignore[no-any-return]


def test_checkpoint_adds_decima_with_that_policy(run: Callable[..., Result], policy: Path) -> None:
    done = run("--schedulers", "fifo,fair", "--checkpoint", str(policy))
    assert done.exit_code == 0, done.stderr
    assert f"decima: the policy {policy}." in done.stdout
    assert list(results()["schedulers"]) == ["fifo", "fair", "decima"]
    assert results()["schedulers"]["decima"]["policy"] == str(policy)
    assert Path("compare/schedule-decima.png").exists()
    # The command that the results name makes them again.
    before, command = Path("r.json").read_text(), results()["command"].split()
    again = CliRunner().invoke(cli, [*command[1:], "--processes", "1", "--json", "r.json"])
    assert again.exit_code == 0, again.stderr
    assert Path("r.json").read_text() == before


def test_checkpoint_says_which_policy_decima_follows(
    run: Callable[..., Result], shipped: dict[str, Path], policy: Path
) -> None:
    assert run("--schedulers", "decima,fair,decima:tpch-batch", "--checkpoint", str(policy)).exit_code == 0
    figures = results()["schedulers"]
    assert list(figures) == ["decima", "fair", "decima:tpch-batch"]
    assert figures["decima"]["policy"] == str(policy)
    assert run("--schedulers", f"decima:{policy}").exit_code == 0
    alone = results()["schedulers"][f"decima:{policy}"]
    assert alone["per_seed_avg_jct_s"] == figures["decima"]["per_seed_avg_jct_s"]


def test_without_checkpoint_a_fitting_policy_is_taken(
    run: Callable[..., Result], shipped: dict[str, Path]
) -> None:
    done = run("--schedulers", "decima", "--arrivals", "poisson", "--interval", "5")
    assert done.exit_code == 0, done.stderr
    assert "decima: the policy embedded-stream." in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--checkpoint", "missing.npz"), "'--checkpoint': File 'missing.npz' does not exist"),
        (("--checkpoint", "."), "'--checkpoint': File '.' is a directory"),
        (("--checkpoint", "tiny.json"), "tiny.json: not a policy, or cut off"),
        (("--schedulers", "decima"), "the policy 'embedded-batch' does not come with this installation"),
        (("--schedulers", "fair,decima:tpch-stream"), "the policy 'tpch-stream' does not come with"),
        (("--schedulers", "decima:missing.npz"), "the policy 'missing.npz' is no file"),
    ],
)
@pytest.mark.usefixtures("not_shipped")
def test_bad_policies_are_told_in_one_line(
    run: Callable[..., Result], options: tuple[str, ...], message: str
) -> None:
    done = run(*options)
    assert done.exit_code not in (0, 130)
    assert done.stderr.startswith("decima: error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("r.json").exists()


def test_it_is_compared_by_default() -> None:
    assert tuple(DEFAULT_SCHEDULERS.split(",")) == (*PAPER_SCHEDULERS, "decima")


@pytest.mark.usefixtures("not_shipped")
def test_by_default_it_is_left_out_where_no_policy_ships(run: Callable[..., Result]) -> None:
    done = run(
        "--schedulers", DEFAULT_SCHEDULERS, "--seeds", "1", "--training", "1", "--json", "left-out.json"
    )
    assert done.exit_code == 0, done.stderr
    assert set(json.loads(Path("left-out.json").read_text())["schedulers"]) == set(PAPER_SCHEDULERS)


def test_it_is_listed() -> None:
    summaries = scheduler_summaries()
    assert summaries["decima"]
    assert all(name in summaries["decima:POLICY"] for name in SHIPPED)
