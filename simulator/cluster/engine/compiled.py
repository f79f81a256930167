"""How functions are compiled: once, kept on disk, and anew when any compiled source changes.

Numba keeps what it compiled, but looks only at the file of the function itself: a change in a function that it calls
from another module would go unnoticed. So the folder that it keeps things in is named after all sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

__all__ = ["compiled"]

_HERE = Path(__file__).parent
_SOURCES = ("durations.py", "state.py", "tasks.py", "executors.py", "commands.py")


def _cache_folder() -> Path:
    """Beside the sources, or in the user's cache where that cannot be written; folders of other sources are removed."""
    digest = hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]
    beside = _HERE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        writable = os.access(beside, os.W_OK)
    except OSError:
        writable = False
    home = beside if writable else Path.home() / ".cache" / "decima"
    for old in home.glob("compiled-*"):
        if old.name != f"compiled-{digest}":
            shutil.rmtree(old, ignore_errors=True)
    return home / f"compiled-{digest}"


_FOLDER = str(_cache_folder())


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function at its first call, as ``numba.njit`` does with the same options."""
    if function is None:
        return lambda function: compiled(function, **options)
    settings: Any = numba.config
    elsewhere = settings.CACHE_DIR
    settings.CACHE_DIR = _FOLDER
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        settings.CACHE_DIR = elsewhere
