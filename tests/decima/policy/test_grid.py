"""Policies for grids: networks, files and decisions."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from decima.policy import Policy, PolicyFileError
from decima.policy.grid import (
    CLONING,
    COMPARED,
    VALIDATED,
    Channels,
    GridActor,
    PictureLinear,
    build_actor,
    build_network,
    load_network,
    log_probabilities,
    look,
    save_network,
)
from decima.policy.grid_config import GridPolicyConfig, Mask, NetworkSection, read_about
from decima.policy.presets import DECIMA_SIM_POLICY
from decima.policy.save import add_about, save_policy
from simulator.grid import DEEPRM, PAPER, GridConfig
from tests.cases import cases
from tests.decima.learning.cluster.examples import merged
from tests.decima.learning.grid.examples import TINY, Fixed, dense, grid_of, small, tiny_grid
from tests.decima.policy.test_files import Arrays, entry, rewrite
from tests.refusal import refusal
from tests.simulator.grid.naive import Written
from workloads.errors import ConfigError, NotFiniteError


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def noisy(network: nn.Module, seed: int = 0) -> nn.Module:
    """Return a network with weights and biases far from 0."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.3, generator=generator)
    return network


def pictures(config: GridConfig, number: int, seed: int = 0) -> Tensor:
    cells = np.random.default_rng(seed).random((number, *config.picture_shape)) < 0.3
    return torch.from_numpy(cells.astype(np.uint8))


def test_sizes_weights_and_shades() -> None:
    # The published code has the parameters of one more column.
    assert count(build_network(GridConfig(), 11, NetworkSection())) == 89_451
    assert count(build_network(GridConfig(arrival_column=True), 11, NetworkSection())) == 89_851
    torch.manual_seed(0)
    network = build_network(GridConfig(), 11, NetworkSection())
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert float(parameter.detach().std()) == pytest.approx(0.01, rel=0.15)
    layer = noisy(PictureLinear(6, 2))
    shades = torch.rand(4, 2, 3)
    torch.testing.assert_close(layer(shades), shades.flatten(1) @ layer.weight + layer.bias)
    grid = tiny_grid(5)
    grid.step(np.zeros(5, dtype=int))
    network = noisy(build_network(grid.config, grid.config.num_actions, NetworkSection()))
    states = torch.from_numpy(grid.pictures)
    assert states.any()
    torch.testing.assert_close(network(states).double(), dense(network, states), rtol=1e-5, atol=1e-5)


def test_sections_and_pictures_of_networks() -> None:
    section = NetworkSection().model_dump()
    assert section == {"filters": 0, "kernel": 2, "pooling": False, "reshape": False, "hidden": (20,)}
    assert GridPolicyConfig().grid == GridConfig(semantics=PAPER, max_steps=1000)
    deeprm = GridPolicyConfig.model_validate({"grid": {"semantics": "deeprm"}}).grid
    assert deeprm == GridConfig(semantics=DEEPRM, max_steps=1000)
    for other in ({"max_steps": None}, {"max_steps": 9, "num_resources": 3}, {"max_steps": 9, "drain": False}):
        with pytest.raises(ValidationError, match="a file contains no other grid"):
            GridPolicyConfig(grid=GridConfig(**other))
    config = GridPolicyConfig()
    assert config.mask == "startable"
    assert count(build_actor(config)) == 89_451
    assert config.sizes.startswith("pictures of 20 x 223 and 11 actions (filters 0, kernel 2, pooling False, ")
    config = GridConfig(
        num_resources=3, units=2, visible_jobs=2, slot_width=2, horizon=3, backlog=4, arrival_column=True
    )
    rows, columns = config.picture_shape
    cells = torch.arange(2 * rows * columns).reshape(2, rows, columns)
    reshaped = Channels(config, by_resource=True)(cells)
    width = 2 + 2 * 2  # the machine, and two visible jobs
    last = 2 + 1  # the backlog, and steps since the last arrival
    assert reshaped.shape == (2, *Channels(config, by_resource=True).shape) == (2, 3, rows, width + last)
    for number, resource, row, column in itertools.product(*map(range, reshaped.shape)):
        at = resource * width + column if column < width else 3 * width + column - width
        assert reshaped[number, resource, row, column] == cells[number, row, at]
    assert torch.equal(Channels(config, by_resource=False)(cells), cells[:, None].float())
    assert Channels(config, by_resource=False).shape == (1, rows, columns)
    layer = PictureLinear(6, 2)
    for shape in ((1, 1, 5), (2, 2, 4)):
        with pytest.raises(ValueError, match="dimension mismatch"):
            layer(torch.ones(shape, dtype=torch.uint8))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 5), st.integers(0, 5), st.floats(0, 1), st.data())
