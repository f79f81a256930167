"""Report of a live log: a table of drivers, and an episode's pictures for each driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.figure import Figure

from decima.service.replay import Replayed
from decima.service.service import one_line
from decima.show.plots import plot_jobs_in_system, plot_schedule
from decima.show.tables import Report, new_table

__all__ = ["live_report"]

#: Largest number of schedules drawn.
MOST_PICTURES = 20


def live_report(found: Sequence[Replayed]) -> Report:
    """Return the report: a table row, a schedule and the number of live jobs over time for each driver."""
    table = new_table(
        f"{len(found)} driver{'s' * (len(found) > 1)} of {one_line(found[0].policy)}",
        "Application", "Jobs", "Slots", "Questions", "Decisions", "Mean JCT", "p95 JCT", "Utilised",
    )  # fmt: skip
    pictures: dict[str, Callable[[], Figure]] = {}
    for number, each in enumerate(found, start=1):
        record = each.record
        table.add_row(
            one_line(each.name),
            f"{len(record.sequence)}",
            f"{record.config.num_executors}",
            f"{each.questions}",
            f"{record.num_decisions}",
            f"{record.mean_jct_ms / 1000:.1f}",
            f"{record.jct_percentile_ms(95) / 1000:.1f}",
            f"{record.utilisation:.1%}",
        )
        if number <= MOST_PICTURES:
            # Matplotlib takes text between dollar signs for a formula.
            title = one_line(each.name).replace("$", r"\$")
            pictures[f"schedule-{number}"] = partial(plot_schedule, record, title)
            pictures[f"jobs-in-system-{number}"] = partial(plot_jobs_in_system, {title: record})
    notes = [
        "Times are seconds. When a task began is known as exactly as the driver's questions are frequent."
    ]
    if len(found) > MOST_PICTURES:
        notes.append(f"Pictures are of the first {MOST_PICTURES} drivers.")
    return Report([table], notes, _json(found), pictures)


def _json(found: Sequence[Replayed]) -> str:
    drivers = [
        {
            "name": each.name,
            "application": each.application,
            "policy": each.policy,
            "questions": each.questions,
            "decisions": each.record.num_decisions,
            "slots": each.record.config.num_executors,
            "jobs": json.loads(each.record.jobs().to_json(orient="records")),
        }
        for each in found
    ]
    return json.dumps({"drivers": drivers}, indent=2)
