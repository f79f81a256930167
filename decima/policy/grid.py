"""Policies for DeepRM's grid: networks for its pictures, the actor that schedules with them, and policy files.

The networks are DeepRM's, and convolutional networks (CNN) of its successors. DeepRM's first layer multiplies a sparse
matrix, since about a hundred of the thousands of cells of a picture are 1. The array ``network`` of a policy file is
its JSON text, see ``decima.policy.archive``; the other arrays are the parameters of the actor's network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from decima.policy.archive import checked_weights, read_archive
from decima.policy.archive_writer import write_policy
from decima.policy.grid_config import HEAD, VERSION, GridPolicyConfig, Mask, NetworkSection, parse_head
from simulator.grid.config import GridConfig
from workloads.errors import ConfigError, NotFiniteError, PolicyFileError

if TYPE_CHECKING:
    from simulator.grid.grid import Grid

__all__ = [
    "CLONING",
    "COMPARED",
    "VALIDATED",
    "Channels",
    "GridActor",
    "GridView",
    "PictureLinear",
    "build_actor",
    "build_network",
    "load_network",
    "log_probabilities",
    "look",
    "save_network",
]  # fmt: skip


#: Standard deviation of the initial weights, as in DeepRM's code; biases are 0.
INITIAL_DEVIATION = 0.01


class _SparseProduct(torch.autograd.Function):
    """Autograd function of ``PictureLinear`` on pictures of zeros and ones."""

    @staticmethod
    def forward(context: Any, pictures: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        context.cells = _sparse(pictures.numpy())
        return torch.from_numpy(context.cells @ torch.cat([bias[None], weight]).numpy())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        gradient = gradients[0].contiguous()
        with_bias = torch.from_numpy(context.cells.T @ gradient.numpy())
        return None, with_bias[1:], gradient.sum(dim=0)


def _sparse(pictures: NDArray[np.uint8]) -> sparse.csr_array:
    """Return pictures, [n, cells], as a sparse matrix whose first column is 1 in all rows, for the bias."""
    number, width = len(pictures), pictures.shape[1] + 1
    cells = np.ones((number, width), np.bool_)
    cells[:, 1:] = pictures
    filled = np.flatnonzero(cells)
    first = np.searchsorted(filled, width * np.arange(number + 1))
    return sparse.csr_array((np.ones(filled.size, np.float32), filled % width, first), shape=cells.shape)


class PictureLinear(nn.Module):
    """Linear layer on flattened pictures; fast if nearly all cells are 0 and the others are 1.

    Args:
        cells: number of cells of a picture.
        outputs: number of outputs.
    """

    def __init__(self, cells: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(INITIAL_DEVIATION * torch.randn(cells, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, [n, H, W], to outputs, float32 [n, outputs]."""
        cells = pictures.flatten(1)
        if cells.dtype == torch.uint8 and cells.device.type == "cpu":
            product: Tensor = _SparseProduct.apply(cells, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return product
        return cells.float() @ self.weight + self.bias


class Channels(nn.Module):
    """Reshape pictures to the channels of a convolution.

    Args:
        grid: configuration of the grid.
        by_resource: whether there is one channel per resource, all with the backlog, so that a filter covers a job's
            demands for all resources (Chen, Xu and Wu, 2017); else a picture is a single channel.
    """

    def __init__(self, grid: GridConfig, by_resource: bool) -> None:
        super().__init__()
        columns = grid.num_resources * grid.resource_width
        self.channels = grid.num_resources if by_resource else 1
        self.width = columns // self.channels
        self.shape = self.channels, grid.horizon, grid.picture_shape[1] - columns + self.width

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, [n, H, W], to channels, float32 [n, channels, H, W']."""
        end = self.channels * self.width
        split = pictures[:, :, :end].reshape(*pictures.shape[:2], self.channels, self.width).movedim(2, 1)
        rest = pictures[:, None, :, end:].expand(-1, self.channels, -1, -1)
        return torch.cat([split, rest], dim=3).float()


def build_network(grid: GridConfig, outputs: int, network: NetworkSection) -> nn.Module:
    """Build a network for pictures of a grid.

    The default section is DeepRM's network, one hidden layer of 20 units: 89,451 parameters with the paper's sizes.
    ``filters=16`` adds a 2 x 2 convolution (the CNN of Chen, Xu and Wu, 2017); ``kernel=3`` with 16 or 32 filters,
    with or without pooling, is A2cScheduler's Conv3-16 or Conv3-32.

    Raises:
        ConfigError: the picture is too small for the filters.
    """
    rows, columns = grid.picture_shape
    layers: list[nn.Module] = []
    if network.filters:
        channels = Channels(grid, network.reshape)
        layers += [channels, nn.Conv2d(channels.shape[0], network.filters, network.kernel), nn.ReLU()]
        rows, columns = (size - network.kernel + 1 for size in channels.shape[1:])
        if network.pooling:
            layers.append(nn.MaxPool2d(2))
            rows, columns = rows // 2, columns // 2
        if min(rows, columns) < 1:
            picture, kernel = "{} x {}".format(*channels.shape[1:]), network.kernel
            pooled = " and pooling" if network.pooling else ""
            raise ConfigError(
                f"a picture of {picture} is too small for filters of {kernel} x {kernel}{pooled}"
            )
        layers += [nn.Flatten(), nn.Linear(network.filters * rows * columns, network.hidden[0])]
    else:
        layers.append(PictureLinear(rows * columns, network.hidden[0]))
    for inputs, units in zip(network.hidden, [*network.hidden[1:], outputs], strict=True):
        last = nn.Linear(inputs, units)
        nn.init.normal_(last.weight, std=INITIAL_DEVIATION)
        nn.init.zeros_(last.bias)
        layers += [nn.ReLU(), last]
    return nn.Sequential(*layers)


def build_actor(config: GridPolicyConfig) -> nn.Module:
    """Build the network of an actor, with one output for each action.

    Raises:
        ConfigError: see ``build_network``.
    """
    return build_network(config.grid, config.grid.num_actions, config.network)


#: Keys of the random stream POLICY for comparison, validation and behaviour cloning; keys of iterations are smaller.
COMPARED, VALIDATED, CLONING = 2**29, 2**30, 2**31 - 1

#: Score of masked actions.
IMPOSSIBLE = -1e30


class GridView(NamedTuple):
    """Episodes in which the network has a choice, n of N, and what it sees of them.

    Attributes:
        episode: int64 [n], indices of the episodes, ascending.
        pictures: uint8 or float32 [n, H, W].
        allowed: bool [n, actions], action mask; None if all actions are allowed.
    """

    episode: NDArray[np.int64]
    pictures: NDArray[Any]
    allowed: NDArray[np.bool_] | None

    @classmethod
    def concatenate(cls, views: Sequence[GridView]) -> GridView:
        """Concatenate views under the same action mask."""
        episodes, pictures, masks = zip(*views, strict=True)
        allowed = None if masks[0] is None else np.concatenate(masks)
        return cls(np.concatenate(episodes), np.concatenate(pictures), allowed)

    def select(self, part: NDArray[np.int64]) -> GridView:
        """Return the rows with these indices."""
        allowed = None if self.allowed is None else self.allowed[part]
        return GridView(self.episode[part], self.pictures[part], allowed)


def look(grid: Grid, mask: Mask) -> GridView:
    """Return the view of a grid under an action mask, see ``GridActor``."""
    if mask == "all":
        episode = np.flatnonzero(~grid.done)
        return GridView(episode, grid.pictures[episode], None)
    allowed = grid.action_mask(now=mask == "startable")
    episode = np.flatnonzero(allowed[:, :-1].any(axis=1))
    return GridView(episode, grid.pictures[episode], allowed[episode])


class GridActor:
    """Scheduler of grids that chooses the actions of a network; a ``GridScheduler``.

    Args:
        network: maps pictures to a score for each action.
        random: generator to sample actions; by default the most likely action is chosen (greedy).
        mask: allowed actions: ``all``; ``bookable``, jobs that can be booked, and void; ``startable``, jobs that can
            start at once, and void. The network is not evaluated where only void is allowed.
    """

    def __init__(
        self, network: nn.Module, random: np.random.Generator | None = None, *, mask: Mask = "startable"
    ) -> None:
        self.network = network
        self.random = random
        self.mask = mask

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """Return an action for each of N episodes, int64 [N]."""
        return self.decide(grid, look(grid, self.mask))

    def decide(self, grid: Grid, view: GridView) -> NDArray[np.int64]:
        """Return an action for each of N episodes, int64 [N], given the view of the grid under ``mask``.

        Raises:
            NotFiniteError: a probability is not finite.
        """
        actions = np.full(len(grid), grid.config.num_actions - 1, dtype=np.int64)
        if view.episode.size:
            allowed = None if view.allowed is None else torch.from_numpy(view.allowed)
            with torch.no_grad():
                scores = log_probabilities(self.network, torch.from_numpy(view.pictures), allowed)
            actions[view.episode] = self._choose(scores.double().exp().numpy())
        return actions

    def _choose(self, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
        if not np.isfinite(probabilities).all():
            raise NotFiniteError("the probability of an action is not finite")
        if self.random is None:
            return np.asarray(probabilities.argmax(axis=1))
        sums = probabilities.cumsum(axis=1)
        drawn = self.random.random((len(sums), 1)) * sums[:, -1:]
        return np.asarray((sums <= drawn).sum(axis=1))


def log_probabilities(network: nn.Module, pictures: Tensor, allowed: Tensor | None) -> Tensor:
    """Return log-probabilities of all actions, float32 [n, actions]; masked actions have probability 0."""
    scores: Tensor = network(pictures)
    if allowed is not None:
        # A finite score, since minus infinity times a probability of 0 would make the entropy NaN.
        scores = scores.masked_fill(~allowed, IMPOSSIBLE)
    return scores.log_softmax(dim=1)


def save_network(path: Path, network: nn.Module, config: GridPolicyConfig, about: Mapping[str, Any]) -> None:
    """Write an actor's network, built by ``build_actor(config)``, atomically; see ``decima.policy.archive``."""
    arrays = {name: weight.detach().cpu().numpy() for name, weight in network.state_dict().items()}
    write_policy(path, config, arrays, about, HEAD, VERSION)


def load_network(path: Path) -> tuple[nn.Module, GridPolicyConfig]:
    """Read an actor's network and its configuration.

    Raises:
        PolicyFileError: the file is malformed, has another format version, or weights that do not match its
            configuration.
    """
    arrays = read_archive(path)
    config, _ = parse_head(path, arrays)
    try:
        with torch.device("meta"):  # allocates nothing, whatever the file's sizes are
            network = build_actor(config)
    except (ConfigError, OverflowError, RuntimeError, TypeError) as error:
        raise PolicyFileError(f"{path}: config: {' '.join(str(error).split()):.200}") from None
    arrays.pop(HEAD)
    shapes = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    weights = checked_weights(path, arrays, shapes)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, assign=True)
    return network, config
