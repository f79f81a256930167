"""Results of a comparison as JSON, see ``Comparison.to_json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decima.evaluation.documents import json_text, versions
from decima.evaluation.variants import TUNED, tuned_once
from decima.registry import ANY_POLICY, split_guarantees

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison

__all__ = ["comparison_json"]

#: Entries of each scheduler, see ``decima.evaluation.metrics.summarise``.
SUMMARY = (
    *("mean_jct_s", "mean_jct_ci95_s", "p95_jct_s", "makespan_s", "utilisation", "slowdown"),
    *("difference_s", "difference_ci95_s", "difference", "difference_ci95"),
)


def comparison_json(comparison: Comparison, extra: Mapping[str, Any]) -> str:
    """Return the results of a comparison and further entries as JSON, seconds."""
    content = {
        **comparison.conditions.to_dict(),
        "seeds": comparison.finished,
        "training_seeds": list(comparison.training_seeds),
        "complete": comparison.complete,
        "best_heuristic": comparison.best_heuristic,
        "times_alone": comparison.times_alone,
        "versions": versions(),
        **extra,
        "schedulers": {name: _entry(comparison, name) for name in comparison.schedulers},
    }
    return json_text(content)


def _entry(comparison: Comparison, scheduler: str) -> dict[str, Any]:
    spec = comparison.schedulers[scheduler]
    runs = comparison.measured[comparison.measured["scheduler"] == scheduler]
    entry: dict[str, Any] = {name: comparison.summary[scheduler][name] for name in SUMMARY}
    if comparison.shown:
        names = ("mean", "ci95", "difference", "difference_ci95")
        entry["metrics"] = {
            column: dict(zip(names, (*compared.mean, *compared.difference), strict=True))
            for column, compared in comparison.compared[scheduler].items()
        }
    entry["per_seed_mean_jct_s"] = runs["mean_jct_s"].tolist()
    if comparison.conditions.cluster.faults.active:
        entry["per_seed_failed_jobs"] = runs["failed_jobs"].tolist()
    if scheduler in ANY_POLICY:
        entry["policy"] = comparison.policy
    if scheduler in comparison.misfits:
        entry |= {name: int(runs[name].sum()) for name in ("decisions", "guarded")}
        entry["outside_training"] = comparison.misfits[scheduler]
    if split_guarantees(spec)[1]:
        from decima.evaluation.guarantee_metrics import guarantee_entry

        entry["guarantees"] = guarantee_entry(runs)
    if tuned_once(spec):
        entry["setting"] = comparison.tuned.get(TUNED[spec].name)
    elif spec in TUNED:
        entry["per_seed_setting"] = runs["setting"].tolist()
    return entry
