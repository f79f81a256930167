"""Custom features, encoders and heads: inputs, outputs, and permission to load them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.cli.main import cli
from decima.policy import Embeddings, Encoder, JobFeature, LimitHead, PartError, StageFeature, StageHead, batches
from decima.policy.about import read_about
from decima.policy.config import Feature, PolicyConfig
from decima.policy.encoder import GraphTensors
from decima.policy.files import load_actor, load_policy
from decima.policy.parts import ALLOWED, allow_parts, load_part
from decima.policy.policy import Policy
from decima.policy.presets import PAPER_POLICY, SHORTCUT_POLICY
from decima.policy.save import save_policy
from decima.policy.scheduler import Featurizer
from simulator import Cluster, ClusterConfig, Observation
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error
from tests.decima.policy.examples import changed, episode, graphs_of, policy_of
from tests.example_parts import LeftToStart, ShortestFirst
from tests.refusal import one_line
from tests.simulator.cluster.build import chain, jobs, stage
from workloads.custom import is_custom
from workloads.errors import PolicyFileError

ROOT = Path(__file__).parents[3]
PARTS = "tests.example_parts"
#: A policy with custom encoder and heads.
NETWORK = {
    "encoder": f"{PARTS}:MeanEncoder",
    "stage_head": f"{PARTS}:LayersHead",
    "limit_head": f"{PARTS}:ParabolaHead",
}
HERE = __name__


def with_features(config: PolicyConfig, *stage: Feature, job: tuple[Feature, ...] = ()) -> PolicyConfig:
    """Return a configuration with custom features between built-in ones, and after them."""
    first, *others = config.stage_features
    return changed(
        config,
        stage_features=[each.model_dump() for each in (first, *stage, *others)],
        job_features=[each.model_dump() for each in (*config.job_features, *job)],
    )


SEEN = episode(np.random.default_rng(3))


def test_own_features_are_scaled_columns_among_ours() -> None:
    shortest, left = f"{PARTS}:ShortestFirst", f"{PARTS}:LeftToStart"
    config = with_features(
        SHORTCUT_POLICY,
        Feature(name=left, scale=4.0),
        Feature(name=shortest, scale=0.5, log=True),
        job=(Feature(name=shortest, scale=2.0),),
    )
    own, ours = Featurizer(config), Featurizer(SHORTCUT_POLICY)
    for observation in SEEN:
        graph, plain = own.graph(observation), ours.graph(observation)
        rank = ShortestFirst().of_jobs(observation)
        of_stages = np.column_stack(
            [
                LeftToStart().of_stages(observation)[graph.stage_index] / 4,
                np.log1p(rank[observation.stage_job[graph.stage_index]] / 0.5),
            ]
        )
        np.testing.assert_allclose(graph.features[:, 1:3], of_stages, rtol=1e-6)
        np.testing.assert_array_equal(np.delete(graph.features, (1, 2), axis=1), plain.features)
        np.testing.assert_allclose(graph.job_features[:, -1], rank / 2, rtol=1e-6)
        np.testing.assert_array_equal(graph.job_features[:, :-1], plain.job_features)


def test_a_policy_of_own_features_only_decides_by_compiled_code() -> None:
    config = PolicyConfig(stage_features=(Feature(name=f"{PARTS}:ShortestFirst"),), limit="none", graph=False)
    assert config.is_compiled
    policy = policy_of(config)
    graphs = batches.concatenate(graphs_of(config, SEEN))
    choices = policy.act(graphs)
    with torch.no_grad():
        seen = policy(graphs, choices.stage, choices.limit)
    np.testing.assert_allclose(choices.log_probability, seen.log_probability, atol=1e-5)


@pytest.mark.parametrize("limit", ["input", "stage", "outputs", "none"])
@pytest.mark.parametrize("greedy", [True, False])
def test_pytorch_decides_as_compiled_code_does(limit: str, greedy: bool) -> None:
    """The same network with and without a custom head, which makes PyTorch decide."""
    config = changed(SHORTCUT_POLICY, limit=limit, num_limits=3)
    ours = policy_of(config)
    own = Policy(changed(config, stage_head=NETWORK["stage_head"]))
    weights = {name: each for name, each in ours.state_dict().items() if "stage_head" not in name}
    linear = [each for each in ours.networks["stage_head"] if isinstance(each, nn.Linear)]
    for number, layer in enumerate(linear):
        weights |= {f"stage_head.linear.{number}.{key}": each for key, each in layer.state_dict().items()}
    own.load_state_dict(weights)
    graphs = batches.concatenate(graphs_of(config, SEEN))
    uniforms = None if greedy else np.random.default_rng(0).random((graphs.num_graphs, 2))
    one, other = ours.act(graphs, uniforms), own.act(graphs, uniforms)
    np.testing.assert_array_equal(one.stage, other.stage)
    np.testing.assert_array_equal(one.limit, other.limit)
    np.testing.assert_allclose(one.log_probability, other.log_probability, atol=1e-5)


def test_without_random_numbers_pytorch_takes_the_median_limit_where_waiting_is_a_choice() -> None:
    policy = Policy(changed(PAPER_POLICY, all_limits=False, wait=True, **NETWORK), seed=2)
    for graph in graphs_of(policy.config, SEEN):
        choices = policy.act(graph)
        with torch.no_grad():
            stages, limits = policy.probabilities(graph)
        row = int(stages.argmax())
        assert choices.stage[0] == graph.stage_index[row]
        own = limits[int(np.flatnonzero(np.flatnonzero(graph.high > graph.low) == row)[0])]
        assert choices.limit[0] == graph.low[row] + 1 + int(np.searchsorted(own.double().cumsum(0).numpy(), 0.5))


@pytest.mark.parametrize("greedy", [True, False])
def test_observations_of_a_batch_do_not_influence_one_another(greedy: bool) -> None:
    policy = Policy(changed(SHORTCUT_POLICY, **NETWORK), seed=1)
    graphs = graphs_of(policy.config, SEEN)
    uniforms = None if greedy else np.random.default_rng(0).random((len(graphs), 2))
    together = policy.act(batches.concatenate(graphs), uniforms)
    for number, graph in enumerate(graphs):
        alone = policy.act(graph, None if uniforms is None else uniforms[[number]])
        assert (alone.stage[0], alone.limit[0]) == (together.stage[number], together.limit[number])
        np.testing.assert_allclose(alone.log_probability[0], together.log_probability[number], atol=1e-5)
    with torch.no_grad():
        seen = policy(batches.concatenate(graphs), together.stage, together.limit)
    np.testing.assert_allclose(together.log_probability, seen.log_probability, atol=1e-5)


def test_an_own_network_survives_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    policy = Policy(changed(SHORTCUT_POLICY, **NETWORK), seed=7)
    save_policy(tmp_path / "own.npz", policy, {"by": "me"})
    assert read_about(tmp_path / "own.npz") == {"by": "me"}
    graphs = batches.concatenate(graphs_of(policy.config, SEEN))
    for again in (load_policy(tmp_path / "own.npz"), load_actor(tmp_path / "own.npz")):
        assert (again.config, again.arrays.keys()) == (policy.config, policy.arrays.keys())
        assert "encoder.lift.weight" in again.arrays
        for name in ("stage", "limit", "log_probability"):
            np.testing.assert_array_equal(getattr(again.act(graphs), name), getattr(policy.act(graphs), name))


def test_an_own_network_with_the_weights_of_another_is_refused(tmp_path: Path) -> None:
    save_policy(tmp_path / "own.npz", Policy(changed(SHORTCUT_POLICY, **NETWORK)))
    arrays = dict(np.load(tmp_path / "own.npz"))
    arrays["encoder.lift.weight"] = arrays["encoder.lift.weight"][1:]
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(PolicyFileError, match=r"encoder\.lift\.weight must be float of shape \(16, 9\)"):
        load_actor(tmp_path / "own.npz")


#: A module that leaves a trace if it is imported.
MODULE = """
from pathlib import Path
Path("imported").touch()
from tests.example_parts import LayersHead, ShortestFirst
class Own(LayersHead): pass
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``stranger(**fields)``: a policy file that names a class of ``strange.parts`` in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "__init__.py").touch()
    (tmp_path / "strange" / "parts.py").write_text(MODULE)

    monkeypatch.setenv(ALLOWED, "")
    policy = Policy(changed(PAPER_POLICY, stage_head=NETWORK["stage_head"]))

    def make(**fields: Any) -> Path:
        path = tmp_path / "policy.npz"
        save_policy(path, policy)
        arrays = dict(np.load(path))
        head = json.loads(str(arrays["policy"]))
        head["config"] |= fields or {"stage_head": "strange.parts:Own"}
        np.savez(path, **arrays | {"policy": np.array(json.dumps(head))})
        return path

    yield make
    for name in ("strange", "strange.parts"):
        sys.modules.pop(name, None)


