"""Policies are read as they were written, and malformed files are refused in one line."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.policy import NeuralScheduler, Policy, PolicyFileError, batches
from decima.policy.about import read_about, read_trained_on
from decima.policy.files import load_actor, load_policy
from decima.policy.presets import DECIMA_SIM_POLICY, SHORTCUT_POLICY
from decima.policy.save import add_about, save_policy
from decima.policy.shipped import SHIPPED
from simulator import ClusterConfig, run_episode
from tests.cases import cases
from tests.decima.policy.examples import VARIANTS, changed, episode, graphs_of, policy_of, two_networks
from tests.refusal import Malicious, refusal
from tests.simulator.cluster.build import runs
from workloads import batch_arrivals, synthetic_profiles

SMALL = changed(DECIMA_SIM_POLICY, embedding=2, hidden=(3,), head_hidden=(3,))

Arrays = dict[str, Any]

TRAINED_ON: dict[str, Any] = {
    "arrivals": "batch", "executors": [50, 50, 50], "classes": [1, 1, 1], "moving_delay_s": [2, 2, 2],
    "stages": [4, 8, 16], "tasks": [200, 1000, 2000], "task_s": [0.08, 0.1, 0.4], "work_s": [16, 100, 800],
    "delay_tasks": [5, 20, 25], "jobs": [20, 20, 20],
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A policy file."""
    save_policy(tmp_path / "policy.npz", policy_of(SMALL), {"made by": "hand"})
    return tmp_path / "policy.npz"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_policy_decides_as_it_did_before_it_was_stored(name: str, tmp_path: Path) -> None:
    policy = policy_of(VARIANTS[name], seed=3)
    save_policy(tmp_path / "policy.npz", policy)
    again = load_policy(tmp_path / "policy.npz")
    assert again.config == policy.config
    for read, original in zip(again.parameters(), policy.parameters(), strict=True):
        assert torch.equal(read, original)
    graphs = batches.concatenate(graphs_of(policy.config, episode(np.random.default_rng(1))))
    before = policy.act(graphs)
    for stored in (again, load_actor(tmp_path / "policy.npz")):
        after = stored.act(graphs)
        np.testing.assert_array_equal(before.stage, after.stage)
        np.testing.assert_array_equal(before.limit, after.limit)
        np.testing.assert_array_equal(before.log_probability, after.log_probability)


def test_a_second_network_decides_with_few_jobs_after_storage_too(tmp_path: Path) -> None:
    policy = two_networks()
    save_policy(tmp_path / "two.npz", policy, {"made by": "hand"})
    assert policy.arrays.keys() == two_networks().arrays.keys(), "the policy itself does not change"
    assert read_about(tmp_path / "two.npz") == {"made by": "hand"}
    sequence = batch_arrivals(synthetic_profiles(5), 5, seed=1)
    stored = [load(tmp_path / "two.npz") for load in (load_actor, load_policy)]
    for again in stored:
        assert again.few_jobs is not None
        assert (again.few_jobs.at_most, again.few_jobs.policy.config.wait) == (2, True)
        assert all(np.array_equal(array, two_networks().arrays[name]) for name, array in again.arrays.items())
    expected, *found = [runs(run_episode(ClusterConfig(10), sequence, NeuralScheduler(each))) for each in (
        two_networks(), *stored,
    )]  # fmt: skip
    assert found == [expected, expected]
    add_about(tmp_path / "two.npz", {"seeds": 3})
    assert load_actor(tmp_path / "two.npz").few_jobs is not None


FEW: dict[str, Any] = {"at_most": 2, "config": SHORTCUT_POLICY.model_dump(mode="json")}


