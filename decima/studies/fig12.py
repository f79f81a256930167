"""Figures 12 and 20 of the Decima paper: JCT and executors of each class by the work of jobs, against Graphene*."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.intervals import Interval
from decima.show.style import GREY, finish_axes, new_figure
from decima.show.tables import interval_text, new_table
from decima.studies.claims import Claim
from decima.studies.multi_resource import (
    GRAPHENE_STAR,
    GROUPS,
    INTERVAL_S,
    MEMORY,
    PURE,
    WINDOW_S,
    Usage,
    experiments,
    fragmentation_claim,
    learned,
    usage,
)
from decima.studies.study import Study
from decima.studies.study_report import FULL, Outcome, paired_change

__all__ = ["fig12", "plot_fig12", "plot_fig20"]

#: Of jobs, by total work.
FIFTHS = ("smallest", "second", "third", "fourth", "largest")


def fig12(study: Study, interval_s: float = INTERVAL_S, window_s: float = WINDOW_S) -> Outcome:
    """Jobs of either workload of Figure 11 by their work: Decima normalised to Graphene*.

    Args:
        study: how large, and on what; a workload that says which jobs arrive when is the trace.
        interval_s: mean time between TPC-H jobs, s.
        window_s: length of the trace's windows, s.

    Raises:
        CompareError: an experiment with fewer than 5 jobs.
    """
    trace = study.workload.sequence is not None
    conditions = experiments(study, trace=trace, interval_s=interval_s, window_s=window_s)
    schedulers = {**PURE, GRAPHENE_STAR: GRAPHENE_STAR, FULL: learned(study, conditions)}
    comparisons = study.compare({"": (conditions, schedulers)})
    found = usage(study, comparisons[""])
    ours, theirs = found[FULL], found[GRAPHENE_STAR]
    jct = [paired_change(ours.jct_ms[:, group], theirs.jct_ms[:, group]) for group in range(GROUPS)]
    executors = _changes(ours, theirs)
    largest = executors[0][-1]
    return Outcome(
        "fig12",
        f"{study.workload.name} jobs by their work, {study.executors} executors of {len(MEMORY)} sizes",
        comparisons,
        fragmentation=True,
        reference=GRAPHENE_STAR,
        claims=(
            Claim(
                "Decima completes jobs of all sizes faster than Graphene*.",
                "; ".join(
                    f"{name} {interval_text(each, '+.1%')}" for name, each in zip(FIFTHS, jct, strict=True)
                ),
                all(each.mean < 0 for each in jct),
            ),
            Claim(
                "Its gain is largest for small jobs.",
                f"JCT of the {FIFTHS[0]} fifth {jct[0].mean:+.1%}, of all others at best "
                f"{min(each.mean for each in jct[1:]):+.1%}",
                min(jct, key=lambda each: each.mean) is jct[0],
            ),
            Claim(
                f"On the {FIFTHS[0]} fifth of the jobs it uses 39% more executors of the largest class.",
                f"{interval_text(largest, '+.1%')}",
                largest.mean - largest.half_width > 0,
            ),
            fragmentation_claim(comparisons[""]),
        ),
        tables=(_table(jct, executors),),
        notes=(
            f"By work: fifths of each experiment's jobs, {FULL} against {GRAPHENE_STAR}, paired by experiment; of "
            "executors, how many ran a task of a job.",
        ),
        extra={
            "by_work": {
                name: {"jct_s": (each.jct_ms / 1000).tolist(), "executors": each.executors.tolist()}
                for name, each in found.items()
            },
            "change_of_jct": jct,
            "change_of_executors": executors,
        },
        pictures={"fig12": plot_fig12, "fig20": plot_fig20},
    )


def _changes(ours: Usage, theirs: Usage) -> list[list[Interval]]:
    """By what fraction more executors one uses than the other: a row for each group, an entry for each class."""
    return [
        [
            paired_change(ours.executors[:, group, kind], theirs.executors[:, group, kind])
            for kind in range(ours.executors.shape[2])
        ]
        for group in range(GROUPS)
    ]


def _table(jct: list[Interval], executors: list[list[Interval]]) -> Table:
    """A row for each group."""
    headings = ["JCT", *(f"Memory {memory:g}" for memory in MEMORY)]
    table = new_table(f"By work, {FULL} against {GRAPHENE_STAR}", "Jobs", *headings)
    for name, change, classes in zip(FIFTHS, jct, executors, strict=True):
        table.add_row(name, *(interval_text(each, "+.0%") for each in (change, *classes)))
    return table


def plot_fig12(outcome: Outcome) -> Figure:
    """JCT by total work, and executors of each class on the smallest fifth; 1 is what Graphene* has."""
    figure = new_figure(9, 3.6)
    by_work, classes = figure.subplots(1, 2)
    _draw(by_work, outcome.extra["change_of_jct"], FIFTHS, "JCT, relative to Graphene*")
    sizes = [f"{memory:g}" for memory in MEMORY]
    _draw(classes, outcome.extra["change_of_executors"][0], sizes, "Executors, relative to Graphene*")
    by_work.set_xlabel("Fifth of the jobs by total work")
    classes.set_xlabel(f"Memory of the executors, {FIFTHS[0]} fifth of the jobs")
    return figure


def plot_fig20(outcome: Outcome) -> Figure:
    """Executors of each class on jobs of each size; 1 is what Graphene* has."""
    figure = new_figure(12, 3.6)
    fields = figure.subplots(1, GROUPS, sharey=True)
    sizes = [f"{memory:g}" for memory in MEMORY]
    for axes, name, changes in zip(fields, FIFTHS, outcome.extra["change_of_executors"], strict=True):
        _draw(axes, changes, sizes, "Executors, relative to Graphene*" if axes is fields[0] else "")
        axes.set(xlabel="Memory of the executors", title=f"{name} fifth")
    highest = max(1 + mean + half for each in outcome.extra["change_of_executors"] for mean, half in each)
    fields[0].set_ylim(0, 1.05 * max(highest, 1.0))
    return figure


def _draw(axes: Axes, changes: list[Interval], names: tuple[str, ...] | list[str], ylabel: str) -> None:
    """Bars of ratios with their confidence intervals, and a line at 1."""
    means, half_widths = np.array(changes).T
    axes.bar(
        names, 1 + means, yerr=np.nan_to_num(half_widths), color="0.25", width=0.7, capsize=2, ecolor="0.55"
    )
    axes.axhline(1, color=GREY, linewidth=0.8)
    finish_axes(axes, ylabel=ylabel, ylim=(0, None))
    axes.grid(visible=False, axis="x")