@cases(
    "fields",
    {"stage_head": "strange.parts:Own"},
    {"limit_head": "strange.parts:Own"},
    {"encoder": "strange.parts:Own"},
    {"stage_features": [{"name": "strange.parts:ShortestFirst"}]},
)
@pytest.mark.parametrize("load", [load_actor, load_policy])
def test_a_policy_file_imports_nothing_that_is_not_allowed(
    load: Callable[[Path], Any], fields: dict[str, Any], stranger: Any
) -> None:
    path = stranger(**fields)
    with pytest.raises(PolicyFileError) as refused:
        load(path)
    [(key, _)] = fields.items()
    assert str(refused.value).startswith(f"{path}: {key}: 'strange.parts:")
    assert str(refused.value).endswith(
        "decima --allow-parts strange.parts .., or decima.policy.allow_parts('strange.parts')"
    )
    assert "\n" not in str(refused.value)
    assert not Path("imported").exists()
    assert read_about(path) == {}
    assert not Path("imported").exists()


@pytest.mark.parametrize("module", ["strange", "strange.parts"])
def test_what_is_allowed_is_imported(module: str, stranger: Any) -> None:
    path = stranger()
    allow_parts("other", module)
    assert os.environ[ALLOWED] == f"{NETWORK['stage_head']},other,{module}"
    assert load_actor(path).act(graphs_of(PAPER_POLICY, SEEN)[0]).stage[0] >= 0
    assert Path("imported").exists()