@cases(
    "few, message",
    (FEW | {"at_most": 0}, "few_jobs: at_most: expected greater than or equal to 1"),
    (FEW | {"colour": "red"}, "few_jobs: colour: unknown key"),
    (FEW | {"config": {}}, "few_jobs: config.stage_features: this key is required"),
    ("two", "few_jobs: expected an object"),
    (FEW | {"config": FEW["config"] | {"encoder": "a.b:C"}}, "few_jobs: expected two networks without custom parts"),
    (FEW | {"config": FEW["config"] | {"head_hidden": [3]}}, "few_jobs.limit_head.0.bias must be float of shape (3,)"),
    (None, "the array few_jobs.aggregate.0.bias is missing or unknown"),
    ids=lambda value: None,
)
def test_a_malformed_second_network_is_refused(tmp_path: Path, few: object, message: str) -> None:
    save_policy(tmp_path / "two.npz", two_networks())
    rewrite(tmp_path / "two.npz", head(few_jobs=few))
    assert refused(tmp_path / "two.npz").startswith(message), refused(tmp_path / "two.npz")


def test_a_text_names_a_file_or_a_policy_that_ships(path: Path) -> None:
    assert load_policy(str(path)).config == load_actor(str(path)).config == SMALL
    assert read_about(str(path)) == read_about(path)
    assert load_actor("tpch-batch").config == load_actor(SHIPPED["tpch-batch"]).config
    assert read_trained_on("tpch-batch") is not None
    save_policy(str(path), policy_of(SMALL), {"made by": "somebody else"})
    assert read_about(path) == {"made by": "somebody else"}
    with pytest.raises(PolicyFileError, match="the policy 'missing' is neither a file nor a shipped policy"):
        load_policy("missing")


def test_what_its_maker_says_is_kept_and_may_be_missing(path: Path) -> None:
    assert read_about(path) == {"made by": "hand"}
    before = load_policy(path).arrays
    assert add_about(path, {"seeds": 3}) == {"made by": "hand", "seeds": 3}
    assert add_about(path, {"made by": "machine"}) == read_about(path) == {"made by": "machine", "seeds": 3}
    after = load_policy(path)
    assert after.config == SMALL
    assert all(np.array_equal(after.arrays[name], array) for name, array in before.items())
    rewrite(path, head(about=None))
    assert read_about(path) == {}
    assert load_actor(path).config == SMALL


def test_what_it_was_trained_on_is_read_if_it_is_said(path: Path) -> None:
    assert read_trained_on(path) is None
    save_policy(path, policy_of(SMALL), {"trained_on": TRAINED_ON})
    trained = read_trained_on(path)
    assert trained is not None
    assert (trained.stages, trained.load) == ((4, 8, 16), None)


@cases(
    "said, message",
    (TRAINED_ON | {"stages": [1, 2]}, "stages[2]: this key is required"),
    (TRAINED_ON | {"stages": [1, 2, "many"]}, "stages[2]: expected a valid number"),
    (TRAINED_ON | {"stages": [1, 2, "3"]}, "stages[2]: expected a valid number"),
    (TRAINED_ON | {"stages": [True, 2, 3]}, "stages[0]: expected a valid number"),
    (TRAINED_ON | {"stages": [3, 2, 1]}, "stages: expected ascending numbers"),
    (TRAINED_ON | {"executors": [-3, -2, -1]}, "executors[0]: expected greater than or equal to 0"),
    (TRAINED_ON | {"tasks": [1, 2, float("nan")]}, "tasks[2]: expected "),
    (TRAINED_ON | {"colour": "red"}, "colour: unknown key"),
    (TRAINED_ON | {"jobs": None}, "expected jobs for batches"),
    ({}, "arrivals: this key is required"),
    (None, "expected an object"),
    ("TPC-H", "expected an object"),
    ids=lambda value: f"{value!r:.40}" if isinstance(value, str) else None,
)
def test_what_means_nothing_of_its_training_is_refused(path: Path, said: object, message: str) -> None:
    save_policy(path, policy_of(SMALL), {"trained_on": said})
    told = refusal(read_trained_on, PolicyFileError, path)
    assert told.removeprefix("about.trained_on: ").startswith(message), told


