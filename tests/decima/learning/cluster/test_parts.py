"""Trainings with custom parts."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from decima.cli.main import cli
from decima.learning import Baseline, ClusterTraining, Curve, Reinforce, Returns, read_config
from decima.learning.resume import load_checkpoint
from decima.policy.files import load_actor, load_policy
from decima.policy.parts import ALLOWED
from decima.settings import TrainingError
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error
from tests.decima.learning.cluster.examples import small
from tests.decima.learning.examples import assert_same_run, measured, stop_after
from tests.refusal import one_line

PARTS = "tests.example_parts"
HERE = __name__
METRICS_BY_NAME = "metrics by name, such as loss, entropy, gradient_norm and steps"

#: A setting for each kind of part.
SETTINGS = {
    "feature of stages": f"policy.stage_features=[{{name: '{PARTS}:LeftToStart'}}]",
    "feature of jobs": f"policy.job_features=[{{name: '{PARTS}:ShortestFirst', scale: 2.0}}]",
    "encoder": f"policy.overrides.encoder={PARTS}:MeanEncoder",
    "head of stages": f"policy.overrides.stage_head={PARTS}:LayersHead",
    "head of limits": f"policy.overrides.limit_head={PARTS}:ParabolaHead",
    "returns": f"returns={{kind: '{PARTS}:Forgetful', options: {{factor: 0.9}}}}",
    "baseline": f"baseline.kind={PARTS}:PastMean",
    "algorithm": f"update.algorithm={PARTS}:Better",
}


def invoke(*words: str) -> Any:
    here = ["--workers", "1"] if words[0] == "train" else []  # others would take seconds to start
    return CliRunner().invoke(cli, [*words, *here])


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file in the current folder with the smallest training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ALLOWED, "")
    config = small(
        tmp_path,
        iterations=1,
        workload={"jobs": 3},
        episodes={"sequences": 1, "per_sequence": 2},
        validation={"sequences": 1},
    )
    Path("tiny.yaml").write_text(config.to_yaml())
    yield "tiny.yaml"
    for module in ("mine", "theirs"):
        sys.modules.pop(module, None)


def test_a_training_with_all_parts_of_ones_own_and_a_comparison(recipe: str) -> None:
    sets = [word for setting in SETTINGS.values() for word in ("--set", setting)]
    done = invoke("train", "--config", recipe, *sets, "--out", "out")
    assert done.exit_code == 0, done.stderr
    first, second = (measured(Path("out"))[at] for at in (0, 1))
    assert first["iteration"] == 0
    assert second["gradient_norm"] > 0
    policy, actor = load_policy(Path("out/policy.npz")), load_actor(Path("out/policy.npz"))
    for name, array in actor.arrays.items():
        np.testing.assert_array_equal(array, policy.arrays[name])
    again = invoke("train", "--resume", "--set", "iterations=2", "--out", "out")
    assert again.exit_code == 0, again.stderr
    assert len(measured(Path("out"))) == 3
    compare = "compare --checkpoint out/policy.npz --schedulers fair,decima --workload tiny.json --jobs 3"
    done = invoke(*shlex.split(compare), "--executors", "4", "--seeds", "2", "--processes", "1")
    assert done.exit_code == 0, done.stderr
    assert "decima" in done.stdout


def test_parts_of_the_current_folder(recipe: str) -> None:
    """Modules of the current folder are found, as for schedulers; a user of the policy file must allow the module."""
    Path("mine.py").write_text("from tests.example_parts import LayersHead\nclass Own(LayersHead): pass\n")
    done = invoke("train", "--config", recipe, "--set", "policy.overrides.stage_head=mine:Own", "--out", "out")
    assert done.exit_code == 0, done.stderr


def test_what_parts_remember_is_kept_in_checkpoints(tmp_path: Path) -> None:
    """An interrupted training ends with the same bits as an uninterrupted one."""
    sets = ("encoder", "returns", "baseline", "algorithm")
    (tmp_path / "c.yaml").write_text(small(tmp_path, iterations=3, checkpoint_every=1).to_yaml())
    config = read_config(tmp_path / "c.yaml", [SETTINGS[each] for each in sets])
    ClusterTraining(config, tmp_path / "one").run()
    ClusterTraining(config, tmp_path / "two").run(stop_after(2, KeyboardInterrupt))
    remembered = load_checkpoint(tmp_path / "two" / "checkpoint.pt").learner["advantages"]["baseline"]
    assert remembered["count"] > 0
    ClusterTraining(config, tmp_path / "two", resume=True).run()
    assert_same_run(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_several_processes_learn_the_same_with_an_own_network(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(small(tmp_path, iterations=2).to_yaml())
    config = read_config(tmp_path / "c.yaml", [SETTINGS["encoder"], SETTINGS["feature of stages"]])
    for processes in (1, 2):
        ClusterTraining(config, tmp_path / str(processes), workers=processes).run()
    assert_same_run(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
def test_a_policy_learns_from_its_own_feature(tmp_path: Path) -> None:
    """Only the custom feature shows which job is the shortest, the only useful information here.

    The initial policy prefers the longest job. A policy that sees only whether executors are local learns the value
    of that feature, and stays far behind.
    """
    changes: dict[str, Any] = {
        "seed": 1,
        "iterations": 15,
        "workload": {"jobs": 10},
        "episodes": {"sequences": 2, "per_sequence": 6},
        "update": {"learning_rate": 0.01, "final_learning_rate": 0.002, "ema_decay": 0.5},
        "validation": {"every": 5, "sequences": 10},
    }
    shape = "policy.overrides={graph: false, limit: none, stage_features: [{name: %s}], job_features: []}"
    jct_s = {}
    for name in ("ShortestFirst", "local"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text(small(tmp_path / name, **changes).to_yaml())
        feature = name if name == "local" else f"'{PARTS}:{name}'"
        ClusterTraining(read_config(tmp_path / name / "c.yaml", [shape % feature]), tmp_path / name / "out").run()
        rows = measured(tmp_path / name / "out")
        jct_s[name] = [row["validation_mean_jct_s"] for row in rows if "validation_mean_jct_s" in row]
    before, *_, after = jct_s["ShortestFirst"]
    assert after < 0.6 * before
    assert after < 0.85 * jct_s["local"][-1]


@cases("override, message",
        ("returns.kind=gone:Own", "returns: kind: 'gone:Own' cannot be loaded: ModuleNotFoundError: No module"),
        (f"baseline.kind={PARTS}:Gone", f"baseline: kind: '{PARTS}:Gone' cannot be loaded: AttributeError"),
        (f"update.algorithm={PARTS}:PastMean",
         f"update: algorithm: '{PARTS}:PastMean' is not a Reinforce: expected a subclass of "
         "decima.learning.Reinforce"),
        (
            f"returns={{kind: '{PARTS}:Forgetful', options: {{horizon: 3}}}}",
            f"returns: kind: '{PARTS}:Forgetful' cannot be loaded: TypeError: ",
        ),
        ("returns.options={factor: 1}", "returns: options: have no effect without a custom kind, module:Class"),
        ("returns.kind=all", "returns.kind: expected 'total', 'discounted', 'differential' or module:Class, got"),
        ("update.algorithm=PPO", "update.algorithm: expected 'ppo', 'reinforce' or module:Class, got 'PPO'"),
        ("policy.overrides.encoder=gone:Own", "policy: encoder: 'gone:Own' cannot be loaded: ModuleNotFound"),
)  # fmt: skip
def test_a_part_that_cannot_be_used_is_refused_in_one_line(override: str, message: str) -> None:
    assert message in one_line(TrainingError, read_config, "batch", [override])


def assert_ended(result: Any, message: str) -> None:
    """Assert that a running training ended with a one-line error."""
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"decima: error: {message}")
    assert "Traceback" not in result.stderr


class OneForAll(Baseline):
    """A baseline that returns one number per episode."""

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        return [np.zeros(1) for _ in curves]


class Rewards(Returns):
    """Returns without discounts."""

    def steps(self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float) -> Any:
        return reward


class Quiet(Reinforce):
    """An algorithm that returns no metrics."""

    def update(self, *given: Any, **named: Any) -> dict[str, float]:
        return None  # type: ignore[return-value]


class Inventive(Reinforce):
    """An algorithm that returns an unknown metric."""

    def update(self, *given: Any, **named: Any) -> dict[str, float]:
        return {"loss": 1.0, "beauty": 2.0}


class Wordy(Reinforce):
    """An algorithm that returns a metric that is not a number."""

    def update(self, *given: Any, **named: Any) -> dict[str, float]:
        return {"loss": "small"}  # type: ignore[dict-item]


@cases(
    "key, kind, expected",
    ("baseline.kind", "OneForAll", "an array like the values of each episode"),
    ("returns.kind", "Rewards", "two arrays of shape ["),
    ("update.algorithm", "Quiet", f"{METRICS_BY_NAME}, returned NoneType"),
    ("update.algorithm", "Inventive", f"{METRICS_BY_NAME}, returned beauty: 2.0"),
    ("update.algorithm", "Wordy", f"{METRICS_BY_NAME}, returned loss: 'small'"),
)
def test_a_part_that_gives_something_else_is_named_in_one_line(key: str, kind: str, expected: str, recipe: str) -> None:
    done = invoke("train", "--config", recipe, "--set", f"{key}={HERE}:{kind}", "--out", "out")
    assert_ended(done, f"{key}: '{HERE}:{kind}' must return {expected}")


def test_a_policy_file_with_parts_is_refused_by_commands_unless_they_are_allowed(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("theirs.py").write_text("from tests.example_parts import LayersHead\nclass Own(LayersHead): pass\n")
    sets = ("--set", "policy.overrides.stage_head=theirs:Own")
    assert invoke("train", "--config", recipe, *sets, "--out", "out").exit_code == 0
    del sys.modules["theirs"]
    monkeypatch.setenv(ALLOWED, "")  # as in another process, which has named no class
    words = ["compare", "--checkpoint", "out/policy.npz", "--schedulers", "decima", "--workload", "tiny.json"]
    words += ["--jobs", "3", "--executors", "4", "--seeds", "1", "--processes", "1"]
    assert_one_line_error(invoke(*words), "stage_head: 'theirs:Own' is code that does not come with decima")
    assert "theirs" not in sys.modules
    done = invoke("--allow-parts", "theirs", *words, "--json", "r.json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(Path("r.json").read_text())["command"].startswith("decima --allow-parts theirs compare ")


def test_a_policy_that_gives_no_scores_ends_a_training_in_one_line(recipe: str) -> None:
    name = "tests.decima.policy.test_parts:Columnar"
    done = invoke("train", "--config", recipe, "--set", f"policy.overrides.stage_head={name}", "--out", "out")
    assert_ended(done, f"stage_head: '{name}' must return scores as floating-point numbers of shape ")
