"""Commands and options that messages suggest: each is run as it is printed."""

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.learning.cluster import train as cluster_train
from decima.policy.parts import ALLOWED
from tests.cases import cases
from tests.decima.cli.commands import Compare, assert_one_line_error, every_command, succeeded
from tests.decima.learning.cluster.examples import small
from tests.decima.learning.grid.examples import small as small_grid

ROOT = Path(__file__).parents[3]


def run(line: str, *more: str) -> Result:
    """Run a printed command line, without permissions of earlier ones; ``more`` words make it shorter."""
    words = shlex.split(line)
    assert words[0] == "decima"
    return CliRunner().invoke(cli, [*words[1:], *more], env={ALLOWED: ""})


def printed_command(result: Result) -> str:
    """Return the last line that is a command."""
    lines = [line.strip() for line in result.stdout.splitlines() if line.startswith("  decima ")]
    return lines[-1]


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[str]:
    """A file with a training of a second, beside a module with a part of a policy."""
    short = {"episodes": {"sequences": 1, "per_sequence": 2}, "validation": {"sequences": 1}}
    (tmp_path / "small.yaml").write_text(small(tmp_path, iterations=1, **short).to_yaml())
    (tmp_path / "mine.py").write_text("from tests.example_parts import LayersHead\nclass Own(LayersHead): pass\n")
    yield "small.yaml"
    sys.modules.pop("mine", None)


FEW = ("--seeds", "2", "--processes", "1")


@cases(
    "settings",
    "",
    "policy.overrides.stage_head=mine:Own cluster.reward=makespan",
    "cluster.reward=carbon:synthetic-solar workload.arrivals=poisson workload.interval=[2,3] workload.drift=5:2",
    "cluster.reward=weighted workload.weights=[1,4]",
    "cluster.classes=2x0.5,2x1 policy.preset=packing workload.memory_demand=uniform",
)
def test_the_command_after_a_training_compares_its_policy(settings: str, recipe: str) -> None:
    sets = [word for setting in settings.split() for word in ("--set", setting)]
    out = ("--out", "my 'own' policies", "--workers", "1")
    command = printed_command(succeeded(CliRunner().invoke(cli, ["train", "--config", recipe, *sets, *out])))
    compared = succeeded(run(command, *FEW))
    assert "decima: the network my 'own' policies/policy.npz" in compared.stdout
    assert "the objective is" not in compared.stdout  # the comparison is by the objective of the training


@cases("settings", "grid.machines=2", "jobs.distribution=coarse grid.semantics=deeprm", "jobs.log=my\\ log.swf")
def test_the_command_after_a_training_on_a_grid_compares_its_policy(settings: str, tmp_path: Path) -> None:
    lines = (f"{n} {n} 0 {60 + n} {1 + n % 4} -1 -1 {1 + n % 4} 90 -1 1 1 1 1 1 -1 -1 -1" for n in range(1, 40))
    (tmp_path / "my log.swf").write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    jobs = {"load": 0.4, "steps": 8}
    (tmp_path / "small.yaml").write_text(small_grid(iterations=1, jobs=jobs).to_yaml())
    sets = [word for setting in shlex.split(settings) for word in ("--set", setting)]
    train = ["deeprm", "train", "--config", "small.yaml", *sets, "--out", "a grid"]
    command = printed_command(succeeded(CliRunner().invoke(cli, train)))
    compared = run(command, "--sets", "2", "--steps", "5", "--loads", "10", "--heuristics", "sjf")
    assert "the network a grid/policy.npz" in succeeded(compared).stdout


def test_a_grid_that_no_comparison_has_is_not_suggested(tmp_path: Path) -> None:
    config = small_grid(iterations=1, grid={"units": 12, "slot_width": 12}, jobs={"load": 0.3})
    (tmp_path / "small.yaml").write_text(config.to_yaml())
    result = CliRunner().invoke(cli, ["deeprm", "train", "--config", "small.yaml", "--out", "out"])
    assert "decima deeprm compare" not in succeeded(result).stdout


