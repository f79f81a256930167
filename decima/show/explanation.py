"""An explained decision for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from decima.show.shown import Shown
from decima.show.tables import new_table

if TYPE_CHECKING:
    import pandas as pd

    from decima.evaluation.explain import Explanation

__all__ = ["notes", "shown", "tables"]

#: Rows of each table; the JSON has all.
MOST_ROWS = 8


def shown(found: Explanation, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=tables(found),
        notes=[*notes(found), f"Tables have {MOST_ROWS} rows at most; --json has all."],
        json=found.to_json(command=command),
    )


def tables(found: Explanation) -> list[Table]:
    """What it saw, what it could do, how likely that was, and why."""
    return [_jobs(found), _stages(found), _limits(found), _influences(found)]


def _jobs(found: Explanation) -> Table:
    title = f"Decision {found.number} at {found.time_ms / 1000:.1f} s: {found.offered} executors offered, "
    title += "free ones" if found.source < 0 else f"those of job {found.source}"
    table = new_table(title, "Job", "Number", "Executors", "Tasks left", "Work left (s)", "Waited (s)")
    for row in _first(found.jobs.sort_values("work_left_s", kind="stable")):
        times = (f"{row[name]:.1f}" for name in ("work_left_s", "waited_s"))
        table.add_row(
            str(row["name"]), str(row["job"]), str(row["executors"]), str(row["tasks_left"]), *times
        )
    return table


def _stages(found: Explanation) -> Table:
    table = new_table("What it could run next", "Stage", "Job", "Number", "Tasks", "Mean (s)", "Probability")
    for row in _first(found.stages):
        name = str(row["name"]) or f"stage {row['stage']}"
        table.add_row(
            name[:40],
            str(row["job"]),
            str(row["stage"]),
            str(row["tasks"]),
            f"{row['mean_s']:.2f}",
            f"{row['probability']:.1%}",
        )
    return table


def _limits(found: Explanation) -> Table:
    table = new_table("Executors that its job may then hold", "Limit", "Probability")
    for row in _first(found.limits):
        table.add_row(f"{row['limit']:.0f}", f"{row['probability']:.1%}")
    return table


def _influences(found: Explanation) -> Table:
    title = "What speaks for that stage, and what against it"
    table = new_table(title, "Feature", "Effect on log-probability")
    for row in _first(found.influences):
        table.add_row(str(row["feature"]), f"{row['effect']:+.2f}")
    return table


def _first(table: pd.DataFrame) -> list[dict[str, object]]:
    return [
        {str(key): value for key, value in row.items()} for row in table.head(MOST_ROWS).to_dict("records")
    ]


def notes(found: Explanation) -> list[str]:
    """What was decided, what the rule would have done, and what comes of both; one sentence each."""
    what = [
        f"The policy: {_decision(found, found.chosen)}.",
        f"{found.rule}: {_decision(found, found.by_rule)}.",
    ]
    if found.guarded:
        what.append("The policy's guard changed what the network chose.")
    results = "; ".join(f"{name} {value:.2f} s" for name, value in found.mean_jct_s.items())
    return [
        *what,
        f"Average JCT of the episode: {results}.",
        "The limit is the middle one of its distribution: half of the probability lies at or below it.",
        "Effect: by how much the logarithm of the stage's probability falls where all stages have the feature's mean.",
    ]


def _decision(found: Explanation, decision: tuple[int, int, int] | None) -> str:
    if decision is None:
        return "leaves the executors where they are"
    job, stage, limit = decision
    [name] = found.jobs.loc[found.jobs["job"] == job, "name"]
    return f"runs stage {stage} of job {job} ({name}), which may hold {limit} executors"
