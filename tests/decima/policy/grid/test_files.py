"""Networks are read as they were written, and malformed files are refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.policy import Policy, PolicyFileError
from decima.policy.config import DECIMA_SIM_POLICY
from decima.policy.files import add_about, save_policy
from decima.policy.grid import GridPolicyConfig, load_network, read_about, save_network
from tests.cases import cases
from tests.decima.learning.cluster.examples import merged
from tests.decima.learning.grid.examples import small
from tests.decima.policy.test_files import Arrays, entry, rewrite
from tests.refusal import refusal

Damage = Callable[[Arrays], object]


def written(path: Path, config: GridPolicyConfig, **about: Any) -> torch.nn.Module:
    """Return the network of a file."""
    actor = config.build()
    save_network(path, actor, config, about)
    return actor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written(tmp_path / "policy.npz", small().policy, made_by="hand")
    return tmp_path / "policy.npz"


@cases(
    "changes",
    {},
    {"grid": {"machines": 2}, "network": {"hidden": [3, 5]}},
    {"network": {"filters": 3, "kernel": 3, "pooling": True, "reshape": True}},
    {"episodes": {"mask": "all"}},
)
def test_a_network_and_what_it_is_are_read_as_they_were_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = small(**changes).policy
    network = written(tmp_path / "policy.npz", config)
    again, settings = load_network(tmp_path / "policy.npz")
    assert settings == config
    assert again.state_dict().keys() == network.state_dict().keys()
    for name, weight in network.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight)
    pictures = torch.ones(2, *config.grid.build().picture_shape, dtype=torch.uint8)
    assert torch.equal(again(pictures), network(pictures))
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_what_its_maker_says_is_kept_and_added_to(path: Path) -> None:
    assert read_about(path) == {"made_by": "hand"}
    assert add_about(path, {"seeds": 3}) == read_about(path) == {"made_by": "hand", "seeds": 3}
    load_network(path)


def refused(path: Path) -> str:
    return refusal(load_network, PolicyFileError, path)


def head(**changes: object) -> Damage:
    """Return another JSON text; ``None`` removes an entry."""

    def damage(arrays: Arrays) -> None:
        text = {**json.loads(str(arrays["network"])), **changes}
        text = {key: value for key, value in text.items() if value is not None}
        arrays["network"] = np.array(json.dumps(text))

    return damage


def config(**changes: Any) -> Damage:
    return head(config=merged(small().policy.model_dump(mode="json"), changes))


NO_NETWORK = "not a network for a grid: expected the text 'network'"
WRONG_HEAD = "the text 'network' is malformed"

#: Name of the damage -> (damage, expected message); archives are read as those of policies for clusters.
DAMAGES: dict[str, tuple[Damage, str]] = {
    "version": (head(version=1), "format version 2 expected, got 1"),
    "no config": (head(config=None), f"{WRONG_HEAD}: config: expected an object"),
    "unknown key": (config(colour="red"), "config: colour: unknown key"),
    "wrong value": (config(grid={"units": "many"}), "config: grid.units: expected a valid integer"),
    "impossible grid": (config(grid={"units": 5}), "config: slot_width must be at most the 5 units"),
    "filters too large": (config(network={"filters": 2, "kernel": 30}), "config: a picture of 20 x "),
    "huge": (config(network={"hidden": [10**9]}), "0.bias must be float of shape (1000000000,)"),
    "beyond all memory": (config(network={"hidden": [10**12, 10**12]}), "config: "),
    "other sizes": (config(network={"hidden": [6]}), "0.bias must be float of shape (6,), got float32 (4,)"),
    "more layers": (config(network={"hidden": [4, 4]}), "2.bias must be float of shape (4,)"),
    "other queue": (config(grid={"visible_jobs": 3}), "0.weight must be float of shape ("),
    "no JSON": (entry("network", np.array("{")), WRONG_HEAD),
    "no head": (lambda arrays: arrays.pop("network"), NO_NETWORK),
    "no array": (lambda arrays: arrays.pop("0.bias"), "the array 0.bias is missing or unknown"),
    "too large": (entry("0.bias", np.array([0, 1, 1e300, 2])), "0.bias has weights that are not finite"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_bad_contents_are_refused(path: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    rewrite(path, damage)
    assert refused(path).startswith(message), refused(path)


def test_a_policy_for_a_cluster_is_refused(tmp_path: Path) -> None:
    save_policy(tmp_path / "policy.npz", Policy(DECIMA_SIM_POLICY))
    assert refused(tmp_path / "policy.npz") == NO_NETWORK