def test_the_name_of_a_neighbour_is_not_allowed(stranger: Any) -> None:
    allow_parts("strange.part", "stran")
    with pytest.raises(PolicyFileError, match="is code that does not come with decima"):
        load_actor(stranger())


def test_a_class_that_the_program_has_named_may_be_named_by_a_policy_file(stranger: Any) -> None:
    path = stranger()
    load_part("strange.parts:Own")
    assert load_actor(path).arrays
    with pytest.raises(PolicyFileError, match=r"'strange\.parts:LayersHead' is code that does not come with decima"):
        load_actor(stranger(stage_head="strange.parts:LayersHead"))


@pytest.mark.parametrize("name", ["os:system", "pathlib:Path", "numpy:ndarray", f"{PARTS}:MeanEncoder"])
def test_that_a_module_is_imported_is_no_permission(name: str, stranger: Any) -> None:
    path = stranger(stage_head=name)
    assert name.partition(":")[0] in sys.modules
    with pytest.raises(PolicyFileError, match=f"stage_head: '{name}' is code that does not come with decima"):
        load_actor(path)


@pytest.mark.parametrize("name", ["os:system", "pathlib:Path", "numpy:ndarray"])
def test_a_policy_file_calls_nothing_that_is_no_part(name: str, stranger: Any) -> None:
    path = stranger(stage_head=name)
    allow_parts(name.partition(":")[0])
    with pytest.raises(PolicyFileError, match=f"stage_head: '{name}' is not a StageHead: expected a subclass of "):
        load_actor(path)


