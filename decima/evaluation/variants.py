"""Tuned schedulers of comparisons, such as weighted fair sharing with its best alpha (Decima, section 7.1).

* ``tuned-NAME`` has, on each evaluation sequence, the parameters with the lowest mean JCT, which no online scheduler
  knows (hindsight). These are the strongest baselines of the paper (see also its appendix E). ``tuned-NAME:makespan``
  has the parameters with the shortest makespan.
* ``tuned-NAME:once`` has the parameters with the lowest mean JCT over separate training sequences. ``weighted-fair``
  without alpha is the same as ``tuned-weighted-fair:once``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig

__all__ = [
    "ALPHAS", "GRIDS", "HINDSIGHT", "MAKESPAN_HINDSIGHT", "TUNED", "TUNED_ONCE", "TunedScheduler", "fair_rule",
    "tuned_once", "weighted_fair",
]  # fmt: skip

#: Default candidate values of alpha: -2, -1.9, .., 2.
ALPHAS: tuple[float, ...] = tuple(tenths / 10 for tenths in range(-20, 21))
TUNED_ONCE = "weighted-fair"
HINDSIGHT = "tuned-weighted-fair"
MAKESPAN_HINDSIGHT = f"{HINDSIGHT}:makespan"


def weighted_fair(alpha: float) -> str:
    """Return the name of weighted fair sharing with this alpha."""
    return f"weighted-fair:{alpha:g}"


def _grid(name: str, *parameters: Sequence[float]) -> tuple[str, ...]:
    """Return the scheduler names for all combinations of parameters."""
    return tuple(":".join((name, *(f"{value:g}" for value in values))) for values in product(*parameters))


#: Scheduler -> candidate settings, as scheduler names. Graphene* has alpha and two thresholds of troublesome stages (by
#: duration and by packing); Graphene and Tetris have a weight of the remaining work, and fairness.
GRIDS: dict[str, tuple[str, ...]] = {
    "weighted-fair": tuple(map(weighted_fair, ALPHAS)),
    "graphene-star": _grid("graphene-star", (-1.5, -1, -0.5, 0, 0.5), (0.5, 0.8, 1), (0, 0.2)),
    "graphene": _grid("graphene", (0, 0.2, 1, 2, 4), (0, 0.5, 0.75, 0.9)),
    "tetris": _grid("tetris", (0, 0.2, 1, 2, 4), (0, 0.5, 0.75, 0.9)),
}


class TunedScheduler(NamedTuple):
    """A tuned scheduler of ``GRIDS``, with the objective to minimise (see ``sweeps.objective_ms``).

    If ``once``, it is tuned on training sequences; by default, each evaluation sequence has its own parameters.
    """

    name: str
    objective: str = "jct"
    once: bool = False


#: Name of a tuned scheduler -> how it is tuned.
TUNED: dict[str, TunedScheduler] = {TUNED_ONCE: TunedScheduler("weighted-fair", once=True)} | {
    f"tuned-{name}{suffix}": TunedScheduler(name, objective, once)
    for name in GRIDS
    for suffix, objective, once in (
        ("", "jct", False),
        (":makespan", "makespan", False),
        (":once", "jct", True),
    )
}


def tuned_once(name: str) -> bool:
    """Return whether a scheduler, by name, is tuned once on training sequences."""
    return name in TUNED and TUNED[name].once


def fair_rule(config: ClusterConfig) -> str:
    """Return the fair-sharing rule for a cluster: ``spark-fair`` if executors are offered after each task."""
    return "spark-fair" if config.semantics.offer_after_tasks else "fair"
