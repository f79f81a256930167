"""Figures 12 and 20 of the Decima paper: JCT and executors of each class by the work of jobs, against Graphene*."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decima.evaluation.intervals import Interval, paired_change
from decima.show.style import GREY, finish_axes, new_figure
from decima.show.tables import interval_text, new_table
from decima.studies.compared import compared, tidy
from decima.studies.multi_resource import (
    GRAPHENE_STAR,
    GROUPS,
    MEMORY,
    PURE,
    experiments,
    fragmentation_claim,
    learned,
    usage,
)
from decima.studies.outcome import FULL, Claim, Outcome
from decima.studies.study import Study

__all__ = ["fig12", "plot_fig12", "plot_fig20"]

#: Groups of jobs, by total work.
FIFTHS = ("smallest", "second", "third", "fourth", "largest")
SIZES = [f"{memory:g}" for memory in MEMORY]


def fig12(study: Study, interval_s: float = 4.0, window_s: float = 6480.0) -> Outcome:
    """Compare Decima with Graphene* by the work of jobs, on either workload of Figure 11.

    Args:
        study: size and surroundings; a workload that says which jobs arrive when is the trace.
        interval_s: mean time between TPC-H jobs, s.
        window_s: length of the trace's windows, s.

    Raises:
        CompareError: an experiment with fewer than 5 jobs.
    """
    trace = study.workload.sequence is not None
    conditions = experiments(study, trace=trace, interval_s=interval_s, window_s=window_s)
    schedulers = {**PURE, GRAPHENE_STAR: GRAPHENE_STAR, FULL: learned(study, conditions)}
    comparisons = study.compare({"": (conditions, schedulers)})
    runs, found = tidy(comparisons), usage(study, comparisons[""])
    ours, theirs = found[FULL], found[GRAPHENE_STAR]
    jct = [paired_change(ours.jct_ms[:, group], theirs.jct_ms[:, group]) for group in range(GROUPS)]
    #: a row for each group, an entry for each class
    executors = [
        [
            paired_change(ours.executors[:, group, kind], theirs.executors[:, group, kind])
            for kind in range(ours.executors.shape[2])
        ]
        for group in range(GROUPS)
    ]
    table = new_table(
        f"By work, {FULL} against {GRAPHENE_STAR}", "Jobs", "JCT", *(f"Memory {size}" for size in SIZES)
    )
    for name, change, classes in zip(FIFTHS, jct, executors, strict=True):
        table.add_row(name, *(interval_text(each, "+.0%") for each in (change, *classes)))
    return compared(
        "fig12",
        f"{study.workload.name} jobs by their work, {study.executors} executors of {len(MEMORY)} sizes",
        comparisons,
        runs=runs,
        columns=("fragmentation",),
        reference=GRAPHENE_STAR,
        claims=(*_claims(jct, executors[0][-1]), fragmentation_claim(runs)),
        tables=(table,),
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
        pictures={"fig12": partial(plot_fig12, jct, executors), "fig20": partial(plot_fig20, executors)},
    )


def _claims(jct: Sequence[Interval], largest: Interval) -> list[Claim]:
    others = min(each.mean for each in jct[1:])
    return [
        Claim(
            "Decima completes jobs of all sizes faster than Graphene*.",
            "; ".join(
                f"{name} {interval_text(each, '+.1%')}" for name, each in zip(FIFTHS, jct, strict=True)
            ),
            all(each.mean < 0 for each in jct),
        ),
        Claim(
            "Its gain is largest for small jobs.",
            f"JCT of the {FIFTHS[0]} fifth {jct[0].mean:+.1%}, of all others at best {others:+.1%}",
            jct[0].mean <= others,
        ),
        Claim(
            f"On the {FIFTHS[0]} fifth of the jobs it uses 39% more executors of the largest class.",
            f"{interval_text(largest, '+.1%')}",
            largest.mean - largest.half_width > 0,
        ),
    ]


def plot_fig12(jct: Sequence[Interval], executors: Sequence[Sequence[Interval]]) -> Figure:
    """Draw the JCT by total work, and executors of each class on the smallest fifth; 1 is Graphene*'s value."""
    figure = new_figure(9, 3.6)
    by_work, classes = figure.subplots(1, 2)
    _draw(by_work, jct, FIFTHS, "JCT, relative to Graphene*")
    _draw(classes, executors[0], SIZES, "Executors, relative to Graphene*")
    by_work.set_xlabel("Fifth of the jobs by total work")
    classes.set_xlabel(f"Memory of the executors, {FIFTHS[0]} fifth of the jobs")
    return figure


def plot_fig20(executors: Sequence[Sequence[Interval]]) -> Figure:
    """Draw the executors of each class on jobs of each size; 1 is Graphene*'s value."""
    figure = new_figure(12, 3.6)
    fields = figure.subplots(1, GROUPS, sharey=True)
    for axes, name, changes in zip(fields, FIFTHS, executors, strict=True):
        _draw(axes, changes, SIZES, "Executors, relative to Graphene*" if axes is fields[0] else "")
        axes.set(xlabel="Memory of the executors", title=f"{name} fifth")
    highest = max(1 + mean + half for each in executors for mean, half in each)
    fields[0].set_ylim(0, 1.05 * max(highest, 1.0))
    return figure


def _draw(axes: Axes, changes: Sequence[Interval], names: Sequence[str], ylabel: str) -> None:
    """Draw bars of ratios with their confidence intervals, and a line at 1."""
    means, half_widths = np.array(changes).T
    error = np.nan_to_num(half_widths)
    axes.bar(names, 1 + means, yerr=error, color="0.25", width=0.7, capsize=2, ecolor="0.55")
    axes.axhline(1, color=GREY, linewidth=0.8)
    finish_axes(axes, ylabel=ylabel, ylim=(0, None))
    axes.grid(visible=False, axis="x")
