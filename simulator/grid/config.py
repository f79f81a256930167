"""Configuration of a grid: machines, queue, picture of the state, reward, and semantics of the paper or of its code."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pydantic import Field

from workloads.declaration import Flag, Named, Number, Whole, declared, described
from workloads.errors import ConfigError

__all__ = ["DEEPRM", "PAPER", "GridConfig", "GridSemantics", "Objective", "Picture"]

Objective = Literal["slowdown", "completion"]
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


#: Largest size, and largest number of cells of a picture.
_MOST, _MOST_CELLS = 10_000, 10**8
_Size = Annotated[Whole, Field(ge=1, le=_MOST)]
_Weight = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


@declared()
class GridConfig:
    """Machines, each with a grid of resources and time, and their queue (DeepRM, HotNets 2016, section 3).

    The picture of a state has ``horizon`` rows, one for each step from now on. Its columns are, for each resource, the
    units of each machine and ``slot_width`` columns for each visible job; then the backlog; then, with
    ``arrival_column``, the steps since the last arrival. With the defaults it is 20 x 223.

    Raises:
        ConfigError: a setting is out of range, or the picture is too large.
    """

    num_resources: _Size = described(2, "Number of resources (CPU, memory, ..), R.", internal=True)
    units: _Size = described(10, "Units of each resource on each machine, C.")
    visible_jobs: _Size = described(10, "Slots of the queue whose jobs can be seen and chosen, M.")
    slot_width: _Size = described(
        10, "Columns of a visible job in the picture: the most units of a resource that a job may need."
    )
    horizon: _Size = described(
        20, "Steps that can be booked ahead, and rows of the picture, H: the longest duration of a job."
    )
    backlog: Annotated[Whole, Field(ge=0, le=_MOST)] = described(
        60, "Number of jobs that may wait behind the visible jobs, B; further jobs are dropped."
    )
    machines: _Size = described(1, "Number of machines, m.")
    max_steps: Annotated[Whole, Field(ge=1)] | None = described(
        None,
        "Step after which an episode ends. In Python None by default: it ends when all jobs are finished.",
    )
    drain: Flag = described(
        True,
        "Whether the episode goes on until all jobs are finished; else it ends with the last step in which a job may "
        "enter, whatever max_steps.",
        internal=True,
    )
    objective: Objective = described("slowdown", "Quantity that the rewards add up to, see Grid.")
    machine_weights: tuple[_Weight, ...] = described(
        (), "Alpha: weight in rewards of the jobs on each machine; 1 each if empty."
    )
    queue_weight: _Weight = described(1.0, "Beta: weight in rewards of jobs in the visible slots.")
    backlog_weight: _Weight = described(1.0, "Gamma: weight in rewards of jobs in the backlog.")
    picture: Picture = described(
        "binary", "Units in the picture: binary (taken or free), or coloured (a shade for each running job)."
    )
    arrival_column: Flag = described(
        False,
        "Whether the picture shows the number of steps since the last arrival, at most 10: as that many ones from the "
        "top; in a coloured picture as a tenth of the number in all rows, like the public code.",
    )
    semantics: Annotated[GridSemantics, Named({"paper": PAPER, "deeprm": DEEPRM})] = described(
        PAPER, "Semantics of the paper, or of its published code (deeprm)."
    )

    def __post_init__(self) -> None:
        if self.slot_width > self.units:
            raise ConfigError(
                f"slot_width must be at most the {self.units} units of a machine, got {self.slot_width}"
            )
        if len(self.weights) != self.machines:
            raise ConfigError(f"machine_weights must be {self.machines} numbers, got {len(self.weights)}")
        if math.prod(self.picture_shape) > _MOST_CELLS:
            rows, columns = self.picture_shape
            raise ConfigError(f"a picture of {rows} x {columns} has more than {_MOST_CELLS} cells")

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight in rewards of the jobs on each machine."""
        return self.machine_weights or (1.0,) * self.machines

    @property
    def num_actions(self) -> int:
        """Number of actions: i * visible_jobs + j books the visible job j on machine i; the last one is void."""
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
