"""Report of tuned constants of a rule: tables, notes, JSON and picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.conditions import Conditions
from decima.evaluation.documents import json_text, machine
from decima.evaluation.metrics import METRICS, Interval, mean_interval, paired_change
from decima.evaluation.tune import JUDGED_ON, TUNED_ON, TunedRule
from decima.show.style import BLUE, GREY, finish_axes, legend_beside, new_axes
from decima.show.tables import Report, table_of


def tuning_report(
    tuned: TunedRule, settings: Mapping[str, Conditions], json_file: str | None = None, command: str = ""
) -> Report:
    """Return tables, notes, JSON and picture for a result of ``tune_rule``.

    A note names the file with the JSON, or else all constants; ``command`` is recorded.
    """
    changes = {
        (row, which): _change(tuned, which, row)
        for row in dict.fromkeys(tuned.runs["condition"])
        for which in (TUNED_ON, JUDGED_ON)
    }
    averages = {which: _average(tuned, which) for which in (TUNED_ON, JUDGED_ON)}
    rows, headings = list(dict.fromkeys(row for row, _ in changes)), ("Setting", "Tuned on", "Other seeds")
    cells = [(row, *(changes[row, which] for which in averages)) for row in rows]
    cells.append(("all", *averages.values()))
    table = table_of(f"Constants of {tuned.rule}, tuned", headings, cells, "+.1%")
    table.rows[-2].end_section = True
    values = ((name, tuned.start_constants[name], value) for name, value in tuned.constants.items())
    constants = table_of("Constants", ("Constant", "Start", "Tuned"), values, "g")
    heading = METRICS[tuned.metric].heading
    heading = heading if heading[0] == "p" else heading[0].lower() + heading[1:]  # within a sentence
    notes = [
        f"Change against {tuned.start}, paired by sequence: {heading}; ± is half a 95 % confidence "
        "interval (Student's t).",
        f"Use them as {tuned.scheduler if json_file is None else f'{tuned.rule}:{json_file}'}",
    ]
    content = {
        "command": command,
        "machine": machine(),
        "rule": tuned.rule,
        "start": tuned.start,
        "metric": tuned.metric,
        "parameters": tuned.constants,
        "scheduler": tuned.scheduler,
        "settings": {name: setting.to_dict() for name, setting in settings.items()},
        "changes": [
            {"setting": row, "seeds": which, **change._asdict()} for (row, which), change in changes.items()
        ],
        "average": {which: average._asdict() for which, average in averages.items()},
        "path": tuned.path.tolist(),
        "runs": tuned.runs.to_dict("records"),
    }
    picture = partial(plot_tuned, rows, changes, heading)
    return Report([table, constants], notes, json_text(content), {"tune": picture})


def plot_tuned(
    rows: Sequence[str], changes: Mapping[tuple[str, str], Interval], heading: str = "mean JCT"
) -> Figure:
    """Draw the change of the metric in each setting, on sequences tuned on and on other sequences."""
    width = 5 + 0.08 * max(map(len, rows))  # names of settings may be long
    figure, axes = new_axes(width, 0.4 * len(rows) + 1.5)
    axes.axvline(0, color=GREY)
    for which, colour, shift in ((TUNED_ON, GREY, 0.12), (JUDGED_ON, BLUE, -0.12)):
        means, errors = 100 * np.array([changes[row, which] for row in rows]).T
        heights = np.arange(len(rows))[::-1] + shift
        axes.errorbar(means, heights, xerr=errors, fmt="o", color=colour, capsize=3, label=which)
    axes.set_yticks(range(len(rows))[::-1], rows)
    legend_beside(axes)
    finish_axes(axes, xlabel=f"Change of the {heading} (%)")
    return figure


def _pairs(tuned: TunedRule, which: str) -> pd.DataFrame:
    """Return the metric with the constants of the start and with tuned constants; rows are settings and seeds."""
    runs = tuned.runs[tuned.runs["seeds"] == which]
    return runs.pivot_table(tuned.metric, ["condition", "seed"], "scheduler")


def _change(tuned: TunedRule, which: str, setting: str) -> Interval:
    pairs = _pairs(tuned, which).loc[setting]
    return paired_change(pairs[tuned.scheduler], pairs[tuned.start])


def _average(tuned: TunedRule, which: str) -> Interval:
    """Return the mean change over settings. Settings share seeds, so its interval is computed from means by seed."""
    pairs = _pairs(tuned, which)
    base = pairs[tuned.start].groupby("condition").transform("mean")
    return mean_interval(((pairs[tuned.scheduler] - pairs[tuned.start]) / base).groupby("seed").mean())
