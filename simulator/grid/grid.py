"""DeepRM's grid of resources and time (HotNets 2016, section 3), for many episodes in lockstep: state and step.

Jobs are numbered within their set, in the order in which they enter; -1 means "none".
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.grid import rules
from simulator.grid.config import GridConfig
from simulator.grid.record import GridRecord
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, OVER, VOID
from workloads.errors import ConfigError, check_instance
from workloads.grid_jobs import JobSets
from workloads.job import WorkloadError

__all__ = [
    "BOOKED", "EMPTY", "NO_ROOM", "OVER", "VOID", "Grid", "GridRecord", "GridState", "Settings",
]  # fmt: skip


_Kind = TypeVar("_Kind", np.int32, np.bool_)


#: More steps than any episode has.
_FOREVER = int(np.iinfo(np.int32).max)

#: Shades of running jobs in a coloured picture: 1/40 .. 39/40.
NUM_COLOURS = 39


class Settings(NamedTuple):
    """Configuration of a grid in the form that compiled code reads."""

    units: int
    slot_width: int
    backlog_columns: int
    resource_width: int
    steps: int
    max_steps: int
    drain: bool
    by_duration: bool
    queue_weight: float
    backlog_weight: float
    coloured: bool
    arrival_column: bool
    first_step: bool
    prompt_leaving: bool
    last_row: bool
    ends_early: bool
    reward_passed_step: bool


class GridState(NamedTuple):
    """State of N episodes; J jobs in the largest set, R resources, m machines, M slots, H rows of horizon."""

    enter: NDArray[np.int32]  # [N, J] step in which the job enters
    duration: NDArray[np.int32]  # [N, J] steps
    demand: NDArray[np.int32]  # [N, J, R] units
    num_jobs: NDArray[np.int32]  # [N]
    clock: NDArray[np.int32]  # [N] steps
    done: NDArray[np.bool_]  # [N]
    next_job: NDArray[np.int32]  # [N] first job that has neither entered nor been dropped
    since_arrival: NDArray[np.int32]  # [N] number of steps since a job entered, at most 10
    free: NDArray[np.int32]  # [N, m, H, R] free units in each step from now on
    slots: NDArray[np.int32]  # [N, M] visible jobs
    backlog: NDArray[np.int32]  # [N, B] jobs behind the visible ones, oldest first
    num_backlog: NDArray[np.int32]  # [N]
    running: NDArray[np.int32]  # [N, J] booked jobs that have not left, in order of booking
    num_running: NDArray[np.int32]  # [N]
    start: NDArray[np.int32]  # [N, J] step in which the job starts; -1 before it is booked
    machine: NDArray[np.int32]  # [N, J] machine of the job; -1 before it is booked
    dropped: NDArray[np.bool_]  # [N, J] jobs dropped because the backlog was full
    colour_until: NDArray[np.int32]  # [N, 39] step from which the shade can be used again
    machine_weights: NDArray[np.float64]  # [m]
    picture: NDArray[Any]  # [N, H, W] uint8 of zeros and ones; float32 if coloured


def _copied(name: str, dtype: type[_Kind]) -> NDArray[_Kind]:
    """Return a property: a copy of the array ``name`` of a grid's state, whose type is ``dtype``."""
    return property(lambda grid: getattr(grid._state, name).copy())  # type: ignore[return-value]


