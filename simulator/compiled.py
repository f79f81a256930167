"""Compile functions with Numba on their first call, and cache them on disk until a source changes.

The cache is beside the sources, or in the user's cache folder if theirs is not writable. Numba alone would notice only
changes of a function's own file; here a change of any file in the folder counts. So compiled code must call compiled
code of its own folder only, and take constants from there only.

Numba optimises and assembles each function, and again wherever it is inlined. This module does so only for functions
that Python calls. With plain ``numba.njit(cache=True)`` instead of this module, a first episode with the policy
``general`` compiles for 90 s instead of 37 s, and a decision takes 95 us instead of 61 us. This needs private parts of
Numba, which its next release may change, so ``pyproject.toml`` has an upper bound; ``tests/simulator/test_compiled.py``
compares the results with plain ``numba.njit``.

If several processes start with an empty cache, one compiles the functions of a module, while the others wait and then
load the results. As modules do not import each other in a circle, processes cannot wait for each other. A file lock is
enough: cached code names its source and signature, so that a killed process, or a file system without locks, costs time
only.

With ``NUMBA_DISABLE_JIT=1`` nothing is compiled, and all code runs as plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from filelock import FileLock
from numba.core import types
from numba.core.caching import IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment
from numba.core.runtime.nrt import rtsys
from numpy.typing import DTypeLike

#: ``fastmath`` options for sums in any order, which let the compiler use vector instructions.
ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
#: Longest wait for another process that compiles, s, as that process may have been suspended.
PATIENCE_S = 120.0


def record(*fields: tuple[str, DTypeLike] | tuple[str, DTypeLike, tuple[int, ...]]) -> np.dtype[np.void]:
    """Return a record type whose rows have attributes, in compiled code and in plain Python."""
    return np.dtype((np.record, list(fields)))


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function on its first call, like ``numba.njit`` with the same options."""
    if function is None:
        return lambda function: compiled(function, **options)
    # No caller needs the address of a C function, for which Numba would compile another wrapper.
    options |= {"no_cfunc_wrapper": True}
    dispatcher = numba.njit(**options)(function)
    if dispatcher is not function:  # without NUMBA_DISABLE_JIT
        _compile_once(dispatcher)
        with suppress(RuntimeError):  # no folder is writable: each process compiles
            dispatcher.enable_caching()
            _cache_code(dispatcher, Path(function.__code__.co_filename))
    return dispatcher


def inner(function: Callable[..., Any] | None = None, /, *, arrays: bool = False, **options: Any) -> Any:
    """Compile a function that only compiled code calls, without a wrapper for Python.

    Args:
        arrays: whether the function may create or return arrays. Without, it does not count references to its
            arguments, which for a tuple of many arrays would take longer than most functions. The caller holds the
            arrays, so that views of them are safe; an array that is returned would be freed twice.

    Raises:
        TypeError: Python calls the function, or the function returns an array without ``arrays``.
    """
    if function is None:
        return lambda function: inner(function, arrays=arrays, **options)
    name = function.__name__

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"only compiled code can call {name}")

    dispatcher = compiled(function, _nrt=arrays, no_cpython_wrapper=True, **options)
    if dispatcher is not function:
        # Without a wrapper for Python, the dispatcher must not register the function, nor compile it for Python.
        dispatcher._insert = lambda *_, **__: None
        dispatcher._compile_for_args = refuse
        if not arrays:
            add_overload = dispatcher.add_overload

            def add(result: Any) -> None:
                model = dispatcher.targetctx.data_model_manager[result.signature.return_type]
                if model.contains_nrt_meminfo():
                    raise TypeError(f"{name} returns an array, which takes arrays=True")
                add_overload(result)

            dispatcher.add_overload = add
    return dispatcher


def _compile_once(dispatcher: Any) -> None:
    """Make a dispatcher compile once for all constant arguments, and assemble only functions that Python calls."""
    template, compile_one = dispatcher.get_call_template, dispatcher.compile
    codegen = dispatcher.targetctx.codegen()

    def without_literals(args: Any, kws: Any) -> Any:
        # Numba would compile another version for each constant argument.
        return template(
            tuple(map(types.unliteral, args)), {name: types.unliteral(kind) for name, kind in kws.items()}
        )

    def compile_lazily(signature: Any) -> Any:
        with global_compiler_lock:
            before = codegen._library_class
            codegen._library_class = _Library  # also for all functions that this one calls
            try:
                return compile_one(signature)
            finally:
                codegen._library_class = before

    dispatcher.get_call_template, dispatcher.compile = without_literals, compile_lazily


