"""Carbon against JCT under rules that shift work to times of low carbon intensity (after PCAPS, arXiv 2502.09717)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval, mean_interval, paired_change
from decima.show.style import finish_axes, label_points, legend_beside, new_axes, styles
from decima.show.tables import interval_text, table_of
from decima.studies.compared import tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study
from workloads.sources.carbon import open_signal
from workloads.transform import AttributeDistribution

#: Carbon-aware rule -> candidate parameters; all rules extend ``srpt``.
FAMILIES = {
    "cap": ("0.8", "0.6", "0.4", "0.3"),
    "carbon-price": ("2", "5", "10", "20"),
    "pcaps": ("0.5",),
    "greenest-first": ("3",),
}
#: Rules without carbon signal.
BLIND = ("fair", RULE)
#: Rule whose settings are the reference curve of JCT over carbon.
FRONT = "cap"
#: Ranges of the slack of deadlines, as multiples of a job's time alone.
SLACKS = ((2.0, 4.0), (4.0, 16.0))
#: Rules for jobs with deadlines.
IN_TIME = (
    *(RULE, "least-slack", "cap:minimum=0.4,base=least-slack", "greenest-first:patience=3,base=least-slack"),
    *(f"carbon-price:{seconds}" for seconds in (5, 8, 12, 16, 20, 30, 40)),
)
#: Rule of this project for jobs with deadlines.
OURS = "carbon-slack"


class Saving(NamedTuple):
    """Carbon and JCT of a rule; changes are relative to ``srpt``, paired by experiment.

    Attributes:
        carbon: mean carbon of an experiment, g.
        saved: change of the carbon, as a fraction.
        jct_s: mean JCT, s.
        slower: change of the mean JCT, as a fraction.
        versus_cap: change of the mean JCT against CAP at equal carbon (interpolated); NaN outside the range of CAP.
        hours: mean executor time of an experiment, h.
    """

    carbon: Interval
    saved: Interval
    jct_s: Interval
    slower: Interval
    versus_cap: float
    hours: float


class EqualMisses(NamedTuple):
    """Carbon of ``carbon-slack`` against a random mixture of two other rules that misses as many deadlines.

    Attributes:
        rules: rules of the mixture with the least carbon, the one with fewer misses first; the rule with the fewest
            misses twice if no rule misses fewer deadlines than ``carbon-slack``.
        share: probability of the second rule in an experiment.
        change: relative change of the carbon, paired by experiment.
    """

    rules: tuple[str, str]
    share: float
    change: Interval


def carbon(study: Study, signal: str, interval_s: float) -> Outcome:
    """Compare rules on streams without and with deadlines; each experiment starts at another time of the signal."""
    plain = study.conditions(
        num_experiments=12, num_jobs=50, interval_s=interval_s, signal=open_signal(signal)
    )
    names = [*BLIND, *(f"{family}:{value}" for family, values in FAMILIES.items() for value in values)]
    conditions = {"": (plain, names)}
    for least, most in SLACKS:
        drawn = replace(plain, attributes=AttributeDistribution(slack=(least, most)))
        conditions[f"slack {least:g} to {most:g}"] = drawn, [*IN_TIME, OURS]
    runs, (_, *with_deadlines) = tidy(study.compare(conditions)), conditions
    found = savings(runs[runs["condition"] == ""])
    equal = {name: at_equal_misses(runs[runs["condition"] == name]) for name in with_deadlines}
    table = table_of(
        f"{study.title(plain)}, carbon of {signal}, {plain.num_experiments} experiments",
        ("Scheduler", "Carbon (g)", f"vs {RULE}", "Mean JCT (s)", f"vs {RULE}", "vs CAP", "Executor h"),
        (
            (name, *((each.carbon, None, each.jct_s, None, *each[4:]) if name == RULE else each))
            for name, each in found.items()
        ),
        (".0f", "+.1%", ".1f", "+.1%", "+.0%", ".1f"),
        unknown="",
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
            "seeds": list(plain.seeds),
        },
        pictures={"carbon": partial(plot_front, found)},
    )


def savings(runs: pd.DataFrame) -> dict[str, Saving]:
    """Return carbon and JCT of each rule, relative to ``srpt`` and to CAP.

    ``runs`` has columns ``scheduler``, ``seed``, ``carbon`` (g), ``mean_jct_s`` and ``executor_hours``.
    """
    by_name = _by_name(runs)
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
    """Compare the carbon of ``carbon-slack`` with mixtures of other rules that miss as many deadlines.

    ``runs`` has columns ``scheduler``, ``seed``, ``carbon`` (g) and ``deadline_misses``.
    """
    by_name = _by_name(runs)
    ours = by_name.pop(OURS)
    misses = {name: float(rows["deadline_misses"].mean()) for name, rows in by_name.items()}
    target = max(float(ours["deadline_misses"].mean()), min(misses.values()))
    mixed = {}
    carbon = {name: rows["carbon"] for name, rows in by_name.items()}
    for fewer, more in product(by_name, repeat=2):
        if misses[fewer] <= target <= misses[more]:
            gap = misses[more] - misses[fewer]
            share = (target - misses[fewer]) / gap if gap else 0.0
            mixed[fewer, more, share] = (1 - share) * carbon[fewer] + share * carbon[more]
    fewer, more, share = min(mixed, key=lambda key: float(mixed[key].mean()))
    change = paired_change(ours["carbon"], mixed[fewer, more, share])
    return EqualMisses((fewer, more if share else fewer), share, change)


def _by_name(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(name): rows.set_index("seed") for name, rows in runs.groupby("scheduler", sort=False)}


def _deadlines_table(runs: pd.DataFrame, condition: str) -> Table:
    columns = {"carbon": ".0f", "deadline_misses": ".1%", "mean_jct_s": ".1f"}
    mine = _by_name(runs[runs["condition"] == condition])
    rows = ((name, *(mean_interval(mine[name][each]) for each in columns)) for name in (*IN_TIME, OURS))
    headings = ("Scheduler", "Carbon (g)", "Misses", "Mean JCT (s)")
    return table_of(f"Deadlines, {condition}", headings, rows, (*columns.values(),), bold={OURS})


def _verdict(condition: str, found: EqualMisses) -> str:
    rules = " and ".join(dict.fromkeys(found.rules))
    alone = found.rules[0] == found.rules[1]
    which = "the rule with the fewest misses" if alone else "mixed, at equal misses"
    return f"{OURS}, {condition}: {interval_text(found.change, '+.1%')} carbon against {rules} ({which})."


def _family(name: str) -> str:
    return name.partition(":")[0]


def plot_front(found: Mapping[str, Saving]) -> Figure:
    """Draw the mean JCT over the carbon; a line joins the settings of a rule."""
    figure, axes = new_axes(7, 4.5)
    points = {name: (each.carbon.mean, each.jct_s.mean) for name, each in found.items()}
    for family, look in styles(dict.fromkeys(map(_family, found))).items():
        mine = [point for name, point in points.items() if _family(name) == family]
        axes.plot(*zip(*mine, strict=True), marker="o", label=family, **look)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    finish_axes(axes, xlabel="Carbon (g)", ylabel="Mean JCT (s)")
    legend_beside(axes)
    label_points(axes, {point: name.partition(":")[2] for name, point in points.items()})
    return figure
