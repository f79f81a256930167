"""What is simulated on a grid: machines, queue, picture and reward, and which reading of DeepRM holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from simulator.errors import ConfigError
from workloads.errors import check_all, check_instance, check_number

__all__ = ["DEEPRM", "PAPER", "GridConfig", "GridSemantics", "Objective", "Picture"]

Objective = Literal["slowdown", "completion", "makespan", "utilisation"]
Picture = Literal["binary", "coloured"]


@dataclass(frozen=True)
class GridSemantics:
    """The places where the DeepRM paper and its public code differ, one switch each.

    The defaults are the paper's; ``DEEPRM`` is the public code's. Two more differences are not the grid's: the sizes
    of jobs (``workloads.DISTRIBUTIONS``), and how slowdowns are averaged (``GridRecord.slowdown``).
    """

    first_step: bool = True
    """Jobs of step 0 enter; else they are never seen."""
    prompt_leaving: bool = True
    """A job that is finished leaves the list of running jobs at once; else, of two neighbours in the list that are
    finished, the second stays a step longer, and costs a step's reward."""
    last_row: bool = True
    """A booking may use the horizon's last row; else it must end before."""
    ends_early: bool = True
    """An episode ends when all its jobs are finished; else not before the last step in which a job might enter."""
    reward_passed_step: bool = True
    """A step is rewarded for what was in the system while it passed; else for what is in it afterwards, new jobs
    included, so that the first step never counts."""


PAPER = GridSemantics()
DEEPRM = GridSemantics(**{switch.name: False for switch in fields(GridSemantics)})


@dataclass(frozen=True)
class GridConfig:
    """Machines with a grid of resources and time each, and the queue before them (DeepRM, HotNets 2016, section 3).

    The picture of a state has ``horizon`` rows, one for each step from now on. Its columns are, for each resource: the
    units of each machine, then ``slot_width`` columns for each visible job; after all resources the backlog;
    and, if asked for, a column with the steps since the last arrival. With the defaults it is 20 x 223.

    Args:
        num_resources: kinds of resources (CPU, memory, ..), R.
        units: of each resource on each machine, C.
        visible_jobs: slots of the queue whose jobs can be seen and chosen, M.
        slot_width: columns of a visible job's picture; no job may need more units of a resource.
        horizon: steps that can be booked ahead, and rows of the picture, H; no job may last longer.
        backlog: jobs that wait behind the visible ones, B; further ones are dropped.
        machines: how many there are, m.
        max_steps: the episode ends when the clock passes this; None for "when all jobs are finished".
        drain: False ends the episode with the last step in which a job may enter, whatever still waits or runs, and
            whatever ``max_steps``.
        objective: what rewards add up to; see ``Grid``.
        machine_weights: alpha; the weight of jobs on each machine in rewards, 1 each if empty.
        queue_weight: beta; that of jobs in the visible slots.
        backlog_weight: gamma; that of jobs in the backlog.
        picture: ``binary`` (a unit is taken or not) or ``coloured`` (each running job has a shade of its own).
        arrival_column: whether the picture has the column with the steps since the last arrival, 10 at most: as many
            ones from the top; in a coloured picture a tenth of it in all rows, as in the public code.
        semantics: ``PAPER``, ``DEEPRM`` or a mixture of your own.

    Raises:
        ConfigError: a setting out of range, or sizes that do not fit the picture.
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
        for name, least in _LEAST.items():
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or not least <= size <= _MOST:
                raise ConfigError(f"{name} must be a whole number of {least} to {_MOST}, got {size!r}")
            object.__setattr__(self, name, int(size))
        most = self.max_steps
        if most is not None and (
            isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1
        ):
            raise ConfigError(f"max_steps must be a whole number of at least 1 or None, got {most!r}")
        if self.slot_width > self.units:
            raise ConfigError(
                f"slot_width must be at most the {self.units} units of a machine, got {self.slot_width}"
            )
        for name, kinds in (("objective", Objective), ("picture", Picture)):
            if getattr(self, name) not in get_args(kinds):
                raise ConfigError(
                    f"{name} must be one of {', '.join(get_args(kinds))}, got {getattr(self, name)!r}"
                )
        for name in ("drain", "arrival_column"):
            check_instance(getattr(self, name), bool, name, ConfigError)
        check_instance(self.semantics, GridSemantics, "semantics", ConfigError)
        given = check_all(self.machine_weights, object, "machine_weights", ConfigError)
        weights = tuple(check_number(each, "machine_weights", ConfigError) for each in given)
        object.__setattr__(self, "machine_weights", weights)
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
        """Of jobs on each machine, in rewards."""
        return self.machine_weights or (1.0,) * self.machines

    @property
    def num_actions(self) -> int:
        """Each visible job to each machine, and the void action."""
        return self.machines * self.visible_jobs + 1

    @property
    def backlog_columns(self) -> int:
        """Columns of the picture that the backlog takes."""
        return -(-self.backlog // self.horizon)

    @property
    def resource_width(self) -> int:
        """Columns of the picture that one resource takes."""
        return self.machines * self.units + self.visible_jobs * self.slot_width

    @property
    def picture_shape(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        width = self.num_resources * self.resource_width + self.backlog_columns + self.arrival_column
        return self.horizon, width


_LEAST = {
    "num_resources": 1,
    "units": 1,
    "visible_jobs": 1,
    "slot_width": 1,
    "horizon": 1,
    "backlog": 0,
    "machines": 1,
}
_MOST = 10_000
_MOST_CELLS = 10**8
