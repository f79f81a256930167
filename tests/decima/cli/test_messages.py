"""Messages for natural mistakes: what was wrong, and what was probably meant. ``test_malformed`` has damaged files."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import decima
from decima.cli.main import cli
from decima.evaluation.conditions import CompareError
from decima.outputs import OutputError
from decima.policy.grid import build_actor, save_network
from decima.policy.grid_config import GridPolicyConfig
from decima.policy.policy import Policy
from decima.policy.presets import SHORTCUT_POLICY
from decima.policy.save import save_policy
from decima.policy.scheduler import NeuralScheduler
from decima.schedulers.base import SchedulerError
from decima.settings import TrainingError
from simulator import run_episode
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error, succeeded
from tests.refusal import one_line
from workloads import batch_arrivals, synthetic_profiles
from workloads.errors import ConfigError, PolicyFileError, WorkloadError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module, the folder of a training, that of a training on a grid, and folders of profiles."""
    folder = tmp_path_factory.mktemp("newcomer")
    module = "from decima.schedulers import Fifo\nclass Own(Fifo): pass\nSIZE = 3\n"
    (folder / "mine.py").write_text(module)
    (folder / "broken.py").write_text("import no_such_module\n")
    for name in ("trained", "grid", "profiles/tpch/2g", "empty"):
        (folder / name).mkdir(parents=True)
    save_policy(folder / "trained" / "policy.npz", Policy(SHORTCUT_POLICY, seed=1))
    for name in ("checkpoint.pt", "config.yaml"):
        (folder / "trained" / name).write_text("iterations: 1\n")
    config = GridPolicyConfig()
    save_network(folder / "grid" / "policy.npz", build_actor(config), config, {})
    return folder


@pytest.fixture(autouse=True)
def _in_this_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    yield
    for name in ("mine", "broken"):
        sys.modules.pop(name, None)


CLASSES = "scheduler '{}' cannot be loaded: "
TRAIN = "train --config quick --out new/run --set "


@cases(
    "command, message",
    # Schedulers
    ("compare --schedulers Fifo", "unknown scheduler 'Fifo' (did you mean 'fifo'?)"),
    ("compare --schedulers weighted_fair", "unknown scheduler 'weighted_fair' (did you mean 'weighted-fair'?)"),
    ("compare --schedulers mine", "unknown scheduler 'mine' (did you mean a class in that file, 'mine:CLASS'?)"),
    ("compare --schedulers mine.py", "unknown scheduler 'mine.py' (did you mean a class in that file, 'mine:CLASS'?)"),
    ("compare --schedulers mine.py:Own", "No module named 'mine.py' (did you mean 'mine:Own'?)"),
    ("compare --schedulers ./mine.py:Own", "No module named './mine.py' (did you mean 'mine:Own'?)"),
    ("compare --schedulers mien:Own", "No module named 'mien' (did you mean 'mine'?)"),
    ("compare --schedulers mine:own", "module 'mine' has no attribute 'own' (did you mean 'Own'?)"),
    ("compare --schedulers zzz:Own", f"{CLASSES.format('zzz:Own')}ModuleNotFoundError: No module named 'zzz'\n"),
    ("compare --schedulers broken:Own", "ModuleNotFoundError: No module named 'no_such_module'\n"),
    ("compare --schedulers fifo fair", "Got unexpected extra argument (fair)"),
    ("compare --scheduler fifo", "No such option '--scheduler'. Did you mean '--schedulers'?"),
    # Policies
    ("compare --checkpoint empty", "Invalid value for '--checkpoint': the folder 'empty' contains no policy.npz"),
    ("compare --checkpoint trained/checkpoint.pt", "is not a policy file (did you mean 'trained/policy.npz'?)"),
    ("compare --checkpoint trained/config.yaml", "is not a policy file (did you mean 'trained/policy.npz'?)"),
    ("compare --checkpoint grid", "grid/policy.npz: a policy of decima deeprm train; expected one of decima train"),
    ("compare --schedulers decima:tpch-bach", "(did you mean 'tpch-batch'?)"),
    ("deeprm compare --checkpoint trained", "trained/policy.npz: not a network for a grid"),
    ("explain --policy empty", "the policy 'empty' is neither a file nor a shipped policy"),
    # Jobs
    ("compare --workload tcph", "tcph: no such workload (did you mean 'tpch'?)"),
    ("compare --profiles profiles", "profiles: contains no folder 2g (did you mean 'profiles/tpch'?)"),
    ("compare --profiles profiles/tpch/2g", "profiles/tpch/2g: contains no folder 2g (did you mean 'profiles/tpch'?)"),
    ("compare --profiles empty", "empty: contains no folder 2g, expected the published TPC-H profiles"),
    # Trainings
    ("train --config quikc --out new/run", "unknown recipe 'quikc' (did you mean 'quick'?)"),
    (f"{TRAIN}encoder=mine:Own", "encoder: unknown key (did you mean 'policy.overrides.encoder'?), got 'mine:Own'"),
    (f"{TRAIN}policy.encoder=mine:Own", "policy.encoder: unknown key (did you mean 'policy.overrides.encoder'?)"),
    (f"{TRAIN}ppo.clip=0.1", "ppo: unknown key (did you mean 'update.clip'?)"),
    (f"{TRAIN}learning_rate=1", "(did you mean 'behaviour_cloning.learning_rate' or 'update.learning_rate'?)"),
    (f"{TRAIN}iteration=1", "iteration: unknown key (did you mean 'iterations'?), got 1"),
    (f"{TRAIN}zebra=red", "zebra: unknown key, got 'red'"),
    (f"{TRAIN}policy.stage_features=[job_log_sd]", "expected an object such as {name: job_log_sd}, got 'job_log_sd'"),
    (f"{TRAIN}policy.overrides.encoder=mine:Owm", "module 'mine' has no attribute 'Owm' (did you mean 'Own'?)"),
    (f"{TRAIN}start=grid/policy.npz --set behaviour_cloning=null", "a policy of decima deeprm train"),
    ("deeprm train --out new/run --set units=3", "units: unknown key (did you mean 'grid.units'?), got 3"),
    ("train --out new/run --resume", "new/run: contains no training run to resume"),
    ("train --out new/run --workload missing.json", "missing.json: no such workload"),
    ("serve --policy tpch-bach", "(did you mean 'tpch-batch'?)"),
    ("comapre", "No such command 'comapre'. Did you mean 'compare'?"),
)  # fmt: skip
def test_a_command_says_what_was_probably_meant(command: str, message: str, folder: Path) -> None:
    result = CliRunner().invoke(cli, command.split())
    assert_one_line_error(result, message)
    assert result.exit_code == 2
    assert not (folder / "new").exists()


