"""Carbon and completion time under rules that wait for times of low intensity (after PCAPS, arXiv 2502.09717)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval, mean_interval, paired_change
from decima.show.style import LEGEND, finish_axes, new_axes, styles
from decima.show.tables import interval_text, new_table
from decima.studies.compared import tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study
from workloads.attribute_distribution import AttributeDistribution
from workloads.sources.carbon import open_signal

__all__ = ["EqualMisses", "Saving", "at_equal_misses", "carbon", "savings"]

#: Rules and their parameters. All of them are around the rule ``priced-srpt``.
FAMILIES = {
    "cap": ("0.8", "0.6", "0.4", "0.3"),
    "carbon-price": ("2", "5", "10", "20"),
    "pcaps": ("0.5",),
    "greenest-first": ("3",),
}
#: Rules that know nothing of carbon.
BLIND = ("fair", RULE)
FRONT = "cap"
#: Slack of the deadlines, and rules where jobs have deadlines.
SLACKS = ((2.0, 4.0), (4.0, 16.0))
IN_TIME = (
    *(RULE, "least-slack", "cap:minimum=0.4,base=least-slack", "greenest-first:patience=3,base=least-slack"),
    *(f"carbon-price:{seconds}" for seconds in (5, 8, 12, 16, 20, 30, 40)),
)
OURS = "carbon-slack"


class Saving(NamedTuple):
    """Carbon and completion time of a rule.

    Attributes:
        carbon: mean carbon of an experiment, g.
        saved: change of the carbon against ``priced-srpt``, paired.
        jct_s: mean JCT, s.
        slower: change of the mean JCT against ``priced-srpt``, paired.
        versus_cap: mean JCT over that of CAP at the same carbon (interpolated), less 1; NaN outside of CAP's range.
        hours: mean executor time, hours.
    """

    carbon: Interval
    saved: Interval
    jct_s: Interval
    slower: Interval
    versus_cap: float
    hours: float


class EqualMisses(NamedTuple):
    """Carbon of ``carbon-slack`` against that of other rules which miss as many deadlines.

    Attributes:
        rules: two other rules, the first one with fewer misses. One of them, drawn for each experiment, misses as many
            deadlines on average, with the least carbon. The same rule twice if no rule misses fewer: that with the
            fewest.
        share: probability of the second one.
        change: relative change of the carbon, paired by experiment.
    """

    rules: tuple[str, str]
    share: float
    change: Interval


def carbon(study: Study, signal: str, interval_s: float) -> Outcome:
    """Compare rules on streams under a signal, each experiment from its own time on; then with deadlines."""
    conditions = study.conditions(
        num_experiments=12, num_jobs=50, interval_s=interval_s, signal=open_signal(signal)
    )
    names = [*BLIND, *(f"{family}:{value}" for family, values in FAMILIES.items() for value in values)]
    with_deadlines = {
        f"slack {least:g} to {most:g}": replace(
            conditions, attributes=AttributeDistribution(slack=(least, most))
        )
        for least, most in SLACKS
    }
    runs = tidy(
        study.compare(
            {"": (conditions, {name: name for name in names})}
            | {
                name: (each, {rule: rule for rule in (*IN_TIME, OURS)})
                for name, each in with_deadlines.items()
            }
        )
    )
    found = savings(runs[runs["condition"] == ""])
    equal = {name: at_equal_misses(runs[runs["condition"] == name]) for name in with_deadlines}
    title = f"{conditions.num_jobs} {study.workload.name} jobs {interval_s:g} s apart, {study.executors} executors"
    table = new_table(
        f"{title}, carbon of {signal}, {conditions.num_experiments} experiments",
        *("Scheduler", "Carbon (g)", f"vs {RULE}", "Mean JCT (s)", f"vs {RULE}", "vs CAP", "Executor h"),
    )
    for name, each in found.items():
        table.add_row(
            name,
            interval_text(each.carbon, ".0f"),
            "" if name == RULE else interval_text(each.saved, "+.1%"),
            interval_text(each.jct_s, ".1f"),
            "" if name == RULE else interval_text(each.slower, "+.1%"),
            f"{each.versus_cap:+.0%}" if np.isfinite(each.versus_cap) else "",
            f"{each.hours:.1f}",
        )
    return Outcome(
        "carbon",
        runs,
        [table, *(_deadlines_table(runs, name) for name in with_deadlines)],
        [
            "± is half a 95 % confidence interval (Student's t); changes are paired by experiment.",
            "vs CAP: mean JCT against that of cap with the same carbon, between two of its settings.",
            *(_verdict(name, each) for name, each in equal.items()),
        ],
        extra={
            "signal": signal,
            "interval_s": interval_s,
            "savings": {name: each._asdict() for name, each in found.items()},
            "equal_misses": {name: each._asdict() for name, each in equal.items()},
            "seeds": list(conditions.seeds),
        },
        pictures={"carbon": partial(plot_front, found)},
    )


def savings(runs: pd.DataFrame) -> dict[str, Saving]:
    """Return carbon and completion time of each rule, relative to ``priced-srpt`` and to CAP.

    Args:
        runs: a row for each ``scheduler`` and ``seed``, with ``carbon``, ``mean_jct_s`` and ``executor_hours``.
    """
    by_name = {str(name): rows.set_index("seed") for name, rows in runs.groupby("scheduler", sort=False)}
    blind = by_name[RULE]
    front = [(RULE, blind), *((name, rows) for name, rows in by_name.items() if _family(name) == FRONT)]
    points = sorted((rows["carbon"].mean(), rows["mean_jct_s"].mean()) for _, rows in front)
    at, jct_s = np.array(points).T
    found = {}
    for name, rows in by_name.items():
        cap_s = float(np.interp(rows["carbon"].mean(), at, jct_s, left=np.nan, right=np.nan))
        found[name] = Saving(
            mean_interval(rows["carbon"]),
            paired_change(rows["carbon"], blind["carbon"]),
            mean_interval(rows["mean_jct_s"]),
            paired_change(rows["mean_jct_s"], blind["mean_jct_s"]),
            np.nan if _family(name) == FRONT else float(rows["mean_jct_s"].mean()) / cap_s - 1,
            float(rows["executor_hours"].mean()),
        )
    return found


def at_equal_misses(runs: pd.DataFrame) -> EqualMisses:
    """Compare the carbon of ``carbon-slack`` with that of other rules at equal misses.

    Args:
        runs: a row for each ``scheduler`` and ``seed``, with ``carbon`` and ``deadline_misses``.
    """
    by_name = {str(name): rows.set_index("seed") for name, rows in runs.groupby("scheduler", sort=False)}
    ours = by_name.pop(OURS)
    misses = {name: float(rows["deadline_misses"].mean()) for name, rows in by_name.items()}
    target = max(float(ours["deadline_misses"].mean()), min(misses.values()))
    mixed = {}
    for fewer in (name for name in by_name if misses[name] <= target):
        for more in (name for name in by_name if misses[name] >= target):
            gap = misses[more] - misses[fewer]
            share = (target - misses[fewer]) / gap if gap else 0.0
            mixed[fewer, more, share] = (1 - share) * by_name[fewer]["carbon"] + share * by_name[more][
                "carbon"
            ]
    fewer, more, share = min(mixed, key=lambda key: float(mixed[key].mean()))
    change = paired_change(ours["carbon"], mixed[fewer, more, share])
    return EqualMisses((fewer, more if share else fewer), share, change)


def _deadlines_table(runs: pd.DataFrame, condition: str) -> Table:
    table = new_table(f"Deadlines, {condition}", "Scheduler", "Carbon (g)", "Misses", "Mean JCT (s)")
    for name in (*IN_TIME, OURS):
        mine = runs[(runs["condition"] == condition) & (runs["scheduler"] == name)]
        table.add_row(
            name,
            interval_text(mean_interval(mine["carbon"]), ".0f"),
            interval_text(mean_interval(mine["deadline_misses"]), ".1%"),
            interval_text(mean_interval(mine["mean_jct_s"]), ".1f"),
            style="bold" if name == OURS else None,
        )
    return table


def _verdict(condition: str, found: EqualMisses) -> str:
    rules = " and ".join(dict.fromkeys(found.rules))
    which = (
        "the rule with the fewest misses" if found.rules[0] == found.rules[1] else "mixed, at equal misses"
    )
    return f"{OURS}, {condition}: {interval_text(found.change, '+.1%')} carbon against {rules} ({which})."


def _family(name: str) -> str:
    return name.partition(":")[0]


def plot_front(found: Mapping[str, Saving]) -> Figure:
    """Draw the mean JCT of all rules over their carbon; settings of a rule are joined."""
    figure, axes = new_axes(7, 4.5)
    families: dict[str, list[str]] = {}
    for name in found:
        families.setdefault(_family(name), []).append(name)
    looks = styles(families)
    for family, names in families.items():
        points = [(found[name].carbon.mean, found[name].jct_s.mean) for name in names]
        axes.plot(*zip(*points, strict=True), marker="o", label=family, **looks[family])
        for name, point in zip(names, points, strict=True):
            value = name.partition(":")[2]
            axes.annotate(value, point, (4, 4), textcoords="offset points", fontsize="x-small")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    finish_axes(axes, xlabel="Carbon (g)", ylabel="Mean JCT (s)")
    axes.legend(**LEGEND)
    return figure
