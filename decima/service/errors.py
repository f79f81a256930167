"""Startup error of the service, and reader of files with secrets."""

from __future__ import annotations

import os
import stat
from io import TextIOWrapper
from pathlib import Path

from workloads.errors import DecimaError
from workloads.reading import open_regular

__all__ = ["ServeError", "read_secret"]


class ServeError(DecimaError, OSError):
    """The service cannot start: an address is in use, or a token or key file is unusable. The message is one line."""


def read_secret(path: Path, what: str, most: int) -> str:
    """Return the text of a file that only its owner may read.

    Args:
        path: file in UTF-8.
        what: description of the file, for error messages.
        most: maximum length, characters.

    Raises:
        ServeError: the file cannot be read, is readable by others, or has more than ``most`` characters.
    """
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ServeError(f"{path}: other users can read this {what}: chmod 600 it")
            text = file.read(most + 1)
    except UnicodeDecodeError:
        raise ServeError(f"{path}: this {what} is not text in UTF-8") from None
    except OSError as error:
        if isinstance(error, ServeError):
            raise
        raise ServeError(f"{path}: this {what} cannot be read: {error.strerror}") from None
    if len(text) > most:
        raise ServeError(f"{path}: this {what} has more than {most} characters")
    return text
