"""Figure 15(a) of the Decima paper: how fast a policy is learned, by how it encodes the parallelism limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from decima.evaluation.tuning import HINDSIGHT
from decima.learning.metrics import read_metrics
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from decima.studies.compared import compared
from decima.studies.fig14 import NOTE, anchors
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study, Variant

__all__ = ["fig15a", "plot_fig15a"]

OUTPUTS, STAGES = "an output per limit", "limits of stages"

#: As the paper trains from nothing (section 5.3, challenge 1, and appendix C): 16 episodes an iteration, which end
#: early at first. Under an untrained policy jobs would only pile up, and the policy would learn to get out of states
#: that a better one never gets into. Mean ends are in mean times between arrivals.
SEQUENCES, FIRST_END, LAST_END = 4, 10, 60


def fig15a(study: Study, load: float) -> Outcome:
    """Compare limits as an input of one score function, as separate outputs, and of single stages; and other networks.

    Args:
        study: size and surroundings. A policy given as a file has no learning curve, so all are trained.
        load: share of busy executor time, on streams.
    """
    interval_s = study.interval_for_load(load)
    shapes: dict[str, tuple[str, dict[str, object]]] = {
        FULL: ("input", {}),
        OUTPUTS: ("outputs", {"limit": "outputs", "num_limits": study.executors}),
        STAGES: ("stage-limits", {"limit": "stage"}),
        **{name: (name.replace(" ", "-"), shape) for name, shape in anchors(study.executors).items()},
    }
    variants = {}
    for name, (suffix, shape) in shapes.items():
        overrides = {f"policy__overrides__{key}": each for key, each in ({"wait": False} | shape).items()}
        config = study.config(
            "stream",
            workload__interval=interval_s,
            behaviour_cloning=None,
            curriculum={"start": FIRST_END * interval_s, "end": LAST_END * interval_s},
            episodes__sequences=SEQUENCES,
            **overrides,
        )
        variants[name] = Variant(f"stream-{interval_s:g}s-scratch-{suffix}", config)
    trained = study.train(*variants.values())
    conditions = study.conditions(num_experiments=10, num_jobs=400, interval_s=interval_s)
    schedulers = {HINDSIGHT: HINDSIGHT, RULE: RULE}
    schedulers |= {name: trained[variant.name] for name, variant in variants.items()}
    folders = {name: study.policies / variant.name for name, variant in variants.items()}
    curves = {name: read_metrics(folder / "metrics.jsonl") for name, folder in folders.items()}
    return compared(
        "fig15a",
        f"{conditions.num_jobs} {study.workload.name} jobs {interval_s:g} s apart, {study.executors} executors",
        study.compare({"": (conditions, schedulers)}),
        notes=(
            f"{FULL}: the limit is an input of one function; {OUTPUTS}: of the job, chosen among separate outputs; "
            f"{STAGES}: each stage has its own.",
            NOTE,
            "All learn by reward from the first iteration on, without behaviour cloning, from episodes that end early "
            "at first; none may leave executors idle.",
            "The paper: separate outputs have more parameters and learn more slowly, as do limits of stages, which "
            "have more policies to explore; no figures.",
        ),
        curves=curves,
        pictures={"fig15a": partial(plot_fig15a, curves)},
    )


def plot_fig15a(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw the JCT on the validation sequences over the iterations; dashed: the tuned weighted fair.

    Args:
        curves: variant -> rows of its ``metrics.jsonl``.
    """
    figure, axes = new_axes(7, 4)
    looks = styles([*curves, HINDSIGHT])
    for name, rows in curves.items():
        judged = [row for row in rows if "validation_mean_jct_s" in row]
        iterations = [row["iteration"] for row in judged]
        axes.plot(iterations, [row["validation_mean_jct_s"] for row in judged], label=name, **looks[name])
    first = next(row for rows in curves.values() for row in rows if "improvement" in row)
    # improvement = 1 - JCT / JCT of the tuned weighted fair, which is the same for all: same sequences
    tuned = first["validation_mean_jct_s"] / (1 - first["improvement"])
    axes.axhline(tuned, label=HINDSIGHT, linewidth=1, **looks[HINDSIGHT])
    finish_axes(axes, xlabel="Iterations", ylabel="Average job completion time (s)", ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_beside(axes)
    return figure
