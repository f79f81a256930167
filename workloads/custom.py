"""Custom classes of users, named ``module:Class``: recognise their names, and run their code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.errors import DecimaError

__all__ = ["custom_code", "is_custom"]

#: Name of a user's class.
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_custom(name: str) -> bool:
    """Return whether a name has the form ``module:Class``."""
    return _NAME.fullmatch(name) is not None


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
