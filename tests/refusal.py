"""What is common to tests of files that are refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


def refusal(read: Callable[[Path], object], error: type[Exception], path: Path) -> str:
    """The one-line message with which a file is refused, without its path."""
    with pytest.raises(error) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def write_malicious_checkpoint(path: Path, proof: Path, write: str, checkpoint_format: str) -> None:
    """A file of ``torch`` or ``pickle`` that creates ``proof`` where its content is executed."""
    document = {"format": checkpoint_format, "version": 1, "config": Malicious(proof)}
    if write == "torch":
        torch.save(document, path)
    else:
        path.write_bytes(pickle.dumps(document))
