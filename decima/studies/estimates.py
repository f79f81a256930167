"""Wrong estimates of task times: what schedulers gain against fair sharing, by the size of the error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import GREY, LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.catalogue import ERRORS
from decima.studies.compared import change, tidy
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study
from simulator.cluster.config import Knowledge

__all__ = ["estimates", "gains", "plot_estimates"]

#: Reference scheduler, which uses no estimates.
FAIR = "fair"
RULES = (
    *(FAIR, "weighted-fair:-1", "profiled-srpt", RULE, "gittins", "sjf-estimate"),
    *("srpt-bounce", "seh", "seh:0", "las", "hesrpt", "inelastic-first"),
)
EXACT = "exact"
KINDS = {
    "job": ("job_error", "Error per job (sigma)"),
    "stage": ("stage_error", "Error per stage (sigma)"),
    "unknown": ("unknown", "Share of jobs without history"),
}
#: (arrivals, error) -> scheduler -> change of the mean JCT against fair.
Gains = Mapping[tuple[str, str], Mapping[str, Interval]]


def estimates(study: Study, errors: Sequence[str], interval_s: float) -> Outcome:
    """Compare rules and a policy on batches and streams with wrong estimates; exact estimates are always included."""
    names = [name for name in ERRORS if name == EXACT or not errors or name in errors]
    schedulers = {name: name for name in RULES} | {FULL: f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"}
    streams = f"streams {interval_s:g} s apart"
    conditions = {
        f"{arrivals}, {name}": study.conditions(
            num_experiments=10, num_jobs=jobs, interval_s=apart, knowledge=_knowledge(name)
        )
        for arrivals, jobs, apart in (("batches", 20, None), (streams, 80, interval_s))
        for name in names
    }
    runs = tidy(study.compare({name: (each, schedulers) for name, each in conditions.items()}))
    found = gains(runs)
    worst = max(found, key=lambda cell: found[cell][RULE].mean - found[cell][RULE].half_width)
    jobs = [each.num_jobs for each in conditions.values()]
    count = next(iter(conditions.values())).num_experiments
    return Outcome(
        "estimates",
        runs,
        _tables(found, f"{study.workload.name} jobs, {study.executors} executors, {count} experiments"),
        [
            "Change of the mean JCT against fair; paired; ± is half a 95 % confidence interval (Student's t).",
            f"Batches of {jobs[0]} jobs; streams of {jobs[-1]}. Errors are standard deviations of logarithms.",
            f"The cell that is worst for {RULE}, given its interval: {', '.join(worst)}: "
            f"{interval_text(found[worst][RULE], '+.1%')}.",
            "seh:0 is SRPT on what is left of the first estimate, without any correction.",
        ],
        extra={
            "gains": [
                {"arrivals": arrivals, "errors": errors, "changes": dict(changes)}
                for (arrivals, errors), changes in found.items()
            ],
            "seeds": sorted(runs["seed"].unique().tolist()),
        },
        pictures={"estimates": partial(plot_estimates, runs)},
    )


def _knowledge(name: str) -> Knowledge:
    kind, _, size = name.partition("-")
    return Knowledge(**{KINDS[kind][0]: float(size)}) if size else Knowledge()


def gains(runs: pd.DataFrame) -> dict[tuple[str, str], dict[str, Interval]]:
    """Return the paired relative change of each scheduler's mean JCT against fair's.

    Args:
        runs: tidy results; conditions are named ``batches, job-1`` and so on.

    Returns:
        (arrivals, errors) -> scheduler -> change.
    """
    conditions = {str(name): tuple(str(name).split(", ")) for name in runs["condition"].unique()}
    return {
        (arrivals, errors): {
            str(name): change(runs, name, FAIR, condition) for name in runs["scheduler"].unique()
        }
        for condition, (arrivals, errors) in conditions.items()
    }


def _tables(found: Gains, title: str) -> list[Table]:
    tables = []
    for arrivals in dict.fromkeys(arrivals for arrivals, _ in found):
        cells = {errors: changes for (each, errors), changes in found.items() if each == arrivals}
        per_job = [name for name in cells if name == EXACT or name.startswith("job")]
        for names in (per_job, [name for name in cells if name not in per_job]):
            if names:
                table = new_table(f"{arrivals.capitalize()}: {title}", "Scheduler", *names)
                for scheduler in next(iter(cells.values())):
                    values = (interval_text(cells[name][scheduler], "+.1%") for name in names)
                    table.add_row(scheduler, *values, style="bold" if scheduler == FULL else None)
                tables.append(table)
    return tables


def plot_estimates(runs: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the size of the error: a row for each kind of arrivals, a column for each kind of error.

    The dotted line is the strongest rule with exact estimates.
    """
    means = runs.groupby(["condition", "scheduler"], sort=False)["mean_jct_s"].mean()
    kinds = dict.fromkeys(condition.partition(", ")[0] for condition in means.index.unique(0))
    figure, looks = new_figure(13, 8), styles(means.index.unique(1))
    panels = figure.subplots(len(kinds), len(KINDS), squeeze=False, sharey="row")
    for row, arrivals in zip(panels, kinds, strict=True):
        for axes, (kind, (_, label)) in zip(row, KINDS.items(), strict=True):
            names = {
                float(name.partition("-")[2] or 0): f"{arrivals}, {name}"
                for name in ERRORS
                if name.startswith((EXACT, kind)) and f"{arrivals}, {name}" in means.index.unique(0)
            }
            for scheduler, look in looks.items():
                values = [means[name, scheduler] for name in names.values()]
                axes.plot(list(names), values, label=scheduler, marker=".", **look)
            axes.axhline(means[f"{arrivals}, {EXACT}", RULE], color=GREY, linestyle=":", linewidth=0.8)
            finish_axes(axes, title=arrivals.capitalize(), xlabel=label, ylabel="Mean JCT (s)")
    panels[0][-1].legend(**LEGEND, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
