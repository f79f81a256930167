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
    dispatcher = numba.njit(cache=True, **options)(function)
    if dispatcher is not function:  # without NUMBA_DISABLE_JIT
        folder = Path(function.__code__.co_filename).parent
        dispatcher._cache._cache_file._source_stamp = _digest(folder)
    return dispatcher


def inner(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function that only compiled code calls, and that neither makes nor returns arrays.

    It does not count that it holds the arrays it is handed. For a tuple of many arrays that would cost more than most
    functions do with them.
    """
    return compiled(function, _nrt=False, **options)


@cache
def _digest(folder: Path) -> bytes:
    """Of the sources in a folder."""
    sources = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        sources.update(path.read_bytes())
    return sources.digest()
