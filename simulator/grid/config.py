"""Configuration of a grid: machines, queue, picture of the state, reward, and semantics of the paper or of its code."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from workloads.errors import ConfigError, check_all, check_instance, check_number, check_one_of, check_whole

__all__ = ["DEEPRM", "PAPER", "GridConfig", "GridSemantics", "Objective", "Picture"]

Objective = Literal["slowdown", "completion", "makespan", "utilisation"]
Picture = Literal["binary", "coloured"]


@dataclass(frozen=True)
class GridSemantics:
    """Differences between the DeepRM paper and its public code, one switch each.

    The defaults follow the paper, ``DEEPRM`` the public code. Two more differences are elsewhere: job sizes
    (``workloads.DISTRIBUTIONS``) and the rounding of slowdowns (``GridRecord.slowdown``).
    """

    first_step: bool = True
    """Jobs of step 0 enter the queue; else they never do."""
    prompt_leaving: bool = True
    """A finished job leaves the list of running jobs at once; else the second of two finished neighbours in the list
    stays one step longer, and costs the reward of that step."""
    last_row: bool = True
    """A booking may use the last row of the horizon; else it must end before this row."""
    ends_early: bool = True
    """An episode ends when all its jobs are finished; else not before the last step in which a job may enter."""
    reward_passed_step: bool = True
    """The reward of a step counts the jobs in the system while the step passes; else the jobs after it, including new
    jobs, so that the first step never counts."""


PAPER = GridSemantics()
DEEPRM = GridSemantics(**{switch.name: False for switch in fields(GridSemantics)})


@dataclass(frozen=True)
class GridConfig:
    """Machines, each with a grid of resources and time, and their queue (DeepRM, HotNets 2016, section 3).

    The picture of a state has ``horizon`` rows, one for each step from now on. Its columns are, for each resource, the
    units of each machine and ``slot_width`` columns for each visible job; then the backlog; then, with
    ``arrival_column``, the steps since the last arrival. With the defaults it is 20 x 223.

    Args:
        num_resources: number of resources (CPU, memory, ..), R.
        units: units of each resource on each machine, C.
        visible_jobs: slots of the queue whose jobs can be chosen, M.
        slot_width: columns of a visible job in the picture: the most units of a resource that a job may need.
        horizon: steps that can be booked ahead, and rows of the picture, H: the longest duration of a job.
        backlog: number of jobs that may wait behind the visible jobs, B; further jobs are dropped.
        machines: number of machines, m.
        max_steps: the episode ends when the clock exceeds this; None: when all jobs are finished.
        drain: whether the episode goes on until all jobs are finished; else it ends with the last step in which a job
            may enter, whatever ``max_steps``.
        objective: what the rewards add up to, see ``Grid``.
        machine_weights: alpha; weight in rewards of the jobs on each machine; by default 1 each.
        queue_weight: beta; weight in rewards of jobs in the visible slots.
        backlog_weight: gamma; weight in rewards of jobs in the backlog.
        picture: ``binary`` (a unit is taken or free) or ``coloured`` (a shade for each running job).
        arrival_column: whether the picture shows the number of steps since the last arrival, at most 10: as that many
            ones from the top; in a coloured picture as a tenth of the number in all rows, like the public code.
        semantics: ``PAPER``, ``DEEPRM`` or other switches.

    Raises:
        ConfigError: a setting is out of range, or the picture is too large.
    """

    num_resources: int = 2
    units: int = 10
    visible_jobs: int = 10
    slot_width: int = 10
    horizon: int = 20
    backlog: int = 60
    machines: int = 1
    max_steps: int | None = None
    drain: bool = True
    objective: Objective = "slowdown"
    machine_weights: tuple[float, ...] = ()
    queue_weight: float = 1.0
    backlog_weight: float = 1.0
    picture: Picture = "binary"
    arrival_column: bool = False
    semantics: GridSemantics = PAPER

    def __post_init__(self) -> None:
        for name in _SIZES:
            size = check_whole(getattr(self, name), name, ConfigError, int(name != "backlog"), _MOST)
            object.__setattr__(self, name, size)
        if self.max_steps is not None:
            check_whole(self.max_steps, "max_steps", ConfigError, 1)
        if self.slot_width > self.units:
            raise ConfigError(
                f"slot_width must be at most the {self.units} units of a machine, got {self.slot_width}"
            )
        for name, kinds in (("objective", Objective), ("picture", Picture)):
            check_one_of(getattr(self, name), get_args(kinds), name, ConfigError)
        for name in ("drain", "arrival_column"):
            check_instance(getattr(self, name), bool, name, ConfigError)
        check_instance(self.semantics, GridSemantics, "semantics", ConfigError)
        given = check_all(self.machine_weights, object, "machine_weights", ConfigError)
        given = tuple(check_number(each, "machine_weights", ConfigError) for each in given)
        object.__setattr__(self, "machine_weights", given)
        for name in ("queue_weight", "backlog_weight"):
            check_number(getattr(self, name), name, ConfigError)
        weights = self.weights
        if len(weights) != self.machines:
            raise ConfigError(f"machine_weights must be {self.machines} numbers, got {len(weights)}")
        if not all(0 <= weight < math.inf for weight in (*weights, self.queue_weight, self.backlog_weight)):
            raise ConfigError(
                "machine_weights, queue_weight and backlog_weight must be finite and not negative"
            )
        if math.prod(self.picture_shape) > _MOST_CELLS:
            rows, columns = self.picture_shape
            raise ConfigError(f"a picture of {rows} x {columns} has more than {_MOST_CELLS} cells")

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight in rewards of the jobs on each machine."""
        return self.machine_weights or (1.0,) * self.machines

    @property
    def num_actions(self) -> int:
        """Number of actions: each visible job on each machine, and void (a step passes)."""
        return self.machines * self.visible_jobs + 1

    @property
    def backlog_columns(self) -> int:
        """Number of columns of the picture for the backlog."""
        return -(-self.backlog // self.horizon)

    @property
    def resource_width(self) -> int:
        """Number of columns of the picture for one resource."""
        return self.machines * self.units + self.visible_jobs * self.slot_width

    @property
    def picture_shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of the picture."""
        width = self.num_resources * self.resource_width + self.backlog_columns + self.arrival_column
        return self.horizon, width


_SIZES = ("num_resources", "units", "visible_jobs", "slot_width", "horizon", "backlog", "machines")
_MOST = 10_000
_MOST_CELLS = 10**8
