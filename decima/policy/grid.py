"""Policies for DeepRM's grid: networks for its pictures, the actor that schedules with them, and policy files.

The networks are DeepRM's, and convolutional networks (CNN) of its successors. Their first layer on sparse pictures is
compiled: it sums the weights of the cells that are 1, about a hundred of the thousands. The array ``network`` of a
policy file is its JSON text, see ``decima.policy.archive``; the other arrays are the parameters of the actor's network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.policy.archive import checked_weights, read_archive
from decima.policy.archive_writer import write_policy
from decima.policy.grid_config import HEAD, VERSION, GridPolicyConfig, Mask, parse_head
from simulator.compiled import ANY_ORDER, compiled, inner
from simulator.grid.config import GridConfig
from workloads.errors import ConfigError, NotFiniteError, PolicyFileError

if TYPE_CHECKING:
    from simulator.grid.grid import Grid

__all__ = [
    "CLONING",
    "COMPARED",
    "VALIDATED",
    "GridActor",
    "GridView",
    "PictureLinear",
    "Resources",
    "add_outer",
    "build_actor",
    "build_network",
    "load_network",
    "log_probabilities",
    "look",
    "save_network",
    "sum_taken",
]  # fmt: skip


@compiled(fastmath=ANY_ORDER)
def sum_taken(pictures, words, weight, bias, sums):  # type: ignore[no-untyped-def]
    """Compute a linear layer: for each picture the bias plus the sum of the weights of its cells that are 1.

    Args:
        pictures: uint8 [n, cells], zeros and ones.
        words: uint32 [n, cells // 4], a view of ``pictures``.
        weight: float32 [cells, outputs].
        bias: float32 [outputs].
        sums: float32 [n, outputs], overwritten with the outputs.

    Raises:
        ValueError: the shapes are inconsistent.
    """
    _check(pictures, words, weight, sums)
    taken = np.empty(pictures.shape[1], dtype=np.int64)
    for picture in range(len(pictures)):
        total = sums[picture]
        total[:] = bias
        for index in range(_find_taken(pictures[picture], words[picture], taken)):
            cell = taken[index]
            for output in range(len(total)):
                total[output] += weight[cell, output]


@compiled(fastmath=ANY_ORDER)
def add_outer(pictures, words, gradient, weight_gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of a layer's weights, given the gradient of its outputs; arrays as in ``sum_taken``."""
    _check(pictures, words, weight_gradient, gradient)
    taken = np.empty(pictures.shape[1], dtype=np.int64)
    for picture in range(len(pictures)):
        row = gradient[picture]
        for index in range(_find_taken(pictures[picture], words[picture], taken)):
            cell = taken[index]
            for output in range(len(row)):
                weight_gradient[cell, output] += row[output]


@inner
def _find_taken(cells, words, taken):  # type: ignore[no-untyped-def]
    """List the indices of the cells that are 1, and return their number; most words of four cells are 0."""
    count = 0
    for word in range(len(words)):
        if words[word] != 0:
            for cell in range(4 * word, 4 * word + 4):
                if cells[cell] != 0:
                    taken[count] = cell
                    count += 1
    for cell in range(4 * len(words), len(cells)):
        if cells[cell] != 0:
            taken[count] = cell
            count += 1
    return count


@inner
def _check(pictures, words, weight, sums):  # type: ignore[no-untyped-def]
    """Refuse inconsistent shapes, which compiled code does not check."""
    if pictures.shape[1] != weight.shape[0] or len(pictures) != len(sums) or weight.shape[1] != sums.shape[1]:
        raise ValueError("pictures, weights and sums are not of the same cells and outputs")
    if len(words) != len(pictures) or words.shape[1] != pictures.shape[1] // 4:
        raise ValueError("words are not those of the pictures")


#: Standard deviation of the initial weights, as in DeepRM's code; biases are 0.
INITIAL_DEVIATION = 0.01


class _SumTaken(torch.autograd.Function):
    """Autograd function of ``PictureLinear`` on pictures of zeros and ones."""

    @staticmethod
    def forward(context: Any, pictures: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        cells = pictures.numpy()
        sums = torch.empty(len(pictures), weight.shape[1])
        sum_taken(cells, _words(cells), weight.detach().numpy(), bias.detach().numpy(), sums.numpy())
        context.save_for_backward(pictures, weight)
        return sums

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        pictures, weight = context.saved_tensors
        gradient = gradients[0].contiguous()
        cells = pictures.numpy()
        weight_gradient = torch.zeros_like(weight)
        add_outer(cells, _words(cells), gradient.numpy(), weight_gradient.numpy())
        return None, weight_gradient, gradient.sum(dim=0)


def _words(cells: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """View cells as words of four cells, without an incomplete last word."""
    return cells[:, : cells.shape[1] // 4 * 4].view(np.uint32)


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
            summed: Tensor = _SumTaken.apply(cells, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return summed
        return cells.float() @ self.weight + self.bias


class _OneChannel(nn.Module):
    """Add a channel dimension to pictures."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.shape = 1, rows, columns

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, [n, H, W], to one channel, float32 [n, 1, H, W]."""
        return pictures[:, None].float()


class Resources(nn.Module):
    """Reshape pictures as in the CNN paper (Chen, Xu and Wu, 2017): one channel per resource, all with the backlog.

    So a filter covers a job's demands for all resources.
    """

    def __init__(self, config: GridConfig) -> None:
        super().__init__()
        self.resources, self.width = config.num_resources, config.resource_width
        columns = config.picture_shape[1] - (self.resources - 1) * self.width
        self.shape = self.resources, config.horizon, columns

    def forward(self, pictures: Tensor) -> Tensor:
        """Map pictures, [n, H, W], to R channels, float32 [n, R, H, W']."""
        end = self.resources * self.width
        split = pictures[:, :, :end].reshape(*pictures.shape[:2], self.resources, self.width).movedim(2, 1)
        rest = pictures[:, None, :, end:].expand(-1, self.resources, -1, -1)
        return torch.cat([split, rest], dim=3).float()


def build_network(
    config: GridConfig,
    outputs: int,
    *,
    filters: int = 0,
    kernel: int = 2,
    pooling: bool = False,
    reshape: bool = False,
    hidden: Sequence[int] = (20,),
) -> nn.Module:
    """Build a network for pictures of a grid.

    The default is DeepRM's network, one hidden layer of 20 units: 89,451 parameters with the paper's sizes.
    ``filters=16`` adds a 2 x 2 convolution (the CNN of Chen, Xu and Wu, 2017); ``kernel=3`` with 16 or 32 filters,
    with or without pooling, is A2cScheduler's Conv3-16 or Conv3-32.

    Args:
        config: configuration of the grid.
        outputs: number of outputs.
        filters: number of filters of the convolution; 0 for no convolution.
        kernel: height and width of a filter.
        pooling: whether 2 x 2 max pooling follows the convolution.
        reshape: whether each resource is a channel (see ``Resources``), not columns of a single channel.
        hidden: widths of the hidden layers.

    Raises:
        ConfigError: the picture is too small for the filters.
    """
    rows, columns = config.picture_shape
    layers: list[nn.Module] = []
    if filters:
        spread = Resources(config) if reshape else _OneChannel(rows, columns)
        layers += [spread, nn.Conv2d(spread.shape[0], filters, kernel), nn.ReLU()]
        rows, columns = spread.shape[1] - kernel + 1, spread.shape[2] - kernel + 1
        if pooling:
            layers.append(nn.MaxPool2d(2))
            rows, columns = rows // 2, columns // 2
        if min(rows, columns) < 1:
            height, width = spread.shape[1:]
            pooled = " and pooling" if pooling else ""
            raise ConfigError(
                f"a picture of {height} x {width} is too small for filters of {kernel} x {kernel}{pooled}"
            )
        layers += [nn.Flatten(), nn.Linear(filters * rows * columns, hidden[0])]
    else:
        layers.append(PictureLinear(rows * columns, hidden[0]))
    for inputs, units in zip(hidden, [*hidden[1:], outputs], strict=True):
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
    grid = config.grid
    return build_network(grid, grid.num_actions, **config.network.model_dump())


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
