"""Parity with published simulators: read a recorded episode from a file, of a cluster or of a grid, and replay it.

Episodes on grids were recorded from the public DeepRM code: actions, states and rewards must be equal. Episodes on
clusters: ``simulator.cluster.parity``.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json

from simulator.cluster import parity as cluster
from simulator.cluster.parity import TOLERANCE, Recording, first_difference
from simulator.grid.config import DEEPRM, GridConfig
from simulator.grid.grid import Grid
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, VOID
from workloads.errors import DecimaError
from workloads.grid_jobs import JobSets
from workloads.reading import LARGEST, all_of, check_num_values, open_regular

#: Number of errors from which on none is described: descriptions of all errors would fill the memory.
_MOST_ERRORS = 10_000
#: Letters of action outcomes in recordings.
_OUTCOMES = {BOOKED: "A", NO_ROOM: "F", EMPTY: "E", VOID: "V"}

#: Meanings of the recorded fields that give the state after each action.
_STATE = {
    "status": "the outcome",
    "clock_after": "the clock",
    "running_list_after": "running jobs",
    "slots_filled_after": "filled slots",
    "backlog_after": "jobs in the backlog",
}

_Count = Annotated[int, Field(ge=0, lt=10**6)]


class _Params(BaseModel):
    num_res: _Count
    res_slot: _Count
    num_nw: _Count
    max_job_size: _Count
    time_horizon: _Count
    backlog_size: _Count
    simu_len: _Count
    episode_max_length: _Count
    end: Literal["all_done", "no_new_job"]
    delay_penalty: float
    hold_penalty: float
    dismiss_penalty: float


class _JobIn(BaseModel):
    arrival_step: _Count
    duration: _Count
    res: list[_Count]


class _JobOut(BaseModel):
    id: int
    enter: int
    duration: int
    res: list[int]
    start: int
    finish: int


class GridRecording(BaseModel):
    """A recorded episode. Lists have an entry per action; fields that a replay does not need are ignored."""

    params: _Params
    jobs_in: list[_JobIn]
    jobs_out: list[_JobOut]  # not dropped, in order of entering; start and finish are -1 if never booked
    actions: list[_Count]
    status: str
    rewards: list[float]
    clock_after: list[int]
    running_list_after: list[int]
    slots_filled_after: list[int]
    backlog_after: list[int]
    done: bool
    #: SHA-256 of the first picture and of the picture after each action, by format.
    obs_hashes: list[dict[str, str]] | None = None

    def config(self) -> GridConfig:
        """Return the configuration of the recorded grid, with the most detailed picture."""
        params = self.params
        return GridConfig(
            num_resources=params.num_res,
            units=params.res_slot,
            visible_jobs=params.num_nw,
            slot_width=params.max_job_size,
            horizon=params.time_horizon,
            backlog=params.backlog_size,
            max_steps=params.episode_max_length,
            drain=params.end == "all_done",
            machine_weights=(-params.delay_penalty,),
            queue_weight=-params.hold_penalty,
            backlog_weight=-params.dismiss_penalty,
            picture="coloured",
            arrival_column=True,
            semantics=DEEPRM,
        )

    def jobs(self) -> JobSets:
        """Return the recorded jobs as one set."""
        return JobSets.of(
            [[(job.arrival_step, job.duration, tuple(job.res)) for job in self.jobs_in]], self.params.simu_len
        )


def differences(recording: GridRecording) -> Iterator[str]:
    """Replay a recording; yield one line for the first action that differs, or for different jobs.

    Raises:
        WorkloadError: the recorded jobs are invalid.
        ConfigError: the recorded grid is invalid.
    """
    grid = Grid(recording.config(), recording.jobs())
    hashes = recording.obs_hashes
    if hashes is not None and (difference := _picture_difference(grid, hashes[0] if hashes else {})):
        yield f"at the start: {difference}"
        return
    columns = {name: getattr(recording, name) for name in ("rewards", *_STATE)}
    if hashes is not None:
        columns["obs_hashes"] = hashes[1:]
    for name, column in columns.items():
        if len(column) != len(recording.actions):
            yield f"{name}: {len(column)} entries after {len(recording.actions)} actions"
            return
    rows = zip(*(columns[name] for name in _STATE), strict=True)
    for index, (action, reward, row) in enumerate(
        zip(recording.actions, recording.rewards, rows, strict=True)
    ):
        if grid.done[0]:
            yield f"action {index}: the replay is over, the recording continues"
            return
        if action >= grid.config.num_actions:
            yield f"action {index}: there is no action {action}"
            return
        replayed = float(grid.step(np.array([action]))[0])
        state = (
            _OUTCOMES[int(grid.outcomes[0])],
            int(grid.clock[0]),
            int(grid.num_running[0]),
            int((grid.slots[0] >= 0).sum()),
            int(grid.num_backlog[0]),
        )
        for name, one, other in zip(_STATE.values(), row, state, strict=True):
            if one != other:
                yield f"action {index}: {name}: {other}, recorded {one}"
                return
        if not abs(replayed - reward) <= TOLERANCE:
            yield f"action {index}: reward {replayed:.12g}, recorded {reward:.12g}"
            return
        if hashes is not None and (difference := _picture_difference(grid, hashes[index + 1])):
            yield f"action {index}: {difference}"
            return
    if bool(grid.done[0]) != recording.done:
        one, other = ("over", "not over") if recording.done else ("not over", "over")
        yield f"after {len(recording.actions)} actions: the recording is {one}, the replay is {other}"
    jobs = _jobs_out(grid)
    recorded_jobs = [
        (job.id, job.enter, job.duration, *job.res, job.start, job.finish) for job in recording.jobs_out
    ]
    if recorded_jobs != jobs:
        yield f"a job's number, enter, duration, demands, start and finish: {first_difference(recorded_jobs, jobs)}"


def _jobs_out(grid: Grid) -> list[tuple[int, ...]]:
    """Return (number, enter, duration, demands, start, finish) of jobs that were not dropped, in order of entering."""
    record = grid.record()
    table = record.table()
    table = table[~table["dropped"] & (table["job"] < record.num_entered[0])]
    demands = [f"demand_{resource}" for resource in range(grid.config.num_resources)]
    columns = table[["enter", "duration", *demands, "start", "finish"]].fillna(-1).astype(int)
    return [(index, *job) for index, job in enumerate(columns.itertuples(index=False, name=None))]


def _picture_difference(grid: Grid, recorded: dict[str, str]) -> str | None:
    """Return a line if the hash of the current picture differs from the recorded one."""
    coloured = np.ascontiguousarray(grid.pictures[0], dtype="<f4")
    for name, picture in _pictures(coloured).items():
        if recorded.get(name) != hashlib.sha256(picture.tobytes()).hexdigest():
            return f"the picture {name!r} differs"
    return None


def _pictures(coloured: NDArray[np.float32]) -> dict[str, NDArray[np.float32] | NDArray[np.uint8]]:
    """Return the picture in the formats of recordings: with and without colours, and without the last column."""
    inside, last = coloured[:, :-1], coloured[:, -1:]
    plain = (inside > 0).astype("<f4")
    return {
        "f32": np.concatenate([plain, last], axis=1),
        "f32_colour": coloured,
        "f32_noextra": plain,
        "u8_noextra": plain.astype(np.uint8),
    }


_Model = TypeVar("_Model", bound=BaseModel)

#: A function that yields a line for each difference between a recording and its replay.
Replay = Callable[[Recording], Iterator[str]]


class RecordingError(DecimaError, ValueError):
    """A file is not a recorded episode. The message is one line that names the file and the place."""


def _document(path: Path) -> Any:
    """Read a JSON document, gzipped if the file name ends in ``.gz``."""
    try:
        with open_regular(path, LARGEST) as file:
            data = all_of(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file)  # type: ignore[arg-type]
        check_num_values(data)
        return from_json(data)
    except ValueError as error:
        raise RecordingError(f"{path}: Invalid JSON: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {reason}") from None


def _checked(model: type[_Model], document: Any, path: Path) -> _Model:
    """Validate a document as an object of a model."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        if error.error_count() > _MOST_ERRORS:
            raise RecordingError(f"{path}: {error.error_count():,} entries are malformed") from None
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
        agent: function that replays an episode of a trained agent, such as ``AgentReplay(..).differences`` of
            ``decima.policy.parity``.

    Returns:
        One line: the first difference, or an error in the file; None if the replay matches the recording.
    """
    try:
        recording = read_recording(path)
        if isinstance(recording, GridRecording):
            lines = differences(recording)
        elif not recording.by_agent:
            lines = cluster.differences(recording)
        elif agent is not None:
            lines = agent(recording)
        else:
            raise RecordingError("recorded from a trained agent: its network is needed (--weights FILE.npz)")
        return next(lines, None)
    except DecimaError as error:
        return str(error).removeprefix(f"{path}: ")
