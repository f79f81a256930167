"""Statistics of a scheduler's guarantees in an episode, which the scheduler adds to the record."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Kept", "Overruled"]


class Overruled(NamedTuple):
    """A decision of a scheduler that a guarantee changed.

    Attributes:
        decision: number of the decision in the episode, from 0; decisions of the engine are not counted.
        time_ms: simulated time, ms.
        guarantee: ``floor``, ``ceiling`` or ``no-later-than``.
    """

    decision: int
    time_ms: float
    guarantee: str


class Kept(NamedTuple):
    """Statistics of a scheduler's guarantees in an episode, see ``decima.schedulers.guarantees``.

    Attributes:
        overruled: decisions that the guarantees changed, in order.
        below_floor_ms: longest time for which a tenant that could use executors had fewer than its floor, ms.
        slack_ms: largest slack that all jobs had in common, ms; 0 if each job has its own slack.
    """

    overruled: tuple[Overruled, ...] = ()
    below_floor_ms: float = 0.0
    slack_ms: float = 0.0
