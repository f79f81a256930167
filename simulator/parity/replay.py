"""Replay the recorded episode in a file, of a cluster or of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from simulator.parity import cluster, grid
from simulator.parity.cluster import Recording
from simulator.parity.grid import GridRecording
from simulator.parity.recording import RecordingError, checked, read_document
from workloads.errors import DecimaError

__all__ = ["first_difference_in", "read_recording"]

#: Yields a line per difference between a recording and its replay.
Replay = Callable[[Recording], Iterator[str]]


def read_recording(path: Path) -> Recording | GridRecording:
    """Read a recorded episode of a cluster or of a grid: JSON, gzipped if the name ends in ``.gz``.

    Raises:
        RecordingError: the file cannot be read or is not a recorded episode.
    """
    document = read_document(path)
    if isinstance(document, dict) and "jobs_in" in document:
        return checked(GridRecording, document, path)
    return checked(Recording, document, path)


def first_difference_in(path: Path, agent: Replay | None = None) -> str | None:
    """Replay the episode in a file.

    Args:
        path: the file.
        agent: replays episodes of a trained agent, such as ``decima.policy.parity.AgentReplay(..).differences``.

    Returns:
        One line: the first difference, or an error in the file; None if the episode matches.
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