class Grid:
    """Machines on which jobs book units of resources ahead of time, with one episode for each set of jobs.

    An action is a number for each episode. Action ``i * M + j`` books the job in slot j on machine i, from the first
    step at which it fits until its end: no time passes, the reward is 0, and the oldest job of the backlog moves into
    the slot. The last action is void: a step passes. A step also passes if the slot is empty, or if the job does not
    fit into the horizon. When a step passes, finished jobs leave, then the episode may end, then jobs enter: each into
    the first empty slot, else into the backlog; if the backlog is full, the job is dropped.

    The reward of a step depends on ``GridConfig.objective``, and on the jobs in the system while the step passes
    (including booked jobs that have not started), each with the weight of its place (alpha, beta, gamma):

    * ``slowdown``: minus the sum of 1 / duration; over an episode, minus the sum of slowdowns;
    * ``completion``: minus the number of jobs; over an episode, minus the sum of completion times.

    Args:
        config: the machines and the queue.
        jobs: sets of jobs; episode n runs set n.

    Raises:
        WorkloadError: a job is too large for the machines or the picture.

    Examples:
        >>> from workloads.grid_jobs import JobSets
        >>> jobs = JobSets.of([[(0, 2, (6, 1)), (0, 1, (6, 1))]], steps=2)  # two jobs: enters, lasts, needs
        >>> grid = Grid(GridConfig(), jobs)
        >>> grid.step([0]), grid.step([1]), grid.done  # the second is booked behind the first
        (array([0.]), array([0.]), array([False]))
        >>> [float(grid.step([10])[0]) for _ in range(3)]
        [-1.5, -1.5, -1.0]
        >>> grid.done, grid.record().slowdown().tolist()
        (array([ True]), [[1.0, 3.0]])
    """

    def __init__(self, config: GridConfig, jobs: JobSets) -> None:
        check_instance(config, GridConfig, "config", ConfigError)
        check_instance(jobs, JobSets, "jobs", ConfigError)
        _check_jobs(config, jobs)
        self.config = config
        self.jobs = jobs
        self._settings = _settings_of(config, jobs.steps)
        self._rewards = np.zeros(len(jobs), dtype=np.float64)
        self.reset()

    def __len__(self) -> int:
        """The number of episodes, N."""
        return len(self.jobs)

    def reset(self) -> None:
        """Begin all episodes again."""
        self._state = _state_of(self.config, self.jobs)
        self._outcomes = np.full(len(self), VOID, dtype=np.int8)
        rules.begin(self._state, self._settings)

    def step(self, actions: ArrayLike) -> NDArray[np.float64]:
        """Carry out one action in each episode.

        Args:
            actions: integers [N] from 0 to m * M; ignored in episodes that are over.

        Returns:
            The rewards, float64 [N]; 0 for episodes that were over.

        Raises:
            ValueError: the number of actions is not N, or an action is out of range.
        """
        chosen = np.asarray(actions)
        if chosen.shape != (len(self),) or not np.issubdtype(chosen.dtype, np.integer):
            raise ValueError(
                f"expected {len(self)} actions, whole numbers, got {chosen.dtype} {chosen.shape}"
            )
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < self.config.num_actions:
            raise ValueError(f"actions must be 0 .. {self.config.num_actions - 1}")
        rules.act(
            self._state, self._settings, chosen.astype(np.int64, copy=False), self._rewards, self._outcomes
        )
        return self._rewards.copy()

    done = _copied("done", np.bool_)
    """Mask of episodes that are over, bool [N]."""
    clock = _copied("clock", np.int32)
    """Number of steps that have passed, int32 [N]."""

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """Outcome of the last action, int8 [N]: ``BOOKED``, ``NO_ROOM``, ``EMPTY``, ``VOID`` or ``OVER``."""
        return self._outcomes.copy()

    @property
    def pictures(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """States as pictures, uint8 [N, H, W], or float32 if coloured; the next step changes the arrays in place."""
        return self._state.picture

    slots = _copied("slots", np.int32)
    """Visible jobs, as numbers in their set, int32 [N, M]; -1 for an empty slot."""

    @property
    def slot_duration(self) -> NDArray[np.int32]:
        """Durations of the visible jobs in steps, int32 [N, M]; 0 for an empty slot."""
        return self._of_slots(self.jobs.duration)

    @property
    def slot_demand(self) -> NDArray[np.int32]:
        """Units that the visible jobs need, int32 [N, M, R]; 0 for an empty slot."""
        return self._of_slots(self.jobs.demand)

    def _of_slots(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Select the values of the visible jobs, [N, M, ..], from [N, J, ..]; 0 for an empty slot."""
        slots = self._state.slots
        result = np.zeros((*slots.shape, *values.shape[2:]), dtype=np.int32)
        episode, slot = np.nonzero(slots >= 0)
        result[episode, slot] = values[episode, slots[episode, slot]]
        return result

    free_units = _copied("free", np.int32)
    """Free units in each step from now on, int32 [N, m, H, R]."""
    num_backlog = _copied("num_backlog", np.int32)
    """Number of jobs behind the visible ones, int32 [N]."""
    num_running = _copied("num_running", np.int32)
    """Number of booked jobs that have not left, int32 [N]."""

    def startable(self) -> NDArray[np.bool_]:
        """Return the mask of visible jobs that can start at once on each machine, bool [N, m, M]."""
        shape = len(self), self.config.machines, self.config.visible_jobs
        return self.action_mask(now=True)[:, :-1].reshape(shape)

    def action_mask(self, *, now: bool = False) -> NDArray[np.bool_]:
        """Return the mask of allowed actions, bool [N, m * M + 1]: jobs that can be booked, and void.

        Args:
            now: mark only jobs that can start at once.
        """
        jobs = np.empty((len(self), self.config.machines, self.config.visible_jobs), dtype=np.bool_)
        rules.bookable(self._state, self._settings, now, jobs)
        void = np.ones((len(self), 1), dtype=np.bool_)
        return np.concatenate([jobs.reshape(len(self), -1), void], axis=1)

    def record(self) -> GridRecord:
        """Return the results of the episodes so far."""
        state = self._state
        return GridRecord(
            self.config,
            self.jobs,
            start=state.start.copy(),
            machine=state.machine.copy(),
            dropped=state.dropped.copy(),
            num_entered=state.next_job.copy(),
            clock=state.clock.copy(),
        )


def _settings_of(config: GridConfig, steps: int) -> Settings:
    """Return a configuration for compiled code; ``steps`` is the number of steps in which jobs may enter."""
    same = ("units", "slot_width", "backlog_columns", "resource_width", "drain", "arrival_column")
    return Settings(
        steps=steps,
        max_steps=_FOREVER if config.max_steps is None else min(config.max_steps, _FOREVER),
        by_duration=config.objective == "slowdown",
        queue_weight=float(config.queue_weight),
        backlog_weight=float(config.backlog_weight),
        coloured=config.picture == "coloured",
        **{name: getattr(config, name) for name in same},
        **vars(config.semantics),
    )


def _state_of(config: GridConfig, jobs: JobSets) -> GridState:
    """Return the state of empty grids, before the first step."""
    episodes, most = jobs.enter.shape
    machines, horizon, resources = config.machines, config.horizon, config.num_resources
    widths = {
        "slots": config.visible_jobs,
        "backlog": config.backlog,
        "running": most,
        "start": most,
        "machine": most,
    }
    lists = {name: np.full((episodes, width), -1, dtype=np.int32) for name, width in widths.items()}
    counts = ("clock", "next_job", "since_arrival", "num_backlog", "num_running")
    whole: dict[str, Any] = lists | {name: np.zeros(episodes, dtype=np.int32) for name in counts}
    return GridState(
        enter=jobs.enter,
        duration=jobs.duration,
        demand=jobs.demand,
        num_jobs=jobs.num_jobs,
        done=np.zeros(episodes, dtype=np.bool_),
        free=np.full((episodes, machines, horizon, resources), config.units, dtype=np.int32),
        dropped=np.zeros((episodes, most), dtype=np.bool_),
        colour_until=np.zeros((episodes, NUM_COLOURS), dtype=np.int32),
        machine_weights=np.array(config.weights, dtype=np.float64),
        picture=np.zeros((episodes, *config.picture_shape), "u1" if config.picture == "binary" else "f4"),
        **whole,
    )


def _check_jobs(config: GridConfig, jobs: JobSets) -> None:
    """Raise a ``WorkloadError`` if a job is too large for the grid."""
    if jobs.num_resources != config.num_resources:
        raise WorkloadError(
            f"the jobs need {jobs.num_resources} resources, the grid has {config.num_resources}"
        )
    # A job as long as the horizon could never be booked where the last row must not be used.
    longest = config.horizon if config.semantics.last_row else config.horizon - 1
    demand = jobs.demand.max(axis=2, initial=0)
    for what, sizes, most in (
        ("lasts {} steps, longer than the horizon lets it be booked: {}", jobs.duration, longest),
        ("needs {} units of a resource, a machine has {}", demand, config.units),
        ("needs {} units of a resource, its picture has slot_width = {} columns", demand, config.slot_width),
    ):
        too_large = np.argwhere(sizes > most)
        if too_large.size:
            which, job = too_large[0].tolist()
            raise WorkloadError(f"job {job} of set {which} {what.format(sizes[which, job], most)}")
