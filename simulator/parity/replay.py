"""Read a recorded episode from a file, of a cluster or of a grid, and replay it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from simulator.parity import cluster, grid
from simulator.parity.cluster import Recording
from simulator.parity.grid import GridRecording
from workloads.errors import DecimaError
from workloads.reading import all_of, open_regular

__all__ = ["RecordingError", "first_difference_in", "read_recording"]

_Model = TypeVar("_Model", bound=BaseModel)

#: A function that yields a line for each difference between a recording and its replay.
Replay = Callable[[Recording], Iterator[str]]


class RecordingError(DecimaError, ValueError):
    """A file is not a recorded episode. The message is one line that names the file and the place."""


def _document(path: Path) -> Any:
    """Read a JSON document, gzipped if the file name ends in ``.gz``.

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


def _checked(model: type[_Model], document: Any, path: Path) -> _Model:
    """Validate a document as an object of a model.

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


def read_recording(path: Path) -> Recording | GridRecording:
    """Read a recorded episode of a cluster or of a grid from JSON, gzipped if the file name ends in ``.gz``.

    Raises:
        RecordingError: the file cannot be read, or is not a recorded episode.
    """
    document = _document(path)
    if isinstance(document, dict) and "jobs_in" in document:
        return _checked(GridRecording, document, path)
    return _checked(Recording, document, path)


def first_difference_in(path: Path, agent: Replay | None = None) -> str | None:
    """Replay the episode in a file, and describe the first difference.

    Args:
        path: the file.
        agent: function that replays an episode of a trained agent, such as ``AgentReplay(..).differences`` of
            ``decima.policy.parity``.

    Returns:
        One line: the first difference, or an error in the file; None if the replay matches the recording.
    """
    try:
        recording = read_recording(path)
        if isinstance(recording, GridRecording):
            found = grid.differences(recording)
        elif not recording.by_agent:
            found = cluster.differences(recording)
        elif agent is not None:
            found = agent(recording)
        else:
            raise RecordingError("recorded from a trained agent: its network is needed (--weights FILE.npz)")
        return next(found, None)
    except DecimaError as error:
        return str(error).removeprefix(f"{path}: ")
