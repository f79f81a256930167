import inspect
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from decima.policy.grid import (
    GridPolicyConfig,
    GridSection,
    NetworkSection,
    PictureLinear,
    Resources,
    add_outer,
    build_network,
)
from simulator.grid import DEEPRM, PAPER, GridConfig
from tests.decima.learning.grid.examples import TINY, dense, tiny_grid
from workloads.errors import ConfigError


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
    assert count(build_network(GridConfig(), 11)) == 89_451
    assert count(build_network(GridConfig(arrival_column=True), 11)) == 89_851
    torch.manual_seed(0)
    network = build_network(GridConfig(), 11)
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
    network = noisy(build_network(grid.config, grid.config.num_actions))
    states = torch.from_numpy(grid.pictures)
    assert states.any()
    torch.testing.assert_close(network(states).double(), dense(network, states), rtol=1e-5, atol=1e-5)


def test_sections_and_pictures_of_networks() -> None:
    defaults = inspect.signature(build_network).parameters
    section = NetworkSection().model_dump()
    assert section == {name: defaults[name].default for name in section}
    assert section == {"filters": 0, "kernel": 2, "pooling": False, "reshape": False, "hidden": (20,)}
    assert GridSection().build() == GridConfig(semantics=PAPER, max_steps=1000)
    assert GridSection(semantics="deeprm").build() == GridConfig(semantics=DEEPRM, max_steps=1000)
    config = GridPolicyConfig()
    assert config.mask == "startable"
    assert count(config.build()) == 89_451
    assert config.sizes.startswith("pictures of 20 x 223 and 11 actions (filters 0, kernel 2, pooling False, ")
    config = GridConfig(
        num_resources=3, units=2, visible_jobs=2, slot_width=2, horizon=3, backlog=4, arrival_column=True
    )
    rows, columns = config.picture_shape
    cells = torch.arange(2 * rows * columns).reshape(2, rows, columns)
    reshaped = Resources(config)(cells)
    width = 2 + 2 * 2  # the machine, and two visible jobs
    last = 2 + 1  # the backlog, and steps since the last arrival
    assert reshaped.shape == (2, *Resources(config).shape) == (2, 3, rows, width + last)
    for number, resource, row, column in itertools.product(*map(range, reshaped.shape)):
        at = resource * width + column if column < width else 3 * width + column - width
        assert reshaped[number, resource, row, column] == cells[number, row, at]
    # Without the check, compiled code would read beyond the weights.
    layer = PictureLinear(6, 2)
    for shape in ((1, 1, 5), (2, 2, 4)):
        with pytest.raises(ValueError, match="not of the same cells"):
            layer(torch.ones(shape, dtype=torch.uint8))
    kernel = (np.ones((2, 8), np.uint8), np.ones((2, 1), np.uint32), np.ones((8, 3), np.float32))
    with pytest.raises(ValueError, match="words"):
        add_outer(kernel[0], kernel[1], np.ones((2, 3), np.float32), kernel[2])


@settings(deadline=None, max_examples=60)
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
    shape = {"filters": filters, "kernel": 3, "pooling": pooling, "reshape": reshape, "hidden": (5, 6)}
    network = noisy(build_network(config, config.num_actions, **shape))
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
        build_network(GridConfig(**TINY), 3, filters=2, kernel=kernel, pooling=pooling)
