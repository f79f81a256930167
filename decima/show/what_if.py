"""Report on predicted JCTs of a cluster's jobs under other schedulers: tables, notes and a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, PercentFormatter
from numpy.typing import NDArray
from rich.table import Table

from decima.evaluation.spark import LOOKS
from decima.evaluation.spark.what_if import Range, WhatIf
from decima.registry import LEARNED
from decima.show.style import BARS, GREY, finish_axes, new_figure, styles
from decima.show.tables import Report, table_of

#: Largest difference of the simulation from measured times with which predictions are reliable.
LARGEST_CHECKED = 0.15
#: Maximum number of queries or clusters in a table; the JSON contains all.
MOST_ROWS = 25


def shown(what_if: WhatIf, command: str, about_logs: Sequence[str] = ()) -> Report:
    """Return the report of predictions.

    Args:
        what_if: the predictions.
        command: command line that repeats them.
        about_logs: notes about the logs.
    """
    check, *warnings = _check(what_if)
    return Report(
        tables=[
            _schedulers(what_if),
            *([_clusters(what_if)] if len(what_if.logged) > 1 else []),
            _queries(what_if),
        ],
        notes=[_conclusion(what_if), *about_logs, *_notes(what_if)],
        json=what_if.to_json(command=command),
        pictures={"what-if": partial(plot_what_if, what_if)},
        lead=[check],
        warnings=warnings,
    )


def _schedulers(what_if: WhatIf) -> Table:
    sparks_own, slots = what_if.sparks_own, what_if.logged[0].cluster.num_executors
    where = (
        f"{slots} executor{'s' * (slots != 1)}"
        if len(what_if.logged) == 1
        else f"on {len(what_if.logged)} clusters, each by itself"
    )
    title = f"{len(what_if.jobs)} job{'s' * (len(what_if.jobs) > 1)} as they came, {where}"
    if all(reasons := [logged.why_equal for logged in what_if.logged]):
        title += f"; no scheduler can change their times: {', or '.join(dict.fromkeys(reasons))}"
    rows: list[tuple[Any, ...]] = [
        ("measured", what_if.jobs["measured_ms"].mean() / 1000, None, None, None),
        ("as it ran", *_mean_and_range(what_if.as_it_ran_ms), None, None),
    ]
    for name, jct_ms in what_if.jct_ms.items():
        change = what_if.change(name)
        versus = (
            (change.mean, f"{change.low:+.1%} to {change.high:+.1%}") if name != sparks_own else (None, None)
        )
        rows.append((name, *_mean_and_range(jct_ms), *versus))
    headings = ("Scheduler", "Mean JCT (s)", "95 % of draws", f"vs {sparks_own}", "95 % of draws")
    return table_of(title, headings, rows, (".1f", "", "+.1%", ""))


def _mean_and_range(jct_ms: NDArray[np.float64]) -> tuple[float, str | None]:
    """Return the mean JCT of the simulated jobs in s, NaN if there are none, and the range over the draws as text."""
    jct_ms = jct_ms[:, ~np.isnan(jct_ms).any(axis=0)]
    if not jct_ms.size:
        return math.nan, None
    jct = Range.of(jct_ms.mean(axis=1) / 1000)
    return jct.mean, f"{jct.low:.1f} to {jct.high:.1f}"


def _clusters(what_if: WhatIf) -> Table:
    """Return a row for each cluster in which the order of jobs matters, and one for all others of the same reason."""
    table, rows = what_if.by_cluster(), []
    times = ["measured_s", "as_it_ran_s", *what_if.jct_ms]
    for _, row in table[table["why_equal"] == ""].head(MOST_ROWS).iterrows():
        first, *more = row["applications"].split(", ")
        name = f"{first} and {len(more)} more" if more else first
        counts = (str(row["executors"]), str(row["jobs"]), row["ran_under"] or "-")
        rows.append((name, *counts, *(row[name] for name in times)))
    for reason, alike in table[table["why_equal"] != ""].groupby("why_equal"):
        name = f"{len(alike)} cluster{'s' * (len(alike) > 1)} in which {reason}"
        means = alike[times].mul(alike["jobs"], axis=0).sum(skipna=False) / alike["jobs"].sum()
        rows.append((name, "", str(alike["jobs"].sum()), "", *means))
    names = ("Application", "Executors", "Jobs", "Ran under", "Measured", "As it ran", *what_if.jct_ms)
    result = table_of("Mean seconds by cluster", [_two_lines(name) for name in names], rows, ".1f")
    result.columns[0].min_width = 16
    return result


def _queries(what_if: WhatIf) -> Table:
    title = "Mean seconds by query, those with most time first"
    headings = [_two_lines(name) for name in ("Query", "Jobs", "Measured", "As it ran", *what_if.jct_ms)]
    forms = (".0f", *[".1f"] * (2 + len(what_if.jct_ms)))
    return table_of(title, headings, what_if.by_query().head(MOST_ROWS).itertuples(name=None), forms)


def _conclusion(what_if: WhatIf) -> str:
    """Say whether the best scheduler is better than Spark's own in 95 % of the draws."""
    sparks_own = what_if.sparks_own
    changes = {name: what_if.change(name) for name in what_if.jct_ms if name != sparks_own}
    best, change = min(changes.items(), key=lambda item: item[1].mean)
    if change.high < 0:
        return (
            f"Under {best}, jobs would complete {-change.mean:.1%} sooner than under {sparks_own}, on average; "
            f"{-change.high:.1%} to {-change.low:.1%} sooner in 95 % of the draws."
        )
    return f"Under no scheduler, jobs would complete sooner than under {sparks_own} in 95 % of the draws."


