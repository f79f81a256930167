"""Helpers for tests of refused files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def one_line(error: type[Exception], call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the one-line message with which a call is refused."""
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def refusal(read: Callable[[Path], object], error: type[Exception], path: Path) -> str:
    """Return the one-line message with which a file is refused, without its path."""
    message = one_line(error, read, path)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)