def test_an_interrupted_training_says_how_to_resume(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learn = cluster_train.ClusterTraining.learn

    def interrupt(self: cluster_train.ClusterTraining, iteration: int) -> dict[str, float]:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_train.ClusterTraining, "learn", interrupt)
    own = ["--set", "policy.overrides.stage_head=mine:Own", "--workers", "1"]
    train = ["--allow-parts", "mine", "train", "--config", recipe, *own, "--out", "an out"]
    result = CliRunner().invoke(cli, train)
    assert result.exit_code == 130
    hint = result.stderr.splitlines()[-1].partition("to resume: ")[2]
    assert hint == "decima --allow-parts mine train --resume --out 'an out'"
    monkeypatch.setattr(cluster_train.ClusterTraining, "learn", learn)
    succeeded(run(hint, "--workers", "1"))
    again = [*train, "--resume"]  # the hint of the refusal of the same folder
    assert_one_line_error(CliRunner().invoke(cli, train), "contains a training run already; --resume continues it")
    succeeded(CliRunner().invoke(cli, again))


def test_the_permission_for_code_of_a_policy_file_is_as_printed(recipe: str) -> None:
    own = ["--set", "policy.overrides.stage_head=mine:Own", "--workers", "1"]
    succeeded(CliRunner().invoke(cli, ["train", "--config", recipe, *own, "--out", "out"]))
    compare = "compare --checkpoint out --workload tiny.json --jobs 2 --executors 4"
    refused = run(f"decima {compare}", *FEW)
    assert_one_line_error(refused, "'mine:Own' is code that does not come with decima")
    hint = re.search(r"if you trust it: (decima .*) \.\.,", refused.stderr)
    assert hint is not None
    succeeded(run(f"{hint[1]} {compare}", *FEW))


@cases(
    "options, message, hint",
    ("--by tenant", "--tenants draws them", "--tenants 2"),
    ("--interval 3", "it needs --arrivals poisson", "--arrivals poisson"),
    ("--lost-output", "it needs --executor-lifetime", "--executor-lifetime 100"),
    ("--idle-watts 5", "it needs --carbon", "--carbon synthetic-solar"),
)
def test_options_that_a_refusal_names_help(options: str, message: str, hint: str, run: Compare) -> None:
    given = [*options.split(), "--schedulers", "fifo"]
    assert_one_line_error(run(*given), message)
    succeeded(run(*given, *hint.split()))


def test_constants_of_a_tuned_rule_are_used_as_printed(library: Path) -> None:
    pytest.importorskip("cma", reason="needs the extra 'tune'")
    where = f"--workload {library} --jobs 2 --executors 4 --workers 1"
    few = "--seeds 2 --judged 2 --generations 1 --sequences 1"
    result = succeeded(run(f"decima tune {where} {few} --json 'my rule.json'"))
    hint = re.search(r"Use them as (srpt:.*\.json)", " ".join(result.stdout.split()))
    assert hint is not None
    succeeded(run(shlex.join(["decima", "compare", "--schedulers", f"fifo,{hint[1]}"]), *shlex.split(where), *FEW))


# All texts of the program


@cache
def strings() -> list[tuple[str, str]]:
    """Return file and text of each string of the program; values in a text are ``{}``."""
    found = []
    for package in ("decima", "simulator", "workloads"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
                    found.append((path.name, "".join(map(str, parts))))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append((path.name, node.value))
    return found


def test_commands_in_all_texts_exist_and_have_the_options() -> None:
    commands = {" ".join(words): command for words, command in every_command()} | {"": cli}
    found = set()
    for file, text in strings():
        for line in re.findall(r"\bdecima ((?:[a-z-]+ )*[a-z-]+ --[a-z-]+)", text):
            *words, option = line.split()
            command = commands.get(" ".join(words))
            if words[0] not in commands or isinstance(command, click.Group):
                continue  # such as "decima is"
            assert command is not None, (file, line)
            assert option in {each for parameter in command.params for each in parameter.opts}, (file, line)
            found.add(line)
    assert found >= {"compare --show", "serve --log", "train --explain", "tune --json"}


def test_extras_in_all_texts_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for _, text in strings() for name in re.findall(r"pip install -e '\.\[(\w+)\]'", text)}
    assert {"spark", "tune", "serve", "ray"} <= named <= extras.keys()
