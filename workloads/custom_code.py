"""Run the code of users, such as the import of a custom class; its exceptions become one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.errors import DecimaError

__all__ = ["custom_code"]


@contextmanager
def custom_code(failure: str, error: type[DecimaError], *, in_folder: bool = True) -> Iterator[None]:
    """Run a user's code; exceptions become one-line errors.

    Args:
        failure: beginning of the error message.
        in_folder: whether the current folder is searched for modules first.
    """
    folder = str(Path.cwd())
    if in_folder:
        sys.path.insert(0, folder)
    try:
        yield
    except BaseException as raised:  # including SystemExit, which would end the program silently
        if isinstance(raised, KeyboardInterrupt):
            raise
        reason = (str(raised).splitlines() or [""])[0]
        raise error(f"{failure}: {type(raised).__name__}: {reason}") from None
    finally:
        if in_folder:
            with suppress(ValueError):  # the code may have changed the path
                sys.path.remove(folder)