#: Names whose look-up would import a module of the current folder: ``scipy`` and ``decima.policy`` import some of
#: their modules when an attribute is asked for, and these import others, such as ``pooch``.
ATTACKS = (
    "scipy:datasets", "scipy.datasets:face", "planted:Own", "planted.inner:Own", "decima.policy:planted",
    "decima.evaluation.tune:Tune", "os:system",
)  # fmt: skip
#: Loads policies that name classes of the current folder; prints the reasons of their refusal.
VICTIM = """
import sys
from decima.policy.files import load_actor
from decima.policy.parts import allow_parts
from workloads.errors import PolicyFileError
for allowed in ("", "scipy", "decima"):
    if allowed:
        allow_parts(allowed)
    for path in sys.argv[1:]:
        try:
            load_actor(path)
        except PolicyFileError as error:
            print(error)
"""


def test_a_policy_file_runs_no_code_of_the_current_folder(stranger: Any) -> None:
    """Also if parts of another package, or of this one, are allowed."""
    for module in ("planted", "pooch", "cma"):
        Path(module).mkdir()
        for file in ("__init__.py", "inner.py"):
            (Path(module) / file).write_text("from pathlib import Path\nPath('imported').touch()\nclass Own: pass\n")
    paths = [str(stranger(stage_head=name).rename(f"{number}.npz")) for number, name in enumerate(ATTACKS)]
    # As for an installed command, the current folder is not on the path of modules.
    safe = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "DECIMA_PARTS": ""}
    words = [sys.executable, "-c", VICTIM, *paths]
    done = subprocess.run(words, env=safe, capture_output=True, text=True, timeout=300, check=False)
    assert not Path("imported").exists()
    assert done.stderr == ""
    refused = done.stdout.splitlines()
    assert len(refused) == 3 * len(ATTACKS)
    for name, path, message in zip([*ATTACKS] * 3, paths * 3, refused, strict=True):
        assert message.startswith(f"{path}: stage_head: '{name}' ")


