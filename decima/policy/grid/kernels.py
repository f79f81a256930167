"""Compiled: first layer of a network on sparse pictures, which sums the weights of cells that are 1.

About a hundred of the thousands of cells of a DeepRM picture are 1, so this is faster than a matrix product.
"""

from __future__ import annotations

from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["add_outer", "sum_taken"]


@compiled(fastmath=ANY_ORDER)
def sum_taken(pictures, words, weight, bias, sums):
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
def add_outer(pictures, words, gradient, weight_gradient):
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
def _check(pictures, words, weight, sums):
    """Refuse inconsistent shapes, which compiled code does not check."""
    if pictures.shape[1] != weight.shape[0] or len(pictures) != len(sums) or weight.shape[1] != sums.shape[1]:
        raise ValueError("pictures, weights and sums are not of the same cells and outputs")
    if len(words) != len(pictures) or words.shape[1] != pictures.shape[1] // 4:
        raise ValueError("words are not those of the pictures")
