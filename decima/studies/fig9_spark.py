"""Figure 9 of the Decima paper on a real Spark: Decima in charge, against what Spark does by itself.

The jobs are those of a workload; their tasks sleep (``live_spark``). Each scheduler runs the same jobs, and the
simulator predicts each run: from the durations of the tasks, and from the overhead of tasks and stages on this machine,
which is measured before each run with a job of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.spark.schedulers import LOOKS, SPARKS_OWN, TRAINING_SEEDS, WEIGHTED_FAIR, tuned
from decima.registry import LEARNED
from decima.service.live_spark import live_spark, serving
from decima.service.sleeping import Setting, sleeping_history, sleeping_jobs
from decima.show.style import LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.outcome import OptionError, Outcome, Part
from workloads.job import JobProfile
from workloads.sources.open import EMBEDDED, open_workload

__all__ = ["change", "column", "compare_live", "compared_on_spark", "fig9_spark", "mean_s", "needs_spark"]

#: Shown name -> scheduler; all but Spark's own come through the plugin.
SCHEDULERS = {**SPARKS_OWN, **WEIGHTED_FAIR, LEARNED: LEARNED}
#: Runs that weighted fair sharing is tuned on, in the simulator.
TRAINING = 20


def compare_live(
    profiles: Sequence[JobProfile],
    setting: Setting,
    schedulers: Mapping[str, str] = SCHEDULERS,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[pd.DataFrame, str]:
    """Run batches of jobs on a real Spark under each scheduler, and predict them.

    The schedulers take turns with each batch, so that a machine that is busier for a while is busier for all.

    Args:
        profiles: what jobs are drawn from, see ``sleeping_jobs``.
        setting: what runs.
        schedulers: shown name -> scheduler.
        tell: progress callback: the number of runs done and of all.

    Returns:
        A row for each batch and scheduler: ``batch`` (int64), ``scheduler`` (str), ``real_ms`` and ``predicted_ms``
        (float64, mean JCT), ``task_ms`` and ``stage_ms`` (float64, see ``Overhead``), ``jct_ms`` (lists of float, of
        each job in order of arrival); and the setting of weighted fair sharing.

    Raises:
        WorkloadError: no profile is left.
        LiveSparkError: Spark or the service does not start, or a job fails.
        ImportError: pyspark is not installed.
    """
    import pyspark  # noqa: F401  # before anything takes long

    naps = sleeping_jobs(profiles, setting)
    batches = [setting.sequence(naps, setting.seed + batch) for batch in range(setting.batches)]
    training = (setting.sequence(naps, TRAINING_SEEDS + draw) for draw in range(TRAINING))
    specs, alpha = tuned(schedulers, setting.cluster, training)
    rows: list[dict[str, Any]] = []
    with sleeping_history(naps) as (folder, history):
        for (number, jobs), (name, spec) in product(enumerate(batches), specs.items()):
            with ExitStack() as programs:
                where, own = folder / f"{number}-{name.replace(' ', '-')}", name in SPARKS_OWN
                log = where.with_suffix(".jsonl")
                address = "" if own else programs.enter_context(serving(spec, history, log))
                spark = programs.enter_context(
                    live_spark(where, setting.executors, fair=spec == "fair" and own, address=address)
                )
                overhead = spark.overhead()
                jct_ms = spark.run(jobs)
            rows.append(
                {
                    "batch": number,
                    "scheduler": name,
                    "real_ms": float(jct_ms.mean()),
                    "predicted_ms": setting.predicted_ms(jobs, name, spec, overhead),
                    **overhead._asdict(),
                    "jct_ms": jct_ms.tolist(),
                }
            )
            tell(len(rows), len(specs) * len(batches))
    return pd.DataFrame(rows), alpha


@contextmanager
def needs_spark(name: str) -> Iterator[None]:
    """Raise ``OptionError`` if a package for Spark is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise OptionError(f"{name} needs {error.name}: pip install -e '.[spark]'") from None


# ---- results -----------------------------------------------------------------------------------------------


def column(runs: pd.DataFrame, scheduler: str, name: str = "real_ms") -> pd.Series[float]:
    """Return a column of a scheduler's runs by batch."""
    return runs[runs["scheduler"] == scheduler].set_index("batch")[name].sort_index()


def mean_s(runs: pd.DataFrame, scheduler: str, name: str = "real_ms") -> Interval:
    """Return the mean of a column over the batches, s."""
    mean_ms, half_width_ms = mean_interval(column(runs, scheduler, name))
    return Interval(mean_ms / 1000, half_width_ms / 1000)


def change(runs: pd.DataFrame, scheduler: str, other: str) -> Interval:
    """Return the relative difference of the mean JCT to another's; paired by batches, which count by their size."""
    base = column(runs, other)
    return mean_interval(column(runs, scheduler) / base - 1, base)


