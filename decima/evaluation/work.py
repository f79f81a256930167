"""Work items of a comparison, which worker processes run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import Conditions
from decima.evaluation.metrics import measure
from decima.evaluation.run import run_scheduler
from decima.evaluation.tuning import TUNED, best_settings, sweep, sweep_ms, tuned_once
from decima.registry import make_scheduler

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.record import EpisodeRecord

__all__ = ["Plan", "Result", "run_item", "sweep_item"]


class Result(NamedTuple):
    """Results of one scheduler on one sequence.

    Attributes:
        setting: chosen setting of a tuned scheduler; empty for other schedulers.
        metrics: see ``METRICS``.
        jct_ms: float64 [num_jobs]; empty if unknown.
        alone_ms: expected JCT of each job alone on this cluster, float64 [num_jobs].
    """

    setting: str
    metrics: dict[str, float]
    jct_ms: NDArray[np.float64] = np.empty(0)
    alone_ms: NDArray[np.float64] = np.empty(0)


@dataclass(frozen=True)
class Plan:
    """Data of a comparison that workers need.

    Attributes:
        conditions: cluster and jobs.
        schedulers: displayed name -> scheduler's name.
        objects: schedulers that were given as objects, by the names that stand for them in ``schedulers``.
        settings: family -> candidate settings.
    """

    conditions: Conditions
    schedulers: dict[str, str]
    objects: Mapping[str, SchedulerLike]
    settings: dict[str, tuple[str, ...]]

    def make(self, spec: str, seed: int) -> DecidesStages:
        """Make the scheduler of a name in ``schedulers``, or of a candidate setting."""
        return make_scheduler(self.objects.get(spec, spec), seed)


def sweep_item(
    plans: Sequence[Plan], item: tuple[int, str, int]
) -> tuple[int, str, int, NDArray[np.float64]]:
    """Run all settings of a family on a training sequence; return the item and the mean JCTs, ms."""
    number, family, seed = item
    conditions, settings = plans[number].conditions, plans[number].settings[family]
    return *item, sweep_ms(conditions.cluster, conditions.sequence(seed), settings=settings)


def run_item(
    tuned: Sequence[Mapping[str, str]], plans: Sequence[Plan], item: tuple[int, int, tuple[str, ...], bool]
) -> tuple[int, int, dict[str, Result], dict[str, EpisodeRecord]]:
    """Run some schedulers on one sequence, each setting once; return number, seed, results and kept episodes."""
    number, seed, names, keep = item
    plan = plans[number]
    cluster, sequence = plan.conditions.cluster, plan.conditions.sequence(seed)
    specs = {name: plan.schedulers[name] for name in names}
    specs = {
        name: tuned[number][TUNED[spec].name] if tuned_once(spec) else spec for name, spec in specs.items()
    }
    known = {
        spec: run_scheduler(cluster, sequence, spec, plan.objects.get(spec))
        for spec in dict.fromkeys(specs.values())
        if spec not in TUNED
    }
    found = {spec: ("", record) for spec, record in known.items()}
    if hindsight := {spec: TUNED[spec] for spec in specs.values() if spec in TUNED}:
        [family] = {each.name for each in hindsight.values()}
        settings = sweep(cluster, sequence, plan.settings[family], known)
        best = best_settings(settings, [each.objective for each in hindsight.values()])
        found |= {spec: best[each.objective] for spec, each in hindsight.items()}
    episodes = {name: found[spec][1] for name, spec in specs.items()}
    results = {
        name: Result(found[specs[name]][0], measure(record), record.jct_ms, record.alone_ms)
        for name, record in episodes.items()
    }
    return number, seed, results, episodes if keep else {}
