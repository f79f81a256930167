"""How functions are compiled: at their first call, kept on disk, and anew when a source changes.

Numba keeps what it compiled beside the sources, or in the user's cache where that cannot be written. By itself it
would notice a change of the function's own file only; here of any file of the folder. So compiled code calls, and
takes constants from, compiled code of its own folder only.

With ``NUMBA_DISABLE_JIT=1`` nothing is compiled, and everything runs as plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

__all__ = ["ANY_ORDER", "compiled", "inner"]


#: ``fastmath`` for sums in any order, which lets the compiler use vectors.
ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function, as ``numba.njit`` does with the same options."""
    if function is None:
        return lambda function: compiled(function, **options)
    # Nobody asks for the address of a function, which would be that of one more wrapper.
    options |= {"cache": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(**options)(function)
    if dispatcher is not function:  # without NUMBA_DISABLE_JIT
        folder = Path(function.__code__.co_filename).parent
        dispatcher._cache._cache_file._source_stamp = _digest(folder)
    return dispatcher


def inner(function: Callable[..., Any] | None = None, /, *, arrays: bool = False, **options: Any) -> Any:
    """Compile a function that only compiled code calls, which spares what Python would need to call it.

    Args:
        arrays: whether it may make or return arrays. One that may not does not count that it holds the arrays it is
            handed, which for a tuple of many arrays would cost more than most functions do with them.

    Raises:
        TypeError: Python calls what comes out.
    """
    if function is None:
        return lambda function: inner(function, arrays=arrays, **options)
    name = function.__name__

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"only compiled code can call {name}")

    dispatcher = compiled(function, _nrt=arrays, no_cpython_wrapper=True, **options)
    if dispatcher is not function:
        # What would be called does not exist: the dispatcher must not know it, nor compile it for Python.
        dispatcher._insert = lambda *_, **__: None
        dispatcher._compile_for_args = refuse
    return dispatcher


@cache
def _digest(folder: Path) -> bytes:
    """Of the sources in a folder."""
    sources = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        sources.update(path.read_bytes())
    return sources.digest()
