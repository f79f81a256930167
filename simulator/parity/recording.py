"""Read files of recorded episodes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from workloads.errors import DecimaError
from workloads.reading import all_of, open_regular

__all__ = ["TOLERANCE", "RecordingError", "checked", "first_difference", "read_document"]

#: Rewards may be summed in another order.
TOLERANCE = 1e-9

_Model = TypeVar("_Model", bound=BaseModel)


class RecordingError(DecimaError, ValueError):
    """A file that is not a recorded episode. The message is one line that names the file and the place."""


def read_document(path: Path) -> Any:
    """Read a JSON file, gzipped if its name ends in ``.gz``.

    Raises:
        RecordingError: the file cannot be read, or is not JSON.
    """
    try:
        with open_regular(path) as file:
            return from_json(all_of(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file))  # type: ignore[arg-type]
    except ValueError as error:
        raise RecordingError(f"{path}: Invalid JSON: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {reason}") from None


def checked(model: type[_Model], document: Any, path: Path) -> _Model:
    """Validate a document as an object of the model.

    Raises:
        RecordingError: the document is invalid.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        raise RecordingError(f"{path}: {f'{place}: ' if place else ''}{message}") from None


def first_difference(recorded: Any, replayed: Any) -> str:
    """Describe the first difference of two sequences."""
    for one, other in zip(recorded, replayed, strict=False):
        if one != other:
            return f"{other}, recorded {one}"
    return f"{len(replayed)} of them, recorded {len(recorded)}"