class _Library(JITCodeLibrary):
    """Compiled code that is optimised and assembled when its address is needed; it can be inlined before that."""

    _is_assembled = False

    def _optimize_final_module(self) -> None:
        """Do nothing; ``_assemble`` optimises."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True
        if self._object_caching_enabled and self._compiled_object:  # loaded from disk
            self._assemble()

    def _assemble(self) -> None:
        self._is_assembled = True
        if not self._compiled_object:
            super()._optimize_final_module()
            self._final_module.verify()
        super()._finalize_final_module()
        for variable in self._final_module.global_variables:
            if (environment := lookup_environment(variable.name)) is not None:
                self._codegen.set_env(variable.name, environment)  # type: ignore[attr-defined]

    def get_pointer_to_function(self, name: str) -> Any:
        """Return the address of a function; 0 if the library has no function of this name."""
        self._ensure_finalized()
        if not self._is_assembled:
            if name not in (function.name for function in self.get_defined_functions()):
                return 0
            self._assemble()
        return super().get_pointer_to_function(name)

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """Return the data for the cache: machine code if the library is assembled, else bitcode."""
        self._ensure_finalized()
        if self._is_assembled:
            return super().serialize_using_object_code()  # type: ignore[no-any-return]
        return self.name, "bitcode", self._get_module_for_linking().as_bitcode()

    @property
    def codegen(self) -> _Library:
        """The library itself, as Numba only calls ``set_env`` of its code generator."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Set the address of a function's globals, unless ``_assemble`` will set it."""
        if self._is_assembled:
            self._codegen.set_env(name, environment)  # type: ignore[attr-defined]


def _cache_code(dispatcher: Any, source: Path) -> None:
    """Cache the code that a dispatcher compiles, until a file in the folder of its source changes."""
    kept, compile_one = dispatcher._cache, dispatcher.compile
    kept._cache_file = file = _CacheFile(kept.cache_path, kept._impl.filename_base, digest(source.parent))
    save_overload, lock = kept.save_overload, str(Path(kept.cache_path, f"{source.stem}.lock"))

    def compile_in_turn(signature: Any) -> Any:
        # Numba's own lock comes first, so that all threads take both locks in the same order.
        with global_compiler_lock:
            if kept._index_key(signature, dispatcher.targetctx.codegen()) in file._load_index():
                return compile_one(signature)  # loads the code
            with _alone_with(lock):
                return compile_one(signature)

    def save_if_possible(*compiled: Any) -> None:
        with suppress(OSError):
            save_overload(*compiled)

    def load(signature: Any, target: Any) -> Any:
        # Numba would first import all that it can compile, a third of a second, which machine code does not need.
        rtsys.initialize(target)
        with kept._guard_against_spurious_io_errors():
            return kept._load_overload(signature, target)

    dispatcher.compile, kept.load_overload, kept.save_overload = compile_in_turn, load, save_if_possible


class _CacheFile(IndexDataCacheFile):
    """On-disk cache of one function. Data name their sources, as index and data may come from different processes."""

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        # Numba ignores an index of another version. An index of other sources may name classes that no longer exist.
        self._version = f"{self._version} {self._source_stamp.hex()}"

    def save(self, key: Any, data: Any) -> None:
        """Write compiled code to the cache."""
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        """Return compiled code; None if the cache has none for these sources."""
        stored = super().load(key)
        return stored[2] if stored is not None and stored[:2] == (self._source_stamp, key) else None


#: Lock files of modules whose functions this process already compiles, or for which it no longer waits.
_occupied: set[str] = set()


@contextmanager
def _alone_with(path: str) -> Iterator[None]:
    """Wait until no other process holds a lock file; do not wait if locks fail."""
    if path in _occupied:
        yield
        return
    lock = FileLock(path, timeout=PATIENCE_S)
    with suppress(OSError, NotImplementedError):  # locks cannot be written, or the wait was too long
        lock.acquire()
    _occupied.add(path)
    try:
        yield
    finally:
        if lock.is_locked:
            _occupied.discard(path)
            lock.release()


@cache
def digest(folder: Path) -> bytes:
    """Return a digest of the sources in a folder."""
    sources = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        sources.update(path.read_bytes())
    return sources.digest()