def test_adding_up_taken_cells_is_a_product_of_matrices(
    rows: int, columns: int, outputs: int, number: int, share: float, data: st.DataObject
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    taken = torch.from_numpy((random.random((number, rows, columns)) < share).astype(np.uint8))
    layer = noisy(PictureLinear(rows * columns, outputs))
    factors = torch.from_numpy(random.normal(size=(number, outputs)))
    product = taken.double().flatten(1) @ layer.weight.double() + layer.bias.double()
    results = [
        [sums, *torch.autograd.grad((sums * factors).sum(), [layer.weight, layer.bias])]
        for sums in (layer(taken), product)
    ]
    for quick, exact in zip(*results, strict=True):
        torch.testing.assert_close(quick.double(), exact.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize("pooling", [False, True])
@pytest.mark.parametrize("filters", [16, 32])
@pytest.mark.parametrize("reshape", [False, True])
def test_convolutions_come_in_all_variants(machines: int, pooling: bool, filters: int, reshape: bool) -> None:
    config = GridConfig(**TINY, machines=machines)
    section = NetworkSection(filters=filters, kernel=3, pooling=pooling, reshape=reshape, hidden=(5, 6))
    network = noisy(build_network(config, config.num_actions, section))
    scores = network(pictures(config, 7))
    assert scores.shape == (7, 2 * machines + 1)
    rows, columns = config.picture_shape
    channels = 2 if reshape else 1
    if reshape:
        columns = 1 + (columns - 1) // 2  # one column is the backlog's
    rows, columns = rows - 2, columns - 2
    if pooling:
        rows, columns = rows // 2, columns // 2
    assert count(network) == (
        filters * (channels * 9 + 1) + (filters * rows * columns + 1) * 5 + (5 + 1) * 6 + (6 + 1) * config.num_actions
    )
    scores.log_softmax(dim=1)[:, 0].sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize(("kernel", "pooling"), [(6, False), (5, True)])
def test_filters_that_are_larger_than_the_picture_are_refused(kernel: int, pooling: bool) -> None:
    with pytest.raises(ConfigError, match=f"a picture of 5 x 19 is too small for filters of {kernel} x {kernel}"):
        build_network(GridConfig(**TINY), 3, NetworkSection(filters=2, kernel=kernel, pooling=pooling))


Damage = Callable[[Arrays], object]


def written(path: Path, config: GridPolicyConfig, **about: Any) -> torch.nn.Module:
    """Return the network of a file."""
    actor = build_actor(config)
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
    pictures = torch.ones(2, *config.grid.picture_shape, dtype=torch.uint8)
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
    "wrong value": (config(grid={"units": "many"}), "config: grid.units: expected a whole number, got 'many'"),
    "impossible grid": (config(grid={"units": 5}), "config: grid: slot_width must be at most the 5 units"),
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


#: All units for two steps; all units for one step, which may be booked behind it.
BUSY: Sequence[Written] = [(0, 2, (3, 3)), (0, 1, (3, 3))]


def test_networks_are_asked_where_there_is_a_choice() -> None:
    assert len({COMPARED, VALIDATED, CLONING}) == 3
    assert 10**8 < min(COMPARED, VALIDATED, CLONING) <= max(COMPARED, VALIDATED, CLONING) < 2**32
    grid = grid_of(BUSY, BUSY[:1])
    grid.step([0, 2])
    for mask, asked in (("all", [0, 1]), ("bookable", [0, 1]), ("startable", [1])):
        view = look(grid, mask)
        assert view.episode.tolist() == asked
        np.testing.assert_array_equal(view.pictures, grid.pictures[asked])
    assert GridActor(Fixed(9.0, 8.0, 0.0), mask="startable")(grid).tolist() == [2, 0]


@cases("mask, allowed", ("all", None), ("bookable", [[0, 1, 1]]), ("startable", np.zeros((0, 3))))
def test_a_mask_says_what_is_possible(mask: Mask, allowed: object) -> None:
    """The first job runs, the second waits in slot 1, slot 0 is empty."""
    grid = grid_of(BUSY)
    grid.step([0])
    found = look(grid, mask).allowed
    if allowed is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, allowed)


def test_actors_choose_the_likeliest_of_live_episodes() -> None:
    grid = grid_of(BUSY[1:], BUSY)
    for actions in ([0, 0], [2, 2]):
        grid.step(actions)
    assert grid.done.tolist() == [True, False]
    assert look(grid, "all").episode.tolist() == [1]
    grid = grid_of(BUSY, BUSY[:1])
    assert GridActor(Fixed(-1.0, 5.0, 1.0), mask="all")(grid).tolist() == [1, 1]
    assert GridActor(Fixed(-1.0, 5.0, 1.0))(grid).tolist() == [1, 2]
    with pytest.raises(NotFiniteError, match="probability"):
        GridActor(Fixed(np.nan, 0.0, 0.0))(grid_of(BUSY))


def test_what_is_not_allowed_has_a_probability_of_zero_and_no_gradient() -> None:
    network = Fixed(3.0, 1.0, 2.0)
    network.scores.requires_grad_()
    logarithms = log_probabilities(network, torch.zeros(1, 1), torch.tensor([[False, True, True]]))
    expected = np.exp([0.0, 1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    np.testing.assert_allclose(logarithms.exp().detach()[0, 1:], expected[1:], rtol=1e-6)
    assert logarithms.exp()[0, 0] == 0
    entropy = -(logarithms.exp() * logarithms).sum()
    assert float(entropy.detach()) == pytest.approx(-(expected[1:] * np.log(expected[1:])).sum())
    entropy.backward()
    assert network.scores.grad is not None
    assert network.scores.grad[0] == 0
    assert network.scores.grad[1:].isfinite().all()


@pytest.mark.parametrize(("mask", "likely"), [("all", [0, 1, 2]), ("startable", [0, 2])])
def test_actions_are_drawn_as_often_as_they_are_likely(mask: Mask, likely: list[int]) -> None:
    """Episodes have a job in slot 0 only."""
    number, scores = 4000, np.array([0.5, -0.3, 1.1])
    grid = grid_of(*[BUSY[:1]] * number)
    actions = GridActor(Fixed(*scores), np.random.default_rng(1), mask=mask)(grid)
    expected = np.zeros(3)
    expected[likely] = np.exp(scores[likely]) / np.exp(scores[likely]).sum()
    found = np.bincount(actions, minlength=3) / number
    assert (np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / number)).all()
