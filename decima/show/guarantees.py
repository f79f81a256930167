"""Notes on guarantees: number of changed decisions, cost, and violations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from decima.evaluation.guarantees import fair_rule
from decima.evaluation.metrics import Interval, paired_change
from decima.schedulers.guarantees.spec import split_guarantees
from decima.show.explanation import overruled_text
from decima.show.tables import interval_text

if TYPE_CHECKING:
    import pandas as pd

    from decima.evaluation.comparison import Comparison

__all__ = ["guarantee_notes"]


def guarantee_notes(comparison: Comparison, scheduler: str, runs: pd.DataFrame) -> list[str]:
    """Return notes on a scheduler's guarantees, one sentence each; empty for a scheduler without guarantees.

    Args:
        comparison: comparison with at least one finished experiment.
        scheduler: displayed name of the scheduler.
        runs: rows of the scheduler in ``comparison.runs``.
    """
    base, guarantees = split_guarantees(comparison.schedulers[scheduler])
    if not guarantees:
        return []
    changed, decisions = int(runs["overruled"].sum()), int(runs["decisions"].sum())
    text = f"{scheduler}: guarantees changed {changed:,} of {decisions:,} decisions"
    if episode := comparison.episodes.get(scheduler):
        where = overruled_text(episode.kept.overruled)
        text += f" (in the first experiment {where})" if where else ""
    plain = next((name for name, spec in comparison.schedulers.items() if spec == base), None)
    if plain is not None:
        cost = _change(comparison, scheduler, plain)
        text += f"; mean JCT {interval_text(cost, '+.1%')} against {plain}"
    notes = [f"{text}."]
    if math.isfinite(guarantees.no_later_than):
        notes.append(_lateness(comparison, scheduler, guarantees.no_later_than, runs))
    if guarantees.floor:
        below_s = runs["below_floor_s"].max()
        notes.append(
            f"{scheduler}: a tenant that could use executors had fewer than its floor for at most {below_s:.1f} s."
        )
    if guarantees.ceiling:
        above = int(runs["above_ceiling"].max())
        kept = f"was exceeded by at most {above} executors" if above else "was never exceeded"
        notes.append(f"{scheduler}: the ceiling {kept}.")
    return notes


def _change(comparison: Comparison, scheduler: str, plain: str) -> Interval:
    runs = comparison.runs
    ours, others = (
        runs.loc[runs["scheduler"] == each, "mean_jct_s"].to_numpy() for each in (scheduler, plain)
    )
    return paired_change(ours, others)


def _lateness(comparison: Comparison, scheduler: str, factor: float, runs: pd.DataFrame) -> str:
    """Describe the number and lateness of jobs that are later than the factor allows."""
    late, rule = int(runs["late_jobs"].sum()), fair_rule(comparison.conditions.cluster)
    jobs = sum(len(comparison.conditions.sequence(seed)) for seed in comparison.finished)
    allowed = f"{factor:g} times their JCT under {rule}"
    if not late:
        return f"{scheduler}: none of {jobs:,} jobs is later than {allowed}."
    return (
        f"{scheduler}: the guarantee is not kept for {late:,} of {jobs:,} jobs, which are later than {allowed}: by at "
        f"most {runs['lateness_s'].max():.1f} s, at worst {runs['latest_ratio'].max():.2f} times that JCT."
    )
