"""The command ``decima explain``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from tests.decima.cli.commands import succeeded


def explain(*arguments: str) -> Result:
    small = ("--workload", "synthetic", "--jobs", "3", "--executors", "4")
    return CliRunner().invoke(cli, ["explain", *small, *arguments])


def test_a_decision_is_explained(policy: Path, tmp_path: Path) -> None:
    result = succeeded(explain("--policy", str(policy), "--decision", "2", "--rule", "fair", "--json", "why.json"))
    assert result.stdout.startswith("Decision 2 at ")
    for heading in ("What it could run next", "Executors that its job may then hold", "What speaks for that stage"):
        assert heading in result.stdout
    document = json.loads((tmp_path / "why.json").read_text())
    assert document["decision"] == 2
    assert "--rule fair" in document["command"]
    succeeded(CliRunner().invoke(cli, [*document["command"].split()[1:], "--json", "again.json"]))
    assert (tmp_path / "again.json").read_text() == (tmp_path / "why.json").read_text()


def test_the_episode_is_the_first_of_a_comparison_with_the_same_options(policy: Path, tmp_path: Path) -> None:
    given = (*("--classes", "2x0.5,3x1", "--memory-demand", "uniform", "--semantics", "spark"), "--moving-delay", "1")
    small = ("--workload", "synthetic", "--jobs", "3", *given)
    succeeded(CliRunner().invoke(cli, ["explain", *small, "--policy", str(policy), "--json", "why.json"]))
    compared = ["compare", *small, "--checkpoint", str(policy), "--schedulers", "decima", "--seeds", "1"]
    succeeded(CliRunner().invoke(cli, [*compared, "--processes", "1", "--json", "all.json"]))
    why, all_of = (json.loads((tmp_path / name).read_text()) for name in ("why.json", "all.json"))
    assert "--classes 2x0.5,3x1" in why["command"]
    assert "--executors" not in why["command"]
    [jct_s] = all_of["schedulers"]["decima"]["per_seed_mean_jct_s"]
    assert why["mean_jct_s"]["as the policy decided"] == pytest.approx(jct_s)


def test_options_of_explain_and_nothing_to_explain() -> None:
    of = {name: {each.name for each in cli.commands[name].params} for name in ("compare", "explain")}
    say_what_runs = {"workload", "profiles", "arrivals", "interval", "jobs", "executors", "classes", "memory_demand"}
    say_what_runs |= {"moving_delay", "semantics", "window", "engine", "seed"}
    assert say_what_runs <= of["compare"] & of["explain"]
    assert "--overruled needs a guarantee" in explain("--overruled").stderr
    assert "no guarantee changes a later decision" in explain("--overruled", "--no-later-than", "1000").stderr


def test_uncertain_estimates_are_shown_with_their_uncertainty(policy: Path, tmp_path: Path) -> None:
    given = ("--policy", str(policy), "--rule", "fair", "--json", "why.json")
    exact = succeeded(explain(*given))
    assert "factor of" not in exact.stdout
    uncertain = succeeded(explain(*given, "--job-error", "1", "--unknown", "0.3"))
    assert "factor of" in uncertain.stdout
    document = json.loads((tmp_path / "why.json").read_text())
    assert "--job-error 1" in document["command"]
    assert all(0 < job["log_sd"] < 2 for job in document["jobs"])
    words = " ".join(succeeded(explain(*given, "--unknown", "1", "--futures", "0")).stdout.split())
    chosen = json.loads((tmp_path / "why.json").read_text())
    [job] = [job for job in chosen["jobs"] if job["job"] == chosen["chosen"][0]]
    assert job["predicted_low_s"] < job["predicted_s"] < job["predicted_high_s"]
    said = f"Job {job['job']} ({job['name']}) is unknown: estimated {job['predicted_s']:.3g} s of work, between"
    assert f"{said} {job['predicted_low_s']:.3g} and {job['predicted_high_s']:.3g} with a probability" in words
    assert "is unknown" not in exact.stdout


def test_a_guarantee_that_changed_the_decision_is_named(tmp_path: Path) -> None:
    given = ("--arrivals", "poisson", "--interval", "5", "--jobs", "15", "--no-later-than", "1", "--json", "why.json")
    result = succeeded(explain(*given, "--overruled", "--futures", "2"))
    assert "The guarantee no-later-than changed what the policy chose." in result.stdout
    found = json.loads((tmp_path / "why.json").read_text())
    assert (found["guarantee"], found["decision"]) == ("no-later-than", found["overruled"][0]["decision"])
    second = explain(*given, "--decision", str(found["overruled"][1]["decision"]), "--futures", "0")
    assert "The guarantee no-later-than changed" in second.stdout
    again = json.loads((tmp_path / "why.json").read_text())
    assert again["overruled"] == found["overruled"]
