"""Figure 14 of the Decima paper: what each of its ideas is for, at growing load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from decima.evaluation.tuning import HINDSIGHT
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from decima.studies.anchors import NOTE, anchors
from decima.studies.study import Study, Variant
from decima.studies.study_report import FULL, RULE, Outcome, summary

__all__ = ["LOADS", "fig14", "plot_fig14"]

LOADS = (0.55, 0.65, 0.75, 0.85)

NO_LIMITS, NO_GRAPH, UNFIXED, BATCH = (
    "no parallelism control",
    "no graph embedding",
    "unfixed sequences",
    "trained on batches",
)


def fig14(study: Study, loads: Sequence[float] = LOADS) -> Outcome:
    """Policies that lack an idea each, or have another network, against the full one and weighted fair sharing.

    Args:
        study: how large, and on what.
        loads: shares of the time that executors are to be busy; all policies are trained at the highest.
    """
    loads = sorted(set(loads))
    intervals = {load: study.interval_for_load(load) for load in loads}
    interval_s = intervals[loads[-1]]

    full = study.stream_variant(interval_s)

    def without(name: str, **settings: object) -> Variant:
        return Variant(
            f"{full.name}-{name}", study.config("stream", workload__interval=interval_s, **settings)
        )

    batches = replace(study, num_jobs=None)  # how long streams are says nothing of batches
    variants = {
        NO_LIMITS: without("no-limits", policy__overrides__limit="none", policy__overrides__wait=False),
        NO_GRAPH: without("no-graph", policy__overrides__graph=False),
        UNFIXED: without("unfixed", episodes__fixed_sequences=False),
        BATCH: batches.batch_variant(),
        **{
            name: without(
                name.replace(" ", "-"), **{f"policy__overrides__{key}": each for key, each in shape.items()}
            )
            for name, shape in anchors(study.executors).items()
        },
    }
    # Of equal training, so the policy that comes with the project does not stand for the full one.
    schedulers = {HINDSIGHT: HINDSIGHT, RULE: RULE, FULL: study.full_policy(full)}
    # The one for batches is of its own recipe anyway, and so is that which ships.
    num_jobs = variants[BATCH].config.workload.jobs
    specialist = batches.specialist(batches.conditions(num_experiments=1, num_jobs=num_jobs))
    ready = {} if specialist is None else {BATCH: specialist}
    trained = study.train(*(variant for name, variant in variants.items() if name not in ready))
    schedulers |= {name: ready.get(name) or trained[variant.name] for name, variant in variants.items()}
    conditions = {
        f"load {100 * load:g}%": study.conditions(
            num_experiments=10, num_jobs=400, interval_s=intervals[load]
        )
        for load in loads
    }
    comparisons = study.compare({name: (each, schedulers) for name, each in conditions.items()})
    measured = {name: float(each.runs(HINDSIGHT)["load"].mean()) for name, each in comparisons.items()}
    jobs = next(iter(conditions.values())).num_jobs
    return Outcome(
        "fig14",
        f"{jobs} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        paper={
            **{(name, NO_LIMITS): "unstable from 55% on" for name in conditions},
            **{
                (name, UNFIXED): "2 times decima's"
                for load, name in zip(loads, conditions, strict=True)
                if load > 0.75
            },
            **{
                (name, BATCH): "worse than tuned"
                for load, name in zip(loads, conditions, strict=True)
                if load > 0.65
            },
        },
        notes=(
            f"All were trained with {interval_s:g} s between arrivals, the highest load, for as many iterations; "
            "the one for batches with its own recipe"
            + (
                "." if specialist is None else f": it comes with the project, {specialist.partition(':')[2]}."
            ),
            "Loads measured under tuned weighted fair: "
            + ", ".join(f"{name.removeprefix('load ')}: {load:.0%}" for name, load in measured.items())
            + "; jobs arrive "
            + ", ".join(f"{interval:g}" for interval in intervals.values())
            + " s apart.",
            NOTE,
            "The paper: without any of the ideas, Decima falls behind the tuned weighted fair at high load.",
        ),
        extra={
            "interval_s": {name: each.interval_ms / 1000 for name, each in conditions.items()},
            "measured_load": measured,
        },
        pictures={"fig14": plot_fig14},
    )


def plot_fig14(outcome: Outcome) -> Figure:
    """Mean JCT over the load, a line for each policy."""
    comparisons, table = outcome.comparisons, summary(outcome.comparisons)
    figure, axes = new_axes(7, 4)
    names = list(next(iter(comparisons.values())).schedulers)
    places = [float(name.removeprefix("load ").removesuffix("%")) for name in comparisons]
    for name, look in styles(names).items():
        means = [table[condition, name]["mean_jct_s"] for condition in comparisons]
        axes.plot(places, means, label=name, marker="o", markersize=4, **look)
    axes.set_xticks(places)
    finish_axes(axes, xlabel="Load (%)", ylabel="Average job completion time (s)", yscale="log")
    axes.yaxis.set_minor_formatter(LogFormatter())
    legend_beside(axes)
    return figure
