"""Custom classes of users, which are named as ``module:Class``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.errors import DecimaError

__all__ = ["custom_code", "is_custom"]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_custom(name: str) -> bool:
    """Return whether a name has the form ``module:Class``."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def custom_code(failure: str, error: type[DecimaError]) -> Iterator[None]:
    """Run a user's code. Modules in the current folder can be imported; exceptions become one-line errors.

    Args:
        failure: beginning of the error message.
        error: exception class.
    """
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    except BaseException as raised:  # including SystemExit, which would end the program silently
        if isinstance(raised, KeyboardInterrupt):
            raise
        reason = (str(raised).splitlines() or [""])[0]
        raise error(f"{failure}: {type(raised).__name__}: {reason}") from None
    finally:
        with suppress(ValueError):  # the code may have changed the path
            sys.path.remove(folder)