def test_a_command_refuses_the_name_of_a_module_that_imports_others(stranger: Any) -> None:
    path = stranger(stage_head="scipy:datasets")
    Path("pooch.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    words = ["compare", "--checkpoint", path.name, "--jobs", "1", "--schedulers", "fair"]
    result = CliRunner().invoke(cli, words)
    assert_one_line_error(result, "stage_head: 'scipy:datasets' is code that does not come with decima")
    assert result.exit_code == 2
    assert not Path("imported").exists()


@cases(
    "fields, message",
    ({"encoder": "no_such_module:Own"}, "encoder: 'no_such_module:Own' cannot be loaded: ModuleNotFound"),
    ({"stage_head": f"{PARTS}:Gone"}, f"stage_head: '{PARTS}:Gone' cannot be loaded: AttributeError"),
    ({"limit_head": f"{PARTS}:LayersHead"},
     f"limit_head: '{PARTS}:LayersHead' is not a LimitHead: expected a subclass of decima.policy.LimitHead"),
    ({"encoder": f"{HERE}:Abstract"}, f"encoder: '{HERE}:Abstract' cannot be loaded: TypeError"),
    ({"encoder": f"{HERE}:Counting"}, f"encoder: '{HERE}:Counting': expected parameters and buffers of floa"),
)  # fmt: skip
def test_a_part_that_cannot_be_loaded_is_named_in_one_line(fields: dict[str, str], message: str) -> None:
    assert one_line(PartError, Policy, changed(PAPER_POLICY, **fields)).startswith(message)


def test_parts_that_have_no_effect_or_parameters_or_cannot_be_loaded() -> None:
    with pytest.raises(ValueError, match="without a graph, the encoder has no effect"):
        changed(PAPER_POLICY, graph=False, encoder=NETWORK["encoder"])
    with pytest.raises(ValueError, match="without limits, the limit_head has no effect"):
        changed(PAPER_POLICY, limit="none", limit_head=NETWORK["limit_head"])
    with pytest.raises(PartError, match="none has parameters, so there is nothing to learn"):
        Policy(changed(PAPER_POLICY, limit="none", encoder=f"{HERE}:Silent", stage_head=f"{HERE}:Columnar"))
    for name, message in (
        ("no_such_module:Own", "'no_such_module:Own' cannot be loaded: ModuleNotFoundError"),
        (f"{PARTS}:LeftToStart", f"'{PARTS}:LeftToStart' is not a JobFeature: expected a subclass of decima.policy.J"),
    ):
        with pytest.raises(PartError, match=f"^job_features: {message}"):
            Featurizer(changed(PAPER_POLICY, job_features=[{"name": name}]))


@pytest.mark.parametrize("name", ["a:b:c", "a b:C", ":C", "a:", "a.:C", "a/b:C", "1a:C"])
def test_what_is_no_name_of_a_class_is_refused_before_anything_is_loaded(name: str) -> None:
    assert not is_custom(name)
    with pytest.raises(ValueError, match=r"encoder\n.* expected 'sums', 'attention' or module:Class, got "):
        changed(PAPER_POLICY, encoder=name)


class Abstract(Encoder):
    """Lacks a method."""


class Counting(Encoder):
    """Has an integer buffer."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, graphs: GraphTensors) -> Embeddings:
        raise NotImplementedError


class Narrow(Encoder):
    """Returns job embeddings that are too narrow."""

    def forward(self, graphs: GraphTensors) -> Embeddings:
        sizes = (len(graphs.features), len(graphs.job_features), graphs.num_graphs)
        stages, jobs, cluster = (torch.zeros(size, self.config.embedding) for size in sizes)
        return Embeddings(stages, jobs[:, 1:], cluster)


class Silent(Encoder):
    """Returns None."""

    def forward(self, graphs: GraphTensors) -> Embeddings:
        return None  # type: ignore[return-value]


class Columnar(StageHead):
    """Returns scores with an extra axis."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :1]


class Whole(LimitHead):
    """Returns integer scores."""

    def forward(self, inputs: Tensor, rows: Tensor, limits: Tensor) -> Tensor:
        return limits


@cases(
    "fields, message",
    ({"encoder": f"{HERE}:Narrow"}, "must return jobs as floating-point numbers of shape "),
    ({"encoder": f"{HERE}:Silent"}, "must return Embeddings, returned NoneType"),
    ({"stage_head": f"{HERE}:Columnar"}, "must return scores as floating-point numbers of shape "),
    ({"limit_head": f"{HERE}:Whole"}, "must return scores as floating-point numbers of shape "),
)
def test_a_part_that_gives_the_wrong_shape_is_named_in_one_line(fields: dict[str, str], message: str) -> None:
    policy = Policy(changed(PAPER_POLICY, **fields))
    graphs = batches.concatenate(graphs_of(policy.config, SEEN))
    [(key, name)] = fields.items()
    assert one_line(PartError, policy.act, graphs).startswith(f"{key}: {name!r} {message}")


class Short(StageFeature):
    """Returns one number too few."""

    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        return np.zeros(len(observation.stages) - 1)


class Endless(JobFeature):
    """Returns an infinite number once."""

    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        return np.where(np.arange(len(observation.jobs)) == 0, np.inf, 1.0)


class Worded(JobFeature):
    """Returns strings."""

    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        return np.array(["many"] * len(observation.jobs))


class Negative(JobFeature):
    """Returns negative numbers, which have no logarithm."""

    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        return np.full(len(observation.jobs), -3.0)


@cases(
    "kind, log, message",
    ("Short", False, "expected 4 finite numbers, one for each stage, got float64 of shape [3]"),
    ("Endless", False, "expected 2 finite numbers, one for each job, got inf"),
    ("Worded", False, "expected 2 finite numbers, one for each job, got <U4 of shape [2]"),
    ("Negative", True, "-3 has no logarithm: expected more than -2"),
)
def test_a_feature_that_gives_other_numbers_is_named_in_one_line(kind: str, log: bool, message: str) -> None:
    observation = Cluster(ClusterConfig(2), jobs(*[chain(stage(2, 10), stage(2, 10))] * 2)).observe()
    config = with_features(PAPER_POLICY, Feature(name=f"{HERE}:{kind}", scale=2.0, log=log))
    with pytest.raises(PartError) as refused:
        Featurizer(config).graph(observation)
    assert str(refused.value) == f"stage_features: '{HERE}:{kind}': {message}"
