"""Networks for pictures of DeepRM's grid: DeepRM's network, and convolutional networks (CNN) of its successors.

The first layer on sparse pictures is compiled: it sums the weights of cells that are 1. About a hundred of the
thousands of cells of a picture are 1, so this is faster than a matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simulator.compiled import ANY_ORDER, compiled, inner
from simulator.grid.config import GridConfig
from workloads.errors import ConfigError

__all__ = ["PictureLinear", "Resources", "add_outer", "build_network", "sum_taken"]


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
    for number in range(len(pictures)):
        total = sums[number]
        total[:] = bias
        for word in range(words.shape[1]):
            if words[number, word] != 0:
                for cell in range(4 * word, 4 * word + 4):
                    if pictures[number, cell] != 0:
                        for output in range(len(total)):
                            total[output] += weight[cell, output]
        for cell in range(4 * words.shape[1], pictures.shape[1]):
            if pictures[number, cell] != 0:
                for output in range(len(total)):
                    total[output] += weight[cell, output]


@compiled(fastmath=ANY_ORDER)
def add_outer(pictures, words, gradient, weight_gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of a layer's weights, given the gradient of its outputs; arrays as in ``sum_taken``."""
    _check(pictures, words, weight_gradient, gradient)
    for number in range(len(pictures)):
        own = gradient[number]
        for word in range(words.shape[1]):
            if words[number, word] != 0:
                for cell in range(4 * word, 4 * word + 4):
                    if pictures[number, cell] != 0:
                        for output in range(len(own)):
                            weight_gradient[cell, output] += own[output]
        for cell in range(4 * words.shape[1], pictures.shape[1]):
            if pictures[number, cell] != 0:
                for output in range(len(own)):
                    weight_gradient[cell, output] += own[output]


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
        reshape: whether each resource is a channel (see :class:`Resources`), not columns of a single channel.
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
