"""Compiled: sums of weights over the cells of pictures that are 1, which most are not.

A DeepRM picture has thousands of cells and some hundred that are taken, so that adding up those cells' weights takes
a fraction of the time of a product of matrices.
"""

from __future__ import annotations

from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["add_outer", "sum_taken"]


@compiled(fastmath=ANY_ORDER)
def sum_taken(pictures, words, weight, bias, sums):
    """For each picture the sum of the weights of its taken cells.

    Args:
        pictures: uint8 [n, cells], zeros and ones.
        words: uint32 [n, cells // 4], the same memory.
        weight: float32 [cells, outputs].
        bias: float32 [outputs].
        sums: float32 [n, outputs], filled in.

    Raises:
        ValueError: the arrays do not fit together.
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
    """Add to each cell's weight gradient the gradients of the sums that it is part of; arrays as above."""
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
    """Refuse pictures of other cells than there are weights for: compiled code would look for the others."""
    if pictures.shape[1] != weight.shape[0] or len(pictures) != len(sums) or weight.shape[1] != sums.shape[1]:
        raise ValueError("pictures, weights and sums are not of the same cells and outputs")
    if len(words) != len(pictures) or words.shape[1] != pictures.shape[1] // 4:
        raise ValueError("words are not those of the pictures")