def test_weights_are_stored_in_single_precision_or_published(tmp_path: Path) -> None:
    policy = policy_of(SMALL).double()
    save_policy(tmp_path / "policy.npz", policy)
    with np.load(tmp_path / "policy.npz") as archive:
        assert archive["stage_head.0.weight"].dtype == np.float32
    assert load_policy(tmp_path / "policy.npz").num_parameters == policy.num_parameters
    torch.save({"policy": torch.zeros(3)}, tmp_path / "checkpoint.pt")
    assert refused(tmp_path / "checkpoint.pt") == NO_ARCHIVE
    save_policy(tmp_path / "policy.npz", Policy(SMALL))
    rewrite(tmp_path / "policy.npz", lambda arrays: arrays.pop("policy"))
    assert "must be float of shape (16,), got float32 (3,)" in refused(tmp_path / "policy.npz")


def test_the_published_weights_need_no_text(tmp_path: Path) -> None:
    """The published weights have the layout of the published network."""
    policy = policy_of(DECIMA_SIM_POLICY)
    save_policy(tmp_path / "policy.npz", policy)
    rewrite(tmp_path / "policy.npz", lambda arrays: arrays.pop("policy"))
    again = load_policy(tmp_path / "policy.npz")
    assert again.config == DECIMA_SIM_POLICY
    assert torch.equal(next(again.parameters()), next(policy.parameters()))
    assert read_about(tmp_path / "policy.npz") == {}


def test_the_published_weights_are_read(shared: Callable[[str], Path]) -> None:
    policy = load_policy(shared("reference/decima-sim-20000.npz"))
    assert (policy.config, policy.num_parameters) == (DECIMA_SIM_POLICY, 4_770)


def test_a_failed_write_leaves_the_old_file_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="No space"):
        save_policy(path, policy_of(SMALL, seed=9))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["policy.npz"]


NO_ARCHIVE = "not a policy, or truncated: expected a NumPy archive of arrays"
WRONG_HEAD = "the text 'policy' is malformed"


def rewrite(path: Path, damage: Callable[[Arrays], object]) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    damage(arrays)
    np.savez(path, **arrays)


def refused(path: Path) -> str:
    return refusal(load_actor, PolicyFileError, path)


def head(**changes: object) -> Callable[[Arrays], object]:
    """Return another JSON text; ``None`` removes an entry."""

    def damage(arrays: Arrays) -> None:
        text = json.loads(str(arrays["policy"]))
        text = {key: value for key, value in {**text, **changes}.items() if value is not None}
        arrays["policy"] = np.array(json.dumps(text))

    return damage


def config(**changes: object) -> Callable[[Arrays], object]:
    return head(config={**SMALL.model_dump(mode="json"), **changes})


def entry(name: str, value: object) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.update({name: value})


