"""Marks of parts of the program whose compiled code is in the cache, so that it need not be compiled in advance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numba

from simulator.compiled import compiled, digest

__all__ = ["is_compiled", "mark_compiled"]


@compiled
def _nothing():
    pass


def _marker(part: str, packages: Iterable[Path]) -> Path | None:
    """Return the file that marks a part of the program as compiled; None without a compiler or a cache."""
    folder = getattr(getattr(_nothing, "_cache", None), "cache_path", None)
    if folder is None:
        return None
    folders = sorted({file.parent for package in packages for file in package.rglob("*.py")})
    target = repr((part, numba.__version__, _nothing.targetctx.codegen().magic_tuple()))
    stamp = hashlib.sha256(b"".join([*map(digest, folders), target.encode()])).hexdigest()
    return Path(folder, f"{stamp[:32]}.compiled")


def is_compiled(part: str, packages: Iterable[Path]) -> bool:
    """Return whether ``mark_compiled`` was called for a part, with the same sources, Numba version and processor."""
    marker = _marker(part, packages)
    return marker is None or marker.exists()


def mark_compiled(part: str, packages: Iterable[Path]) -> None:
    """Mark a part of the program as cached, until a source of ``packages``, Numba or the processor changes."""
    marker = _marker(part, packages)
    with suppress(OSError):
        if marker is not None:
            marker.touch()
