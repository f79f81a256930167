"""Figure 13 of the Decima paper: what is learned follows the objective and the cost of moving an executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from matplotlib.figure import Figure

from decima.evaluation.tuning import HINDSIGHT, MAKESPAN_HINDSIGHT
from decima.show.style import LEGEND, new_figure
from decima.studies.compared import compared
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study, Variant
from simulator.cluster.picture import draw_schedule
from simulator.cluster.record import EpisodeRecord

__all__ = ["fig13", "plot_fig13"]

MOVES_COST, MOVES_FREE = "moves take 2 s", "moves are free"
#: The policies, by their objective.
FOR_JCT, FOR_JCT_FREE, FOR_MAKESPAN = "decima for JCT", "decima for JCT, free moves", "decima for makespan"
#: Condition and scheduler of each panel: each policy under the condition of its training.
PANELS = ((MOVES_COST, FOR_JCT), (MOVES_FREE, FOR_JCT_FREE), (MOVES_COST, FOR_MAKESPAN))


def fig13(study: Study) -> Outcome:
    """Compare three policies, trained for the average JCT with the moving delay, without it, and for the makespan."""
    no_delay = Variant("batch-free-moves", study.config("batch", cluster__moving_delay=0.0))
    makespan = Variant("batch-makespan", study.config("makespan"))
    costly = study.conditions(num_experiments=50, num_jobs=20)
    free = replace(costly, cluster=replace(costly.cluster, moving_delay_ms=0.0))
    jct_policy = study.full_policy(study.batch_variant(), shipped_for=costly)
    trained = study.train(no_delay, makespan)
    schedulers = {
        "fair": "fair",
        HINDSIGHT: HINDSIGHT,
        "weighted fair for makespan": MAKESPAN_HINDSIGHT,
        RULE: RULE,
        FOR_JCT: jct_policy,
        FOR_JCT_FREE: trained[no_delay.name],
        FOR_MAKESPAN: trained[makespan.name],
    }
    comparisons = study.compare({MOVES_COST: (costly, schedulers), MOVES_FREE: (free, schedulers)}, keep=True)
    episodes = {name: each.episodes for name, each in comparisons.items()}
    return compared(
        "fig13",
        f"Batches of {costly.num_jobs} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        paper={
            (MOVES_COST, FOR_JCT): "67.3, makespan 119.6",
            (MOVES_FREE, FOR_JCT_FREE): "61.4, makespan 114.3",
            (MOVES_COST, FOR_MAKESPAN): "74.5, makespan 102.1",
        },
        notes=("The paper's figures are of one batch of its own; what can be compared is how they differ.",),
        columns=("makespan_s",),
        pictures={"fig13": partial(plot_fig13, [episodes[where][name] for where, name in PANELS])},
    )


def plot_fig13(records: Sequence[EpisodeRecord]) -> Figure:
    """Draw the schedules of the three policies, in the order of ``PANELS``, on one time axis."""
    end_s = max(record.end_ms for record in records) / 1000
    figure = new_figure(8, 9)
    for place, ((condition, scheduler), record) in enumerate(zip(PANELS, records, strict=True)):
        axes = figure.add_subplot(3, 1, place + 1)
        jct_s, makespan_s = record.mean_jct_ms / 1000, record.makespan_ms / 1000
        title = f"{scheduler}: average JCT {jct_s:.1f} s, makespan {makespan_s:.1f} s"
        handles = draw_schedule(axes, record, end_s)
        axes.set_title(f"{title} ({condition})", loc="left", fontsize="medium")
    figure.legend(handles=handles, ncols=3, loc="outside lower right", **LEGEND)
    return figure
