"""Run the work items of a comparison: schedulers on a job sequence, each setting once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import Conditions
from decima.evaluation.episodes import run_scheduler
from decima.evaluation.metrics import RELATIVE, measure
from decima.evaluation.variants import TUNED, fair_rule, tuned_once
from decima.registry import make_scheduler, split_guarantees
from simulator.cluster.episode import DecidesStages

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "ComparisonPlan",
    "EpisodeResult",
    "run_item",
]  # fmt: skip


# ---- work items of a comparison --------------------------------------------------------------------------


class EpisodeResult(NamedTuple):
    """Results of one scheduler on one sequence.

    Attributes:
        setting: chosen setting of a tuned scheduler; empty for other schedulers.
        metrics: column -> value, for ``METRICS`` without ``RELATIVE``.
        jct_ms: float64 [num_jobs]; empty if unknown.
    """

    setting: str
    metrics: dict[str, float]
    jct_ms: NDArray[np.float64] = np.empty(0)


@dataclass(frozen=True)
class ComparisonPlan:
    """Data of a comparison for workers.

    Attributes:
        schedulers: displayed name -> scheduler's name.
        objects: schedulers given as objects, by their names in ``schedulers``.
        settings: family -> candidate settings.
        further: function of an episode that returns further metrics; None if there are none.
    """

    conditions: Conditions
    schedulers: dict[str, str]
    objects: Mapping[str, SchedulerLike]
    settings: dict[str, tuple[str, ...]]
    further: Callable[[EpisodeRecord], dict[str, float]] | None = None

    def object(self, spec: str) -> SchedulerLike | None:
        """Return the scheduler object behind a name in ``schedulers``; None for schedulers given by name."""
        base, guarantees = split_guarantees(spec)
        scheduler = self.objects.get(base)
        if scheduler is None or not guarantees:
            return scheduler
        from decima.schedulers.guarantees import guarded

        return guarded(make_scheduler(scheduler), guarantees)

    def make(self, spec: str, seed: int) -> DecidesStages:
        """Create the scheduler for a name in ``schedulers`` or for a candidate setting."""
        return make_scheduler(self.object(spec) or spec, seed)


def run_item(
    tuned: Sequence[Mapping[str, str]],
    plans: Sequence[ComparisonPlan],
    item: tuple[int, int, tuple[str, ...], bool],
) -> tuple[int, int, dict[str, EpisodeResult], dict[str, EpisodeRecord]]:
    """Run schedulers on one sequence, each setting once; return comparison index, seed, results and kept episodes."""
    index, seed, names, keep = item
    plan = plans[index]
    cluster, sequence = plan.conditions.cluster_of(seed), plan.conditions.sequence(seed)
    specs = {name: plan.schedulers[name] for name in names}
    specs = {
        name: tuned[index][TUNED[spec].name] if tuned_once(spec) else spec for name, spec in specs.items()
    }
    records = {
        spec: run_scheduler(cluster, sequence, spec, plan.object(spec))
        for spec in dict.fromkeys(specs.values())
        if spec not in TUNED
    }
    outcomes = {spec: ("", record) for spec, record in records.items()}
    if hindsight := {spec: TUNED[spec] for spec in specs.values() if spec in TUNED}:
        from decima.evaluation.sweeps import sweep
        from decima.evaluation.tuning import best_settings

        [family] = {variant.name for variant in hindsight.values()}
        settings = sweep(cluster, sequence, plan.settings[family], records)
        best = best_settings(settings, [variant.objective for variant in hindsight.values()])
        outcomes |= {spec: best[variant.objective] for spec, variant in hindsight.items()}
    episodes = {name: outcomes[spec][1] for name, spec in specs.items()}

    @cache
    def fair() -> EpisodeRecord:
        rule = fair_rule(cluster)
        return records.get(rule) or run_scheduler(cluster, sequence, rule)

    results = {}
    for name, record in episodes.items():
        metrics = measure(record, without=RELATIVE) | (plan.further(record) if plan.further else {})
        if guarantees := split_guarantees(specs[name])[1]:
            from decima.evaluation.guarantee_metrics import guarantee_metrics

            metrics |= guarantee_metrics(record, guarantees, fair)
        results[name] = EpisodeResult(outcomes[specs[name]][0], metrics, record.jct_ms)
    return index, seed, results, episodes if keep else {}
