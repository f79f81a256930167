"""Pass all tables of a cluster to compiled functions as one pointer.

Numba would pass a named tuple of 24 arrays as 168 words at each call of a function that is not inlined, which takes
longer than most of these functions, and compiling them would take twice as long. In compiled code the state is the
address of the block of tables instead. ``state.stages`` makes an array from it: the first table, the cluster's record,
has the places and lengths of all tables.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model
from numba.np.numpy_support import from_dtype


class Pointer(types.Type):
    """Numba's type of the pointer; its attributes are the tables."""

    #: Name -> type of the array; offsets of the table's start and length in the cluster's record, bytes; and whether
    #: the start is an address, or else an offset in the block, bytes.
    tables: ClassVar[dict[str, tuple[Any, int, int, bool]]] = {}

    def __init__(self) -> None:
        super().__init__(name="cluster_tables")


register_model(Pointer)(models.OpaqueModel)


def define(tables: dict[str, tuple[np.dtype[Any], int, int, bool]]) -> None:
    """Define the attributes of ``Pointer``; for the values see ``Pointer.tables``."""
    for name, (dtype, start, length, is_address) in tables.items():
        Pointer.tables[name] = types.Array(from_dtype(dtype), 1, "C"), start, length, is_address


@infer_getattr
class _Attributes(AttributeTemplate):
    key = Pointer

    def generic_resolve(self, _: Any, name: str) -> Any:  # type: ignore[override]
        return Pointer.tables[name][0] if name in Pointer.tables else None


@lower_getattr_generic(Pointer)  # type: ignore[untyped-decorator]
def _table(context: Any, builder: Any, _: Any, block: Any, name: str) -> Any:
    """Make the array of a table; the caller of compiled code holds the memory."""
    from numba.np.arrayobj import populate_array  # slow to import, and not needed for code from the cache

    kind, start, length, is_address = Pointer.tables[name]
    word = ir.IntType(64)

    def load(offset: int) -> Any:
        address = builder.gep(block, [ir.Constant(word, offset)])
        return builder.load(builder.bitcast(address, word.as_pointer()))

    data_type = context.get_data_type(kind.dtype).as_pointer()
    if is_address:
        data = builder.inttoptr(load(start), data_type)
    else:
        data = builder.bitcast(builder.gep(block, [load(start)]), data_type)
    itemsize = ir.Constant(word, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    array = context.make_array(kind)(context, builder)
    populate_array(array, data, [load(length)], [itemsize], itemsize, None)
    return array._getvalue()


def _pointer_to(typingctx: Any, block: Any) -> Any:
    """Return a ``Pointer`` to the tables in an array of bytes."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.bitcast(array.data, cgutils.voidptr_t)

    return Pointer()(block), make


#: ``_pointer_to`` for compiled code, without its first argument.
pointer_to: Any = intrinsic(_pointer_to)