def _notes(what_if: WhatIf) -> list[str]:
    error, bias = what_if.held_out.error, what_if.held_out.bias
    delays_s = sorted({round(logged.cluster.moving_delay_ms / 1000, 2) for logged in what_if.logged})
    range_s = " to ".join(f"{delay:.3g}" for delay in (delays_s[:1] + delays_s[1:][-1:]))
    notes = []
    matters = sum(not logged.why_equal for logged in what_if.logged)
    if 0 < matters < len(what_if.logged):
        notes.append(f"The order of jobs matters in {matters} of {len(what_if.logged)} clusters.")
    waited_s = np.concatenate([logged.waited_ms for logged in what_if.logged]) / 1000
    if (late := waited_s[waited_s > 0]).size:
        notes.append(
            f"{late.size} of {waited_s.size} jobs arrived without any executor, and waited {late.mean():.1f} s on "
            "average for the first one, in the log and under every scheduler."
        )
    if any(
        logged.cluster_in(period) != logged.cluster
        for logged in what_if.logged
        for period in logged.periods()
    ):
        notes.append(
            "Executors of an application that was alone come as in the log, under every scheduler, and stay while jobs "
            "run; with dynamic allocation, Spark might ask for them at other times."
        )
    modelled = any(levels.size for logged in what_if.logged for job in logged.modelled for levels in job)
    unknown = f"; {what_if.knowledge}" if what_if.knowledge.unknown else ""
    notes += [
        f"Each draw has other task noise{', and other errors of the model' * modelled}; "
        f"executors take {range_s} s to move to another job.",
        f"Schedulers know the task times of each query{unknown}, no task fails and no executor is lost, whatever the "
        "logs say of errors and failures; decima compare uses those on a workload file of decima workload import "
        "spark.",
    ]
    if len(what_if.logged) > 1:
        notes.append(
            "Applications that did not run at the same time, or had executors of their own, shared no cluster: each "
            "is predicted by itself."
        )
    if what_if.held_out.runs.empty:
        if modelled:
            notes.append(
                "No query ran twice and alone: the ranges hold task noise only, not errors of the model."
            )
    else:
        used = "; jobs have such durations on the numbers of executors that their own run did not have"
        notes.append(
            f"Predictions of {len(what_if.held_out.runs)} single runs from the other runs of their query are off by "
            f"{error.mean:.1%} on average, bias {bias.mean:+.1%}{used * modelled}."
        )
    if what_if.setting:
        notes.append(f"weighted fair: {what_if.setting}, tuned on draws of its own.")
    if what_if.misfits and LEARNED in what_if.jct_ms:
        notes.append(
            f"{LEARNED} may do badly here, its policy is out of its training distribution: "
            f"{'; '.join(what_if.misfits)}."
        )
    return notes


