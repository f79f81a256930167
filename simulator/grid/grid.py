"""DeepRM's grid (HotNets 2016, section 3) for many episodes in lock-step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import ConfigError
from simulator.grid import rules
from simulator.grid.config import GridConfig
from simulator.grid.record import GridRecord
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, OVER, VOID
from simulator.grid.state import settings_of, state_of
from workloads.errors import check_instance
from workloads.grid_jobs import JobSets
from workloads.job import WorkloadError

__all__ = ["BOOKED", "EMPTY", "NO_ROOM", "OVER", "VOID", "Grid", "check_jobs"]


class Grid:
    """Machines on which jobs book units of resources, ahead of time; one episode for each set of jobs.

    An action, of each episode, is a number. ``i * M + j`` books the job in slot j on machine i, from the first step
    on at which it fits until its end: time stands still, the reward is 0, and the backlog's oldest job moves into the
    slot. The last number is void: a step passes. So it does if the slot is empty or the job fits nowhere in
    the horizon. When a step passes, finished jobs leave, then the episode may end, then jobs enter: each into
    the first empty slot, else into the backlog; if that is full it is dropped.

    Rewards of a step, by ``GridConfig.objective``, over the jobs that are in the system while it passes, those that are
    booked but have not started included, each weighted by where it is (alpha, beta, gamma):

    * ``slowdown``: minus the sum of 1 / duration, so that an episode adds up to minus the sum of slowdowns;
    * ``completion``: minus the number of jobs, which adds up to minus the sum of completion times;
    * ``makespan``: -1 if there is any job or one is to come, without weights;
    * ``utilisation``: the share of all units that is in use during the step, without weights.

    Args:
        config: the machines and the queue.
        jobs: what enters; episode n runs set n.

    Raises:
        WorkloadError: jobs that the machines or the picture have no room for.

    Attributes:
        config: as given.
        jobs: as given.

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
        check_jobs(config, jobs)
        self.config = config
        self.jobs = jobs
        self._settings = settings_of(config, jobs.steps)
        self._rewards = np.zeros(len(jobs), dtype=np.float64)
        self.reset()

    def __len__(self) -> int:
        """The number of episodes, N."""
        return len(self.jobs)

    def reset(self) -> None:
        """Begin all episodes anew."""
        self._state = state_of(self.config, self.jobs)
        self._outcomes = np.full(len(self), VOID, dtype=np.int8)
        rules.begin(self._state, self._settings)

    def step(self, actions: ArrayLike) -> NDArray[np.float64]:
        """Carry out one action in each episode.

        Args:
            actions: whole numbers [N] of 0 .. m * M; those of episodes that are over are not looked at.

        Returns:
            The rewards, float64 [N]; 0 for episodes that were over.

        Raises:
            ValueError: not N actions, or one out of range.
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

    @property
    def done(self) -> NDArray[np.bool_]:
        """Which episodes are over, bool [N]."""
        return self._state.done.copy()

    @property
    def clock(self) -> NDArray[np.int32]:
        """Steps that have passed, int32 [N]."""
        return self._state.clock.copy()

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """What became of the last actions, int8 [N]: ``BOOKED``, ``NO_ROOM``, ``EMPTY``, ``VOID`` or ``OVER``."""
        return self._outcomes.copy()

    @property
    def pictures(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """The states as pictures [N, H, W], in memory that the next step changes; see ``GridConfig``.

        uint8, zeros and ones; float32 if coloured.
        """
        return self._state.picture

    @property
    def slots(self) -> NDArray[np.int32]:
        """The visible jobs, as numbers in their set, int32 [N, M]; -1 where there is none."""
        return self._state.slots.copy()

    @property
    def slot_duration(self) -> NDArray[np.int32]:
        """Their durations in steps, int32 [N, M]; 0 where there is none."""
        return self._of_slots(self.jobs.duration)

    @property
    def slot_demand(self) -> NDArray[np.int32]:
        """The units that they need, int32 [N, M, R]; 0 where there is none."""
        return self._of_slots(self.jobs.demand)

    def _of_slots(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """The entries of the visible jobs, [N, M, ..], of [N, J, ..]; 0 where there is none."""
        slots = self._state.slots
        result = np.zeros((*slots.shape, *values.shape[2:]), dtype=np.int32)
        episode, slot = np.nonzero(slots >= 0)
        result[episode, slot] = values[episode, slots[episode, slot]]
        return result

    @property
    def free_units(self) -> NDArray[np.int32]:
        """Units that are not booked in each step from now on, int32 [N, m, H, R]."""
        return self._state.free.copy()

    @property
    def num_backlog(self) -> NDArray[np.int32]:
        """Jobs behind the visible ones, int32 [N]."""
        return self._state.num_backlog.copy()

    @property
    def num_running(self) -> NDArray[np.int32]:
        """Jobs that are booked and not gone, int32 [N]."""
        return self._state.num_running.copy()

    def startable(self) -> NDArray[np.bool_]:
        """Which visible jobs could start at once, on which machine, bool [N, m, M]."""
        return self._bookable(now=True)

    def action_mask(self, *, now: bool = False) -> NDArray[np.bool_]:
        """Which actions do what they say, bool [N, m * M + 1]: jobs that can be booked, and void.

        Args:
            now: only jobs that can start at once.
        """
        jobs = self._bookable(now).reshape(len(self), -1)
        return np.concatenate([jobs, np.ones((len(self), 1), dtype=np.bool_)], axis=1)

    def _bookable(self, now: bool) -> NDArray[np.bool_]:
        shape = len(self), self.config.machines, self.config.visible_jobs
        mask = np.empty(shape, dtype=np.bool_)
        rules.bookable(self._state, self._settings, now, mask)
        return mask

    def record(self) -> GridRecord:
        """What happened so far."""
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


def check_jobs(config: GridConfig, jobs: JobSets) -> None:
    """Raise a ``WorkloadError`` unless there is room for each job."""
    if jobs.num_resources != config.num_resources:
        raise WorkloadError(
            f"the jobs need {jobs.num_resources} resources, the grid has {config.num_resources}"
        )
    # A job of the whole horizon could never be booked where the last row may not be used.
    longest = config.horizon if config.semantics.last_row else config.horizon - 1
    for what, sizes, most in (
        ("lasts {} steps, longer than the horizon lets it be booked: {}", jobs.duration, longest),
        ("needs {} units of a resource, a machine has {}", jobs.demand.max(axis=2, initial=0), config.units),
        (
            "needs {} units of a resource, its picture has slot_width = {} columns",
            jobs.demand.max(axis=2, initial=0),
            config.slot_width,
        ),
    ):
        too_large = np.argwhere(sizes > most)
        if too_large.size:
            which, job = too_large[0].tolist()
            raise WorkloadError(f"job {job} of set {which} {what.format(sizes[which, job], most)}")
