"""Token that a driver must send; it is kept in a file that only its owner can read.

The Spark plugin looks in the same place: ``.decima/token`` in ``$HOME``, else in the user's home directory. Neither
side reads a default file that belongs to another user, as happens where sudo keeps ``$HOME``.
"""

from __future__ import annotations

import os
import secrets
import stat
from io import TextIOWrapper
from pathlib import Path

from decima.service.server import ServeError
from workloads.reading import open_regular

__all__ = ["DEFAULT_TOKEN_FILE", "read_token"]

DEFAULT_TOKEN_FILE = Path("~/.decima/token")
#: Longest token, characters.
MOST_CHARACTERS = 256


def read_token(path: Path) -> str:
    """Read the token file; create it if it is absent.

    Raises:
        ServeError: the file cannot be read or made, others can read it, the default file is another user's, or the file
            holds no token.
    """
    default = path == DEFAULT_TOKEN_FILE
    path = path.expanduser()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if default and found.st_uid != os.geteuid():
                raise ServeError(
                    f"{path}: this token file belongs to another user; --token-file names another (is HOME right?)"
                )
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise ServeError(f"{path}: others than its owner can read this token file: chmod 600 it")
            token = file.read(MOST_CHARACTERS + 2).strip()
    except UnicodeDecodeError:
        token = ""
    except OSError as error:
        if isinstance(error, ServeError):
            raise
        raise ServeError(f"{path}: no token file can be read or made there: {error.strerror}") from None
    if not token or len(token) > MOST_CHARACTERS or not token.isprintable():
        raise ServeError(f"{path}: expected a token of 1 to {MOST_CHARACTERS} characters in one line")
    return token
