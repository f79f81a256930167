"""Compiled: linear layers on rows of inputs, most of the arithmetic of a decision; weights of the network.

Sums of some rows times sixteen outputs stay in registers while the inputs are read. Numba alone loads and stores the
sums at every input: a decision then takes 2.7 to 3.1 times as long (164 instead of 62 us with 16 jobs).
So the innermost loop is written as LLVM code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from simulator.compiled import inner

__all__ = [
    "FEW", "PARTS", "SLOPE", "NetworkArrays", "add_row", "add_rows", "apply_layer", "apply_part", "copy_row",
    "divide_row", "put_rows", "take_rows",
]  # fmt: skip

#: Numbers of rows of a block. A block of eight rows hides the time that an addition takes, but its sums need more
#: registers than processors without AVX-512 have.
MANY, FEW = 8 if get_host_cpu_features().get("avx512f") else 4, 4
#: LLVM flag that allows fused multiply-add.
CONTRACT = ("contract",)


def _block(rows: int, lanes: int) -> Callable[..., Any]:
    """Return a function for one block of ``apply_layer``: ``rows`` rows times ``lanes`` outputs."""
    vector = ir.VectorType(ir.FloatType(), lanes)

    def plain(x: Any, row: Any, weights: Any, column: Any, out: Any, slope: Any) -> None:
        here, columns = slice(row, row + rows), slice(column, column + lanes)
        sums = np.repeat(weights[-1:, columns], rows, axis=0)
        for k in range(len(weights) - 1):
            sums += x[here, k : k + 1] * weights[k, columns]
        out[here, columns] = np.where(sums > 0, sums, slope * sums)

    @intrinsic
    def in_registers(typing: Any, x: Any, row: Any, weights: Any, column: Any, out: Any, slope: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            x, row, weights, column, out, slope = values
            x, weights, out = (
                _Array(context, builder, signature.args[index], values[index]) for index in (0, 2, 4)
            )

            def spread(value: Any) -> Any:
                one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
                return builder.shuffle_vector(one, one, ir.VectorType(ir.IntType(32), lanes)(None))

            here = [builder.add(row, row.type(k)) for k in range(rows)]
            num_in = builder.sub(weights.length, row.type(1))
            bias = builder.load(weights.pointer(num_in, column, vector), align=4)
            sums = [cgutils.alloca_once_value(builder, bias) for _ in here]
            with cgutils.for_range(builder, num_in) as loop:
                these = builder.load(weights.pointer(loop.index, column, vector), align=4)
                for row_index, total in zip(here, sums, strict=True):
                    value = spread(builder.load(x.pointer(row_index, loop.index, ir.FloatType())))
                    product = builder.fmul(value, these, flags=CONTRACT)
                    builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
            for row_index, total in zip(here, sums, strict=True):
                value = builder.load(total)
                is_positive = builder.fcmp_ordered(">", value, vector(None))
                value = builder.select(is_positive, value, builder.fmul(spread(slope), value))
                builder.store(value, out.pointer(row_index, column, vector), align=4)
            return context.get_dummy_value()

        if not weights.layout == out.layout == "C":
            return None  # consecutive outputs must be adjacent in memory
        return types.void(x, types.intp, weights, types.intp, out, types.float32), build

    return plain if config.DISABLE_JIT else in_registers  # type: ignore[attr-defined]


class _Array:
    """Two-dimensional array in LLVM code: addresses of its elements."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self._tools, self._data, self._layout = (context, builder), array.data, kind.layout
        self._shape, self._strides = (
            cgutils.unpack_tuple(builder, pair, 2) for pair in (array.shape, array.strides)
        )
        self.length = self._shape[0]

    def pointer(self, i: Any, j: Any, kind: Any) -> Any:
        context, builder = self._tools
        pointer = cgutils.get_item_pointer2(
            context, builder, self._data, self._shape, self._strides, self._layout, [i, j]
        )
        return builder.bitcast(pointer, kind.as_pointer())


_many_by_16, _few_by_16, _one_by_16 = (_block(rows, 16) for rows in (MANY, FEW, 1))
_many_by_8, _few_by_8, _one_by_8 = (_block(rows, 8) for rows in (MANY, FEW, 1))


@inner(fastmath=set(CONTRACT))
def apply_layer(x, num_rows, out, weights, slope):
    """Apply a linear layer with activation to rows. Sums have the order of the inputs, independent of blocks.

    Args:
        x: float32 [at least num_rows, at least inputs], inputs.
        num_rows: number of rows to compute.
        out: float32 [at least num_rows, at least outputs], C order; its first rows and columns are overwritten. It
            must not share memory with ``x``.
        weights: float32 [inputs + 1, outputs], C order; the last row is the bias.
        slope: float32, slope of the activation (leaky ReLU) below 0; 1 is no activation.

    Raises:
        ValueError: an array is too small, which the unchecked pointers of a block would not notice.
    """
    num_in, num_out = weights.shape[0] - 1, weights.shape[1]
    if num_in < 0 or x.shape[0] < num_rows or x.shape[1] < num_in:
        raise ValueError("a layer has fewer inputs or rows than its weights need")
    if out.shape[0] < num_rows or out.shape[1] < num_out:
        raise ValueError("a layer has too small an output array")
    wide, narrow = num_out - num_out % 16, num_out - num_out % 8
    size = MANY if num_rows >= MANY else FEW if num_rows >= FEW else 1
    for begin in range(0, num_rows, size):
        row = min(begin, num_rows - size)  # the last block may compute rows of the block before again
        if size == MANY:
            for column in range(0, wide, 16):
                _many_by_16(x, row, weights, column, out, slope)
            for column in range(wide, narrow, 8):
                _many_by_8(x, row, weights, column, out, slope)
        elif size == FEW:
            for column in range(0, wide, 16):
                _few_by_16(x, row, weights, column, out, slope)
            for column in range(wide, narrow, 8):
                _few_by_8(x, row, weights, column, out, slope)
        else:
            for column in range(0, wide, 16):
                _one_by_16(x, row, weights, column, out, slope)
            for column in range(wide, narrow, 8):
                _one_by_8(x, row, weights, column, out, slope)
    for row in range(num_rows):
        for column in range(narrow, num_out):
            total = weights[num_in, column]
            for k in range(num_in):
                total += x[row, k] * weights[k, column]
            out[row, column] = total if total > 0 else slope * total


