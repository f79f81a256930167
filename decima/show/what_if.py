"""Report on predicted JCTs of a cluster's jobs under other schedulers: tables, notes and a picture."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, PercentFormatter
from rich.table import Table

from decima.evaluation.spark import LOOKS
from decima.evaluation.spark.what_if import WhatIf
from decima.registry import LEARNED
from decima.show.style import BARS, GREY, finish_axes, new_figure, styles
from decima.show.tables import Report, table_of

#: Maximum number of queries or clusters in a table; the JSON contains all.
MOST_ROWS = 25


def shown(found: WhatIf, command: str) -> Report:
    """Return the report of predictions; ``command`` is the command line that repeats them."""
    return Report(
        tables=[_schedulers(found), *([_clusters(found)] if len(found.logged) > 1 else []), _queries(found)],
        notes=_notes(found),
        json=found.to_json(command=command),
        pictures={"what-if": partial(plot_what_if, found)},
    )


def _schedulers(found: WhatIf) -> Table:
    own, slots = found.sparks_own, found.logged[0].cluster.num_executors
    where = (
        f"{slots} executors" if len(found.logged) == 1 else f"on {len(found.logged)} clusters, each by itself"
    )
    title = f"{len(found.jobs)} job{'s' * (len(found.jobs) > 1)} as they came, {where}"
    rows = []
    for name in found.jct_ms:
        jct, change = found.mean_jct_ms(name), found.change(name)
        between = f"{jct.low / 1000:.1f} to {jct.high / 1000:.1f}"
        versus = (change.mean, f"{change.low:+.1%} to {change.high:+.1%}") if name != own else (None, None)
        rows.append((name, jct.mean / 1000, between, *versus))
    headings = ("Scheduler", "Mean JCT (s)", "95 % of draws", f"vs {own}", "95 % of draws")
    return table_of(title, headings, rows, (".1f", "", "+.1%", ""))


def _clusters(found: WhatIf) -> Table:
    headings = ("Application", "Executors", "Jobs", "Ran under", "Measured", *found.jct_ms)
    rows = (
        (
            *(row["applications"], str(row["executors"]), str(row["jobs"]), row["ran_under"] or "-"),
            *(row[name] for name in ("measured_s", *found.jct_ms)),
        )
        for _, row in found.by_cluster().head(MOST_ROWS).iterrows()
    )
    return table_of("Mean seconds by cluster", headings, rows, ".1f")


def _queries(found: WhatIf) -> Table:
    shown = found.by_query().head(MOST_ROWS)[["jobs", "measured_s", *found.jct_ms]]
    title, headings = "Mean seconds by query, those with most time first", ("Query", "Jobs", "Measured")
    forms = (".0f", *[".1f"] * (1 + len(found.jct_ms)))
    return table_of(title, (*headings, *found.jct_ms), shown.itertuples(name=None), forms)


def _notes(found: WhatIf) -> list[str]:
    error, bias = found.held_out.error, found.held_out.bias
    delays_s = sorted({round(each.cluster.moving_delay_ms / 1000, 2) for each in found.logged})
    range_s = " to ".join(f"{delay:.3g}" for delay in (delays_s[:1] + delays_s[1:][-1:]))
    notes = [
        "Each draw has other task noise, and other errors of the model; "
        f"executors take {range_s} s to move to another job.",
        "Schedulers know the task times of each query, no task fails and no executor is lost, whatever the logs say of "
        "errors and failures; decima compare uses those on a workload file of decima workload import spark.",
    ]
    if len(found.logged) > 1:
        notes.append(
            "Applications that did not run at the same time, or had executors of their own, shared no cluster: each "
            "is predicted by itself."
        )
    measured_s = found.jobs["measured_ms"].mean() / 1000
    if not math.isnan(measured_s):
        notes.append(f"Measured in the logs, whatever scheduled there: {measured_s:.1f} s on average.")
    if (as_ran := found.as_they_ran()) is not None:
        measured_s, predicted_s = as_ran
        notes.append(
            f"Under Spark's own scheduler as the logs have it: measured {measured_s:.1f} s, predicted "
            f"{predicted_s:.1f} s ({predicted_s / measured_s - 1:+.0%})."
        )
    if found.held_out.runs.empty:
        notes.append(
            "No query ran twice and alone: the ranges hold task noise only, not errors of the model."
        )
    else:
        notes.append(
            f"Predictions of {len(found.held_out.runs)} single runs from the other runs of their query are off by "
            f"{error.mean:.1%} on average, bias {bias.mean:+.1%}."
        )
    if found.setting:
        notes.append(f"weighted fair: {found.setting}, tuned on draws of its own.")
    if found.misfits and LEARNED in found.jct_ms:
        notes.append(
            f"{LEARNED} may do badly here, its policy is out of its training distribution: {'; '.join(found.misfits)}."
        )
    return notes


def plot_what_if(found: WhatIf) -> Figure:
    """Draw the mean JCT under each scheduler, and the change of each job's JCT under the best scheduler."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    _means(left, found)
    _jobs(right, found)
    return figure


def _means(axes: Axes, found: WhatIf) -> None:
    looks = styles(LOOKS.get(name, name) for name in found.jct_ms)
    for place, name in enumerate(found.jct_ms):
        jct = found.mean_jct_ms(name)
        reach = [[(jct.mean - jct.low) / 1000], [(jct.high - jct.mean) / 1000]]
        axes.bar(place, jct.mean / 1000, yerr=reach, color=looks[LOOKS.get(name, name)]["color"], **BARS)
    measured_s = found.jobs["measured_ms"].mean() / 1000
    if not math.isnan(measured_s):
        axes.axhline(measured_s, color=GREY, linestyle="--", label="measured in the logs")
        axes.legend(frameon=False)
    axes.set_xticks(range(len(found.jct_ms)), [name.replace(" ", "\n") for name in found.jct_ms])
    finish_axes(axes, ylabel="Average job completion time (s)", title="Predicted, and 95 % of draws")
    axes.grid(visible=False, axis="x")


def _jobs(axes: Axes, found: WhatIf) -> None:
    best = min(found.jct_ms, key=lambda name: found.mean_jct_ms(name).mean)
    own = found.jct_ms[found.sparks_own].mean(axis=0)
    change = found.jct_ms[best].mean(axis=0) / own - 1
    colour = styles([LOOKS.get(best, best)])[LOOKS.get(best, best)]["color"]
    axes.scatter(own / 1000, change, s=14, color=colour, alpha=0.6, linewidths=0)
    axes.axhline(0, color=GREY, linewidth=1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xscale("log")
    for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        ticks(LogFormatter(minor_thresholds=(2, 0.5), labelOnlyBase=False))
    slower = float(np.mean(change > 0))
    finish_axes(
        axes,
        xlabel=f"Job completion time under {found.sparks_own} (s)",
        ylabel=f"Change under {best}",
        title=f"Each job; {slower:.0%} of them would take longer",
    )