def _check(what_if: WhatIf) -> list[str]:
    """Return a line about the difference between measured times and the simulation of the jobs as they ran.

    A warning follows if the difference is large.
    """
    table = what_if.as_it_ran()
    if table.empty:
        return [
            "The simulation cannot be checked: no job ended under Spark's own schedulers on executors of the log."
        ]
    measured_s, simulated_s = np.average(
        table[["measured_s", "simulated_s"]].to_numpy(), axis=0, weights=table["jobs"]
    )
    errors = table["error"].to_numpy()
    error, by_cluster = simulated_s / measured_s - 1, ""
    worst = errors[np.abs(errors).argmax()]
    if len(errors) > 1:
        median = np.median(np.abs(errors))
        by_cluster = f"; by cluster, the median difference is {median:.1%}, the largest {worst:+.1%}"
    notes = [
        "Check: simulated as the logs say that they ran, on the same executors, jobs take "
        f"{simulated_s:.1f} s; measured: {measured_s:.1f} s ({error:+.1%}{by_cluster})."
    ]
    if max(abs(error), abs(worst)) > LARGEST_CHECKED:
        wrong = (np.abs(errors) > LARGEST_CHECKED).sum()
        which = f"for {wrong} of {len(errors)} clusters" if len(errors) > 1 else "at all"
        notes.append(
            f"Do not rely on the predictions below {which}: the simulation differs from the measured times by more "
            f"than {LARGEST_CHECKED:.0%}."
        )
    return notes


def plot_what_if(what_if: WhatIf) -> Figure:
    """Draw the mean JCT under each scheduler, and the change of each job's JCT under the best other scheduler."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    _means(left, what_if)
    _jobs(right, what_if)
    return figure


def _means(axes: Axes, what_if: WhatIf) -> None:
    looks = styles(LOOKS.get(name, name) for name in what_if.jct_ms)
    bars = {name: (jct_ms, looks[LOOKS.get(name, name)]["color"]) for name, jct_ms in what_if.jct_ms.items()}
    if not np.isnan(what_if.as_it_ran_ms).any():
        bars = {"as it ran": (what_if.as_it_ran_ms, "0.85"), **bars}
    for index, (jct_ms, colour) in enumerate(bars.values()):
        jct = Range.of(jct_ms.mean(axis=1) / 1000)
        reach = np.maximum([[jct.mean - jct.low], [jct.high - jct.mean]], 0)  # differ by rounding
        axes.bar(index, jct.mean, yerr=reach, color=colour, **BARS)
    measured_s = what_if.jobs["measured_ms"].mean() / 1000
    if not math.isnan(measured_s):
        axes.axhline(measured_s, color=GREY, linestyle="--", label="measured in the logs")
        axes.margins(y=0.15)
        axes.legend(frameon=False, loc="upper center")
    axes.set_xticks(range(len(bars)), [_two_lines(name) for name in bars])
    finish_axes(axes, ylabel="Average job completion time (s)", title="Predicted, and 95 % of draws")
    axes.grid(visible=False, axis="x")


def _two_lines(name: str) -> str:
    """Break a name at its first space or after its first hyphen."""
    return re.sub(r"(?<=-)(?=.)| ", "\n", name, count=1)


def _jobs(axes: Axes, what_if: WhatIf) -> None:
    schedulers = [name for name in what_if.jct_ms if name != what_if.sparks_own] or [what_if.sparks_own]
    best = min(schedulers, key=lambda name: what_if.mean_jct_ms(name).mean)
    sparks_own_ms = what_if.jct_ms[what_if.sparks_own].mean(axis=0)
    change = what_if.jct_ms[best].mean(axis=0) / sparks_own_ms - 1
    colour = styles([LOOKS.get(best, best)])[LOOKS.get(best, best)]["color"]
    axes.scatter(sparks_own_ms / 1000, change, s=14, color=colour, alpha=0.6, linewidths=0)
    axes.axhline(0, color=GREY, linewidth=1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xscale("log")
    for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        ticks(LogFormatter(minor_thresholds=(2, 0.5), labelOnlyBase=False))
    slower = float(np.mean(change > 0))
    finish_axes(
        axes,
        xlabel=f"Job completion time under {what_if.sparks_own} (s)",
        ylabel=f"Change under {best}",
        title=f"Each job; {slower:.0%} of them would take longer",
    )