# The network.

#: Slope of the leaky ReLU below 0, as in the published code.
SLOPE = 0.2

#: Names of the parts of the network, see ``PolicyConfig.layers``; the heads come last.
PARTS = (
    "stage_input",
    "message",
    "attention",
    "aggregate",
    "job_summary",
    "job_aggregate",
    "global_summary",
    "global_aggregate",
    "stage_head",
    "limit_head",
)
# NumPy integers, since ``apply_part`` would be compiled again for each Python constant.
STAGE_INPUT, MESSAGE, ATTENTION, AGGREGATE, JOB_SUMMARY, JOB_AGGREGATE = np.arange(6)
GLOBAL_SUMMARY, GLOBAL_AGGREGATE, STAGE_HEAD, LIMIT_HEAD = np.arange(6, len(PARTS))
ONE = np.int64(1)


class NetworkArrays(NamedTuple):
    """Weights and settings of a policy network, for compiled code."""

    weights: NDArray[np.float32]
    """Weights of all layers: each layer's matrix [inputs, outputs], flat, followed by its bias."""
    layers: NDArray[np.int64]
    """[layers, 3], number of inputs, number of outputs, offset in ``weights``."""
    first_layer: NDArray[np.int64]
    """[11], first layer of each of ``PARTS``, and the end; a part without layers is the identity."""
    width: int
    """Width of embeddings; 0 without a graph neural network."""
    slope: np.float32
    """Slope of the activation below 0."""
    embedding_slope: np.float32
    """Slope of the activation after the last layer of embedding networks; 1 is no activation."""
    shortcut: bool
    """Whether heads and job summary receive raw features in addition to embeddings."""
    limit_kind: int
    limit_scale: np.float32
    log_limits: bool
    """Whether the limit as an input is the logarithm of 1 + limit / scale."""
    root_sums: bool
    """Whether sums over children, stages and jobs are divided by the root of their number."""
    median_limit: bool
    """Whether greedy choices take the median limit instead of the most likely one."""


@inner
def apply_part(network, part, x, num_rows, out, between):
    """Apply one part of the network to the first rows of ``x``; ``between`` holds hidden layers."""
    first, end = network.first_layer[part], network.first_layer[part + 1]
    if first == end:
        _check_buffer(out, num_rows, network.width)
        for row in range(num_rows):
            for column in range(network.width):
                out[row, column] = x[row, column]
    for layer in range(first, end):
        num_in, num_out, offset = network.layers[layer]
        matrix = network.weights[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
        source = x if layer == first else between[(layer - first) % 2]
        if layer + 1 < end:
            apply_layer(source, num_rows, between[(layer - first + 1) % 2], matrix, network.slope)
        else:
            is_score = part >= STAGE_HEAD or part == ATTENTION
            apply_layer(
                source, num_rows, out, matrix, np.float32(1.0) if is_score else network.embedding_slope
            )


# Rows.


@inner
def _check_buffer(target, num_rows, num_columns):
    if target.shape[0] < num_rows or target.shape[1] < num_columns:
        raise ValueError("a buffer is too small")


@inner(fastmath=set(CONTRACT))
def copy_row(source, row, width, target, to_row, to_column):
    """Copy the first numbers of a row of ``source`` to a row of ``target``, starting at a column; not checked."""
    row, to_row, to_column = np.uint64(row), np.uint64(to_row), np.uint64(to_column)
    for column in range(np.uint64(width)):
        target[to_row, to_column + column] = source[row, column]


@inner(fastmath=set(CONTRACT))
def add_row(source, row, width, target, to_row):
    """Add the first numbers of a row of ``source`` to a row of ``target``; not checked."""
    row, to_row = np.uint64(row), np.uint64(to_row)
    for column in range(np.uint64(width)):
        target[to_row, column] += source[row, column]


@inner
def divide_row(table, row, width, count):
    """Divide the first numbers of a row by the root of ``count``; not checked."""
    factor = np.float32(1.0 / math.sqrt(count)) if count > 0 else np.float32(1.0)
    row = np.uint64(row)
    for column in range(np.uint64(width)):
        table[row, column] *= factor


@inner
def take_rows(source, rows, count, width, target, column):
    """Gather: copy the given rows of ``source`` to the first rows of ``target``, starting at a column."""
    _check_buffer(target, count, column + width)
    for k in range(count):
        copy_row(source, rows[k], width, target, k, column)


@inner
def put_rows(source, count, width, target, rows):
    """Scatter: copy the first rows of ``source`` to the given rows of ``target``."""
    for k in range(count):
        copy_row(source, k, width, target, rows[k], 0)


@inner
def add_rows(source, count, width, target, rows):
    """Scatter-add: add the first rows of ``source`` to the given rows of ``target``."""
    for k in range(count):
        add_row(source, k, width, target, rows[k])
