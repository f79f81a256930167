"""Figure 14 of the Decima paper: what each of its ideas is for, at growing load. Networks of re-implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from decima.evaluation.tuning import HINDSIGHT
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from decima.studies.compared import compared, tidy
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study, Variant

__all__ = ["ATTENTION", "NOTE", "PLAIN", "anchors", "fig14", "plot_fig14"]

NO_LIMITS, NO_GRAPH = "no parallelism control", "no graph embedding"
UNFIXED, BATCH = "unfixed sequences", "trained on batches"
#: Networks as public re-implementations of Decima have them.
PLAIN, ATTENTION = "plain GNN", "attention"
NOTE = (
    f"As in public re-implementations, {PLAIN}: sums without a second network behind them, and an output for each "
    f"limit, which is no input; {ATTENTION}: weighted means over children in place of sums."
)


def anchors(executors: int) -> dict[str, dict[str, object]]:
    """Return the settings of ``PolicyConfig`` in which networks of public re-implementations differ, by name.

    Args:
        executors: of the cluster; the number of limits that have outputs.
    """
    plain: dict[str, object] = {"aggregate": False, "summary_aggregate": False}
    outputs: dict[str, object] = {"limit": "outputs", "num_limits": executors, "wait": False}
    return {PLAIN: plain | outputs, ATTENTION: {"encoder": "attention"}}


def fig14(study: Study, loads: Sequence[float]) -> Outcome:
    """Compare policies that lack an idea each, or have another network, with the full one and weighted fair sharing.

    Args:
        study: size and surroundings.
        loads: shares of busy executor time; all policies are trained at the highest.
    """
    loads = sorted(set(loads))
    intervals = {load: study.interval_for_load(load) for load in loads}
    interval_s = intervals[loads[-1]]
    full = study.stream_variant(interval_s)

    def without(name: str, **settings: object) -> Variant:
        config = study.config("stream", workload__interval=interval_s, **settings)
        return Variant(f"{full.name}-{name}", config)

    batches = replace(study, num_jobs=None)  # the length of streams says nothing of batches
    variants = {
        NO_LIMITS: without("no-limits", policy__overrides__limit="none", policy__overrides__wait=False),
        NO_GRAPH: without("no-graph", policy__overrides__graph=False),
        UNFIXED: without("unfixed", episodes__fixed_sequences=False),
        BATCH: batches.batch_variant(),
    }
    for name, shape in anchors(study.executors).items():
        overrides = {f"policy__overrides__{key}": each for key, each in shape.items()}
        variants[name] = without(name.replace(" ", "-"), **overrides)
    # Of equal training, so the policy that comes with the project does not stand for the full one.
    schedulers = {HINDSIGHT: HINDSIGHT, RULE: RULE, FULL: study.full_policy(full)}
    # The one for batches is of its own recipe anyway, and so is that which ships.
    num_jobs = variants[BATCH].config.workload.jobs
    specialist = batches.specialist(batches.conditions(num_experiments=1, num_jobs=num_jobs))
    ready = {} if specialist is None else {BATCH: specialist}
    trained = study.train(*(variant for name, variant in variants.items() if name not in ready))
    schedulers |= {name: ready.get(name) or trained[variant.name] for name, variant in variants.items()}
    names = {load: f"load {100 * load:g}%" for load in loads}
    conditions = {
        names[load]: study.conditions(num_experiments=10, num_jobs=400, interval_s=intervals[load])
        for load in loads
    }
    comparisons = study.compare({name: (each, schedulers) for name, each in conditions.items()})
    runs = tidy(comparisons)
    means = runs[runs["scheduler"] == HINDSIGHT].groupby("condition", sort=False)["load"].mean()
    measured = {str(name): float(load) for name, load in means.items()}
    shipped = "" if specialist is None else f": it comes with the project, {specialist.partition(':')[2]}"
    told = ", ".join(f"{name.removeprefix('load ')}: {load:.0%}" for name, load in measured.items())
    apart = ", ".join(f"{interval:g}" for interval in intervals.values())
    return compared(
        "fig14",
        f"{conditions[names[loads[0]]].num_jobs} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        runs=runs,
        paper={
            **{(name, NO_LIMITS): "unstable from 55% on" for name in conditions},
            **{(names[load], UNFIXED): "2 times decima's" for load in loads if load > 0.75},
            **{(names[load], BATCH): "worse than tuned" for load in loads if load > 0.65},
        },
        notes=(
            f"All were trained with {interval_s:g} s between arrivals, the highest load, for as many iterations; "
            f"the one for batches with its own recipe{shipped}.",
            f"Loads measured under tuned weighted fair: {told}; jobs arrive {apart} s apart.",
            NOTE,
            "The paper: without any of the ideas, Decima falls behind the tuned weighted fair at high load.",
        ),
        extra={
            "interval_s": {name: each.interval_ms / 1000 for name, each in conditions.items()},
            "measured_load": measured,
        },
        pictures={"fig14": partial(plot_fig14, runs)},
    )


def plot_fig14(runs: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the load, a line for each policy; conditions are such as ``load 85%``."""
    figure, axes = new_axes(7, 4)
    means = runs.pivot_table("mean_jct_s", "condition", "scheduler", sort=False)
    places = [float(str(name).removeprefix("load ").removesuffix("%")) for name in means.index]
    for name, look in styles(means.columns).items():
        axes.plot(places, means[name].to_numpy(), label=name, marker="o", markersize=4, **look)
    axes.set_xticks(places)
    finish_axes(axes, xlabel="Load (%)", ylabel="Average job completion time (s)", yscale="log")
    axes.yaxis.set_minor_formatter(LogFormatter())
    legend_beside(axes)
    return figure