def compared_on_spark(runs: pd.DataFrame, others: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the JSON entry of each scheduler: mean JCT, ms, and its change against each of ``others``."""
    return {
        name: {
            "mean_jct_ms": mean_interval(column(runs, name))._asdict(),
            "change": {other: change(runs, name, other)._asdict() for other in others},
        }
        for name in runs["scheduler"].unique()
    }


def change_cells(runs: pd.DataFrame, name: str, others: Sequence[str]) -> list[str]:
    """Return the changes against others as texts; empty against itself."""
    return ["" if name == other else interval_text(change(runs, name, other), "+.1%") for other in others]


def fig9_spark(part: Part, workload: str | Path | None, **setting: Any) -> Outcome:
    """Compare schedulers on a real Spark.

    Args:
        part: progress callback.
        workload: profiles of jobs; by default the embedded TPC-H set.
        setting: fields of ``Setting``.

    Raises:
        OptionError: pyspark is not installed.
        LiveSparkError, WorkloadError: see ``compare_live``.
    """
    profiles, size = open_workload(workload or EMBEDDED).profiles, Setting(**setting)
    with needs_spark("fig9-spark"):
        runs, alpha = compare_live(profiles, size, tell=partial(part.tell, "running"))
    return outcome(runs, alpha, size)


def outcome(runs: pd.DataFrame, alpha: str, setting: Setting) -> Outcome:
    """Return the outcome of what ``compare_live`` measured."""
    own = [name for name in SPARKS_OWN if name in runs["scheduler"].unique()]
    entries = compared_on_spark(runs, own)
    for name, entry in entries.items():
        predicted_ms = float(column(runs, name, "predicted_ms").mean())
        entry |= {"predicted_ms": predicted_ms, "error": predicted_ms / entry["mean_jct_ms"]["mean"] - 1}
    batch = "Batch" if setting.arrivals == "batch" else "Stream"
    title = (
        f"{setting.batches} {'batches' if batch == 'Batch' else 'streams'} of {setting.jobs} jobs on Spark"
    )
    table = new_table(
        f"{title}, {setting.executors} executors",
        *("Scheduler", "Mean JCT", "Predicted", "Error", *(f"vs {name}" for name in own)),
    )
    for name, entry in entries.items():
        errors = (f"{entry['predicted_ms'] / 1000:.1f}", f"{entry['error']:+.1%}")
        table.add_row(name, interval_text(mean_s(runs, name)), *errors, *change_cells(runs, name, own))
    ranges = {
        name: f"{runs[name].mean():.0f} ms ({runs[name].min():.0f} to {runs[name].max():.0f})"
        for name in ("task_ms", "stage_ms")
    }
    return Outcome(
        "fig9-spark",
        runs,
        [table, _batches(runs, batch)],
        [
            "Times are seconds; ± is half a 95 % confidence interval (Student's t); changes are paired.",
            f"Tasks sleep; beside that a task took {ranges['task_ms']}, and a stage {ranges['stage_ms']} to begin, "
            "measured before each run with another job and predicted with it.",
            *[f"weighted fair: {alpha}, tuned in the simulator on other jobs."] * bool(alpha),
        ],
        extra={"setting": vars(setting), "weighted_fair": alpha, "schedulers": entries},
        pictures={"fig9-spark": partial(plot_live, runs, batch)},
    )


def _batches(runs: pd.DataFrame, batch: str) -> Table:
    names = runs["scheduler"].unique()
    table = new_table("Mean JCT of each, real and predicted", batch, *names)
    for number, rows in runs.groupby("batch"):
        by_name = rows.set_index("scheduler")[["real_ms", "predicted_ms"]] / 1000
        table.add_row(str(number), *("{:.1f}  {:.1f}".format(*by_name.loc[name]) for name in names))
    return table


def plot_live(runs: pd.DataFrame, batch: str) -> Figure:
    """Draw the mean JCT under each scheduler, real and predicted; and each batch."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    names, several = runs["scheduler"].unique(), len(runs["batch"].unique()) > 1
    looks = styles([LOOKS.get(name, name) for name in names])
    for place, name in enumerate(names):
        look, real = looks[LOOKS.get(name, name)], mean_s(runs, name)
        first = {"real": "real", "simulated": "simulated"} if not place else {}
        bars: dict[str, Any] = {"width": 0.38, "color": look["color"]}
        error = real.half_width if several else None
        left.bar(place - 0.2, real.mean, yerr=error, label=first.get("real"), **bars)
        predicted = mean_s(runs, name, "predicted_ms").mean
        left.bar(place + 0.2, predicted, alpha=0.4, label=first.get("simulated"), **bars)
        right.plot(column(runs, name).to_numpy() / 1000, marker="o", label=name, **look)
    left.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    left.legend(**LEGEND)
    finish_axes(left, ylabel="Average JCT (s)", title="Real and simulated, 95 % interval")
    left.grid(visible=False, axis="x")
    right.set_xticks(range(runs["batch"].nunique()))
    right.legend(**LEGEND)
    finish_axes(right, xlabel=batch, ylabel="Average JCT (s)", title="Each, real")
    right.set_ylim(bottom=0)
    return figure