def jobs() -> Any:
    return batch_arrivals(synthetic_profiles(), num_jobs=2, seed=1)


CLUSTER = decima.ClusterConfig(num_executors=5)
FEW: dict[str, Any] = {"seeds": 2, "jobs": 2, "executors": 5}


@cases(
    "error, call, message",
    (TrainingError, lambda: decima.train("quick", "new", overrides="iterations=1"), "got 'iterations=1'"),
    (TrainingError, lambda: decima.train("quick", "new", overrides={"iterations": 1}), "got {'iterations': 1}"),
    (TrainingError, lambda: decima.train("quick", "new", overrides=[("iterations", 1)]), "such as ['iterations=20']"),
    (TrainingError, lambda: decima.train("quick", "new", overrides="a=1", workload="tpch"), "overrides must be a list"),
    (TrainingError, lambda: decima.train(7, "new"), "config must be the name of a recipe, or a path, got 7"),
    (TrainingError, lambda: decima.train("quick", "new", resume=True), "new: contains no training run to resume"),
    (OutputError, lambda: decima.train("quick", "mine.py"), "cannot write into the folder mine.py"),
    (TypeError, lambda: decima.compare("fifo", num_seeds=2), "no option 'num_seeds' (did you mean 'seeds'?)"),
    (TypeError, lambda: decima.compare("fifo", scheduler="fair"), "(did you mean 'schedulers'?)"),
    (CompareError, lambda: decima.compare("fifo", seeds=[1, 2]), "seeds: expected a whole number, got [1"),
    (CompareError, lambda: decima.compare("fifo", jobs=2.5), "jobs: expected a whole number, got 2.5"),
    (CompareError, lambda: decima.compare("fifo", weights=2, **FEW), "weights: expected several values, got 2"),
    (SchedulerError, lambda: decima.compare("fifo", floor=0.5, **FEW), "the floor must be shares by tenant"),
    (SchedulerError, lambda: decima.compare("fifo", floor={"a": "1"}, **FEW), "the floor of a must be a number, got"),
    (SchedulerError, lambda: decima.compare(checkpoint="grid", **FEW), "policy.npz: a policy of decima deeprm train"),
    (ConfigError, lambda: run_episode(CLUSTER, jobs(), "fair"), "got 'fair'; decima.run_episode takes names"),
    (ConfigError, lambda: run_episode(CLUSTER, jobs(), len), "decima.run_episode takes names and functions"),
    (ConfigError, lambda: run_episode(CLUSTER, jobs(), decima.Scheduler), "got the class Scheduler: call it"),
    (ConfigError, lambda: run_episode(jobs(), CLUSTER, "fair"), "config must be of the type ClusterConfig"),
    (SchedulerError, lambda: decima.make_scheduler("mine.py:Own"), "(did you mean 'mine:Own'?)"),
    (PolicyFileError, lambda: decima.load_policy("empty"), "the policy 'empty' is neither a file nor a shipped policy"),
    (ConfigError, lambda: decima.plot_schedule(jobs()), "record must be of the type EpisodeRecord"),
    (WorkloadError, lambda: decima.plot_dag("tpch"), "profile must be of the type JobProfile, got 'tpch'"),
    (AttributeError, lambda: decima.comapre, "module 'decima' has no attribute 'comapre' (did you mean 'compare'?)"),
)  # fmt: skip
def test_a_function_says_what_was_probably_meant(
    error: type[Exception], call: Callable[[], object], message: str, folder: Path
) -> None:
    assert message in one_line(error, call)
    assert not (folder / "new").exists()


@pytest.mark.parametrize("policy", ["trained", "trained/", Path("trained"), "trained/policy.npz"])
def test_the_folder_of_a_training_stands_for_its_policy(policy: str | Path) -> None:
    assert isinstance(decima.load_policy(policy), NeuralScheduler)


def test_commands_take_the_folder_of_a_training() -> None:
    few = "--workload synthetic --jobs 2 --executors 4 --workers 1 --seeds 2 --schedulers fifo"
    result = succeeded(CliRunner().invoke(cli, f"compare --checkpoint trained {few}".split()))
    assert "decima: the network trained/policy.npz" in result.stdout
    grid = "deeprm compare --checkpoint grid --sets 2 --loads 10 --heuristics sjf"
    result = succeeded(CliRunner().invoke(cli, grid.split()))
    assert "the network grid/policy.npz" in " ".join(result.stdout.split())