#: Name of the damage -> (damage, expected message).
DAMAGES: dict[str, tuple[Callable[[Arrays], object], str]] = {
    "version": (head(version=2), "format version 1 expected, got 2"),
    "version that is true": (head(version=True), "format version 1 expected, got True"),
    "version of thousands of digits": (
        entry("policy", np.array('{"version": ' + "9" * 6000 + "}")),
        f"{WRONG_HEAD}: Exceeds the limit",
    ),
    "no version": (head(version=None), "format version 1 expected, got None"),
    "no config": (head(config=None), f"{WRONG_HEAD}: config: expected an object"),
    "about of another kind": (head(about=7), f"{WRONG_HEAD}: about: expected an object"),
    "about of half a character": (
        head(about={"by": "\ud800"}),
        f"{WRONG_HEAD}: about.by: expected characters, got half a surrogate pair in '\\ud800'",
    ),
    "unknown key": (config(colour="red"), "policy config: colour: unknown key"),
    "guard inside": (config(guard=True), "policy config: guard: expected a network without a rule inside"),
    "rule inside": (
        config(rule="srpt", rule_limit_weight=6.0),
        "policy config: rule_limit_weight: expected a network without a rule inside",
    ),
    "feature of a rule": (
        config(stage_features=[{"name": "rule"}]),
        "policy config: stage_features[0].name: expected ",
    ),
    "wrong value": (config(embedding="wide"), "policy config: embedding: expected a valid integer"),
    "huge": (config(embedding=10**12), "policy config: embedding: "),
    "huge layer": (config(hidden=[10**9, 10**9]), "policy config: hidden"),
    "impossible": (config(finished_stages=False), "policy config: message_order decima-sim"),
    "no JSON": (entry("policy", np.array("{")), f"{WRONG_HEAD}: "),
    "brackets": (entry("policy", np.array("[" * 100_000)), f"{WRONG_HEAD}: too many levels of brackets"),
    "key that is given twice": (
        entry("policy", np.array('{"version": 1, "version": 2}')),
        f"{WRONG_HEAD}: version: this key is given more than once",
    ),
    "no text": (entry("policy", np.zeros(3)), f"{WRONG_HEAD}: expected a single text"),
    "a list": (entry("policy", np.array("[]")), f"{WRONG_HEAD}: expected an object"),
    "no array": (lambda arrays: arrays.pop("aggregate.0.bias"), "the array aggregate.0.bias is missing or unknown"),
    "another array": (entry("extra", np.zeros(3)), "the array extra is missing or unknown"),
    "shape": (
        entry("message.0.weight", np.zeros((2, 3), np.float32)),
        "message.0.weight must be float of shape (3, 2), got float32 (2, 3)",
    ),
    "type": (entry("message.1.bias", np.zeros(2, int)), "message.1.bias must be float of shape (2,), got int64 (2,)"),
    "NaN": (entry("message.1.bias", np.array([0, np.nan])), "message.1.bias has weights that are not finite"),
    "infinite": (entry("message.1.bias", np.array([0, np.inf])), "message.1.bias has weights that are not"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_bad_contents_are_refused(path: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    rewrite(path, damage)
    assert refused(path).startswith(message), refused(path)


def test_files_of_former_versions_whose_rule_has_no_effect_are_read(path: Path) -> None:
    without = {"guard": False, "rule_stage_weight": 0.0, "rule_limit_weight": 0}
    rewrite(path, config(rule="capped-srpt", rule_constants={"steepness": 2.0}, **without))
    assert load_actor(path).config == SMALL


def test_objects_are_never_unpickled(path: Path, tmp_path: Path) -> None:
    evil = Malicious(tmp_path / "was here")
    rewrite(path, entry("message.1.bias", np.array([evil, None], dtype=object)))
    assert "not a policy" in refused(path)
    path.write_bytes(pickle.dumps(evil))
    assert "not a policy" in refused(path)
    assert not (tmp_path / "was here").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_files_that_were_cut_off_are_refused(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert refused(path) == NO_ARCHIVE


def test_files_with_a_flipped_byte_are_refused_or_right(path: Path) -> None:
    content, good = path.read_bytes(), [each.clone() for each in load_policy(path).parameters()]
    for at in range(0, len(content), 29):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            policy = load_policy(path)
        except PolicyFileError:
            continue
        assert all(torch.equal(*pair) for pair in zip(policy.parameters(), good, strict=True))


def _array_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


#: Name of the file -> its bytes.
FOREIGN = {
    "text.npz": b"no policy",
    "array.npy": _array_bytes(np.zeros(3)),
    "empty.npz": b"",
    "zip.npz": _archive(**{"stage_input.0.weight": b"text", "policy": b"{}"}),
    "hollow.npz": _archive(
        **{"a.npy": _array_bytes(np.zeros(3)).replace(b"(3,), }" + 14 * b" ", b"(100000000000000,), }")}
    ),
    "members.npz": _archive(**{"stage_input.0.weight.npy": b"\x93NUMPY no array"}),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    assert refused(tmp_path / name) == NO_ARCHIVE


def test_files_that_are_no_policies(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("workloads.archive.LARGEST", 1000)
    assert refused(path) == NO_ARCHIVE
    assert refused(tmp_path / "missing.npz") == "No such file or directory"
    assert refused(tmp_path) == "Is a directory"
