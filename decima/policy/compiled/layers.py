"""Compiled: one layer of a network on some rows, where the arithmetic of a decision is.

Four rows times sixteen outputs stay in registers while the inputs go by. Numba by itself would load and store the sums
at every input, which takes two to three times as long; so the innermost loop is written in LLVM's language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from simulator.compiled import inner

__all__ = ["apply_layer"]

#: Rows of a block.
ROWS = 4
#: Products and sums may be rounded once, together.
CONTRACT = ("contract",)


def _block(rows: int, lanes: int) -> Callable[..., Any]:
    """What fills in so many rows of ``apply_layer``, from ``row`` on, and so many outputs, from ``column`` on."""
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
                _Array(context, builder, signature.args[place], values[place]) for place in (0, 2, 4)
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
                for each, total in zip(here, sums, strict=True):
                    value = spread(builder.load(x.pointer(each, loop.index, ir.FloatType())))
                    product = builder.fmul(value, these, flags=CONTRACT)
                    builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
            for each, total in zip(here, sums, strict=True):
                value = builder.load(total)
                is_positive = builder.fcmp_ordered(">", value, vector(None))
                value = builder.select(is_positive, value, builder.fmul(spread(slope), value))
                builder.store(value, out.pointer(each, column, vector), align=4)
            return context.get_dummy_value()

        if not weights.layout == out.layout == "C":
            return None  # neighbours must lie side by side
        return types.void(x, types.intp, weights, types.intp, out, types.float32), build

    return plain if config.DISABLE_JIT else in_registers  # type: ignore[attr-defined]


class _Array:
    """Where an array of two dimensions has what, in LLVM's language."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self._tools, self._data, self._layout = (context, builder), array.data, kind.layout
        self._shape, self._strides = (
            cgutils.unpack_tuple(builder, each, 2) for each in (array.shape, array.strides)
        )
        self.length = self._shape[0]

    def pointer(self, i: Any, j: Any, kind: Any) -> Any:
        context, builder = self._tools
        found = cgutils.get_item_pointer2(
            context, builder, self._data, self._shape, self._strides, self._layout, [i, j]
        )
        return builder.bitcast(found, kind.as_pointer())


_four_by_16, _one_by_16 = _block(ROWS, 16), _block(1, 16)
_four_by_8, _one_by_8 = _block(ROWS, 8), _block(1, 8)


@inner(fastmath=set(CONTRACT))
def apply_layer(x, num_rows, out, weights, slope):
    """Fill in the first rows of ``out``. Every sum is taken in the order of the inputs, whatever the block.

    Args:
        x: float32 [at least num_rows, at least inputs].
        num_rows: how many.
        out: float32 [at least num_rows, at least outputs], in C order.
        weights: float32 [inputs + 1, outputs], in C order; the bias is the last row.
        slope: float32, of the activation below 0; 1 is none.

    Raises:
        ValueError: an array is too small. The blocks below are written through pointers, which nothing else checks.
    """
    num_in, num_out = weights.shape[0] - 1, weights.shape[1]
    if num_in < 0 or x.shape[0] < num_rows or x.shape[1] < num_in:
        raise ValueError("a layer has fewer inputs than its weights and rows need")
    if out.shape[0] < num_rows or out.shape[1] < num_out:
        raise ValueError("a layer has no room for its outputs")
    blocks, wide, narrow = num_rows - num_rows % ROWS, num_out - num_out % 16, num_out - num_out % 8
    for column in range(0, wide, 16):
        for row in range(0, blocks, ROWS):
            _four_by_16(x, row, weights, column, out, slope)
        for row in range(blocks, num_rows):
            _one_by_16(x, row, weights, column, out, slope)
    for column in range(wide, narrow, 8):
        for row in range(0, blocks, ROWS):
            _four_by_8(x, row, weights, column, out, slope)
        for row in range(blocks, num_rows):
            _one_by_8(x, row, weights, column, out, slope)
    for row in range(num_rows):
        for column in range(narrow, num_out):
            total = weights[num_in, column]
            for k in range(num_in):
                total += x[row, k] * weights[k, column]
            out[row, column] = total if total > 0 else slope * total
