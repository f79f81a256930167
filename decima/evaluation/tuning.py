"""Schedulers with tuned parameters, such as weighted fair sharing with its best alpha (Decima, 7.1).

* ``tuned-NAME`` has the parameters with the lowest mean JCT on each evaluation sequence, which no scheduler can know
  (hindsight). These are the paper's strongest baselines (see also its appendix E). ``tuned-NAME:makespan`` minimises
  the makespan.
* ``tuned-NAME:once`` has the parameters with the lowest mean JCT over separate training sequences. ``weighted-fair``
  without an alpha is the same as ``tuned-weighted-fair:once``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError
from decima.evaluation.run import objective_ms, run_scheduler
from decima.policy.shipped import SHIPPED
from decima.registry import LEARNED, SCHEDULERS, UNGUARDED, signature
from workloads.arrivals import JobSequence
from workloads.errors import check_one_of

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "ALPHAS",
    "GRIDS",
    "HINDSIGHT",
    "MAKESPAN_HINDSIGHT",
    "TUNED",
    "TUNED_ONCE",
    "Tuned",
    "best_for_all",
    "best_settings",
    "scheduler_summaries",
    "sweep",
    "sweep_ms",
    "tune",
    "tuned_once",
    "weighted_fair",
]

#: Default candidate values of alpha: -2, -1.9, .., 2.
ALPHAS: tuple[float, ...] = tuple(tenths / 10 for tenths in range(-20, 21))
TUNED_ONCE = "weighted-fair"
HINDSIGHT = "tuned-weighted-fair"
MAKESPAN_HINDSIGHT = f"{HINDSIGHT}:makespan"


def weighted_fair(alpha: float) -> str:
    """Return the name of weighted fair sharing with this alpha."""
    return f"weighted-fair:{alpha:g}"


def _grid(name: str, *parameters: Sequence[float]) -> tuple[str, ...]:
    """Return the names of a scheduler with all combinations of parameters."""
    return tuple(":".join((name, *(f"{value:g}" for value in values))) for values in product(*parameters))


#: Scheduler -> candidate settings. Graphene*: alpha, thresholds of long stages and of badly packing ones; Graphene and
#: Tetris: weight of the remaining work, fairness.
GRIDS: dict[str, tuple[str, ...]] = {
    "weighted-fair": tuple(map(weighted_fair, ALPHAS)),
    "graphene-star": _grid("graphene-star", (-1.5, -1, -0.5, 0, 0.5), (0.5, 0.8, 1), (0, 0.2)),
    "graphene": _grid("graphene", (0, 0.2, 1, 2, 4), (0, 0.5, 0.75, 0.9)),
    "tetris": _grid("tetris", (0, 0.2, 1, 2, 4), (0, 0.5, 0.75, 0.9)),
}


class Tuned(NamedTuple):
    """How a scheduler is tuned.

    Attributes:
        name: of the scheduler, one of ``GRIDS``.
        objective: quantity to minimise, see ``run.objective_ms``.
        once: whether on training sequences, rather than on each evaluation sequence.
    """

    name: str
    objective: str = "jct"
    once: bool = False


#: Name -> how it is tuned.
TUNED: dict[str, Tuned] = {TUNED_ONCE: Tuned("weighted-fair", once=True)} | {
    f"tuned-{name}{suffix}": Tuned(name, objective, once)
    for name in GRIDS
    for suffix, objective, once in (
        ("", "jct", False),
        (":makespan", "makespan", False),
        (":once", "jct", True),
    )
}


def tuned_once(name: str) -> bool:
    """Return whether a scheduler is tuned once, on training sequences."""
    return name in TUNED and TUNED[name].once


def sweep(
    cluster: ClusterConfig,
    sequence: JobSequence,
    settings: Sequence[str] = GRIDS["weighted-fair"],
    known: Mapping[str, EpisodeRecord] | None = None,
) -> Iterator[tuple[str, EpisodeRecord]]:
    """Run candidate settings on one sequence; yield each with its episode.

    Args:
        cluster: the cluster.
        sequence: the jobs.
        settings: names of schedulers, in order.
        known: episodes on this sequence that need not run again, by setting.

    Raises:
        CompareError: see ``run_scheduler``.
    """
    for setting in settings:
        yield setting, (known or {}).get(setting) or run_scheduler(cluster, sequence, setting)


def best_settings(
    runs: Iterable[tuple[str, EpisodeRecord]], objectives: Iterable[str]
) -> dict[str, tuple[str, EpisodeRecord]]:
    """Return, for each objective, the best setting of a sweep with its episode; the first one on a tie."""
    best: dict[str, tuple[str, EpisodeRecord]] = {}
    lowest_ms = dict.fromkeys(objectives, math.inf)
    for setting, record in runs:
        for objective in lowest_ms:
            if (value_ms := objective_ms(record, objective)) < lowest_ms[objective]:
                lowest_ms[objective], best[objective] = value_ms, (setting, record)
    return best


def sweep_ms(
    cluster: ClusterConfig,
    sequence: JobSequence,
    objective: str = "jct",
    settings: Sequence[str] = GRIDS["weighted-fair"],
) -> NDArray[np.float64]:
    """Return the objective of each setting on a sequence, float64 [len(settings)], ms; see ``run.objective_ms``."""
    return np.array([objective_ms(record, objective) for _, record in sweep(cluster, sequence, settings)])


def tune(
    config: ClusterConfig,
    sequences: JobSequence | Sequence[JobSequence],
    scheduler: str = "weighted-fair",
    objective: Literal["jct", "makespan"] = "jct",
) -> str:
    """Return a scheduler's name with the parameters that are best on average over some sequences.

    On an evaluation sequence, the result is ``tuned-weighted-fair``, known only in hindsight; on training sequences it
    is ``weighted-fair`` without an alpha.

    Args:
        config: the cluster.
        sequences: one or several.
        scheduler: one of ``GRIDS``.
        objective: quantity to minimise: the mean JCT or the makespan.

    Returns:
        A name for ``make_scheduler``, such as ``weighted-fair:-0.8``.

    Raises:
        CompareError: no sequences, no such scheduler or objective, or an episode that failed.
    """
    given = [sequences] if isinstance(sequences, JobSequence) else list(sequences)
    if not given:
        raise CompareError("tuning needs at least one sequence")
    settings = GRIDS[check_one_of(scheduler, GRIDS, "scheduler", CompareError)]
    check_one_of(objective, ("jct", "makespan"), "objective", CompareError)
    swept = [sweep_ms(config, each, objective, settings) for each in given]
    return str(best_for_all(np.array(swept), settings))


def best_for_all(sweeps_ms: NDArray[np.float64], settings: Sequence[Any] = ALPHAS) -> Any:
    """Return the setting that is best on average over sequences; the first one on a tie.

    Args:
        sweeps_ms: float64 [n, len(settings)], a row of ``sweep_ms`` for each sequence.
        settings: of the columns; by default the alphas.
    """
    return settings[int(sweeps_ms.mean(axis=0).argmin())]


def scheduler_summaries() -> dict[str, str]:
    """Return the name of each scheduler that ``decima compare`` knows, and a description in one line."""
    return {
        **{
            signature(name): (inspect.getdoc(kind) or "").partition("\n")[0].replace("``", "")
            for name, kind in SCHEDULERS.items()
        },
        TUNED_ONCE: f"{signature(TUNED_ONCE)} with alpha tuned once on separate training sequences.",
        **{
            f"tuned-{name}": f"{signature(name)}, the best of {len(grid)} in each experiment: hindsight, as the paper."
            for name, grid in GRIDS.items()
        },
        "tuned-NAME:once": "The same, tuned once on separate training sequences.",
        "tuned-NAME:makespan": "The best for the makespan, in hindsight.",
        LEARNED: "A graph neural network that learned to schedule jobs like those at hand.",
        f"{LEARNED}:POLICY": f"The same with a policy file of decima train, or one of {', '.join(SHIPPED)}.",
        f"{LEARNED}:POLICY{UNGUARDED}": "The same without its guard, which has no executor idle beside work.",
    }
