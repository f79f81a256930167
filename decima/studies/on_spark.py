"""Comparison of Decima with Spark's own schedulers on a real Spark on this machine; tasks sleep (``live_spark``).

``fig9-spark`` (Figure 9 of the Decima paper) runs jobs of one application. The simulator predicts each run from task
durations and from the overhead of tasks and stages, which a probe job measures before each run.

``spark-applications`` runs one application per job on a standalone cluster, as in the paper. Moving an executor to
another application takes the start of a JVM.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval, mean_interval
from decima.evaluation.spark import LOOKS, SPARKS_OWN, TRAINING_SEEDS, WEIGHTED_FAIR, tuned
from decima.outputs import atomic_path
from decima.registry import LEARNED
from decima.service.live_spark import LiveSparkError, Standalone, live_spark, serving, with_plugin
from decima.service.sleeping import Setting, sleeping_history, sleeping_jobs
from decima.show.style import INTERVAL, LEGEND, finish_axes, new_axes, new_figure, styles
from decima.show.tables import table_of
from decima.studies.outcome import OptionError, Outcome, Setup
from workloads.arrivals import JobSequence
from workloads.job import JobProfile
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload
from workloads.sources.workload_writer import write_workload

# ---- results of both studies -------------------------------------------------------------------------------


@contextmanager
def needs_spark(name: str) -> Iterator[None]:
    """Raise ``OptionError`` if the block needs a package that is not installed; ``name`` is the command."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise OptionError(f"{name} needs {error.name}: pip install -e '.[spark]'") from None


def _column(runs: pd.DataFrame, scheduler: str, name: str = "real_ms") -> pd.Series[float]:
    """Return a column of a scheduler's runs; the index is the batch."""
    return runs[runs["scheduler"] == scheduler].set_index("batch")[name].sort_index()


def _mean_s(runs: pd.DataFrame, scheduler: str, name: str = "real_ms") -> Interval:
    """Return the mean of a column over batches, s, with its interval."""
    mean_ms, half_width_ms = mean_interval(_column(runs, scheduler, name))
    return Interval(mean_ms / 1000, half_width_ms / 1000)


def change(runs: pd.DataFrame, scheduler: str, other: str) -> Interval:
    """Return the relative change of the mean JCT from scheduler ``other``, paired by batch, weighted by its JCT."""
    base = _column(runs, other)
    return mean_interval(_column(runs, scheduler) / base - 1, base)


def _entries(runs: pd.DataFrame, others: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the JSON of each scheduler: mean JCT, ms, and its change against each of ``others``."""
    return {
        name: {
            "mean_jct_ms": mean_interval(_column(runs, name))._asdict(),
            "change": {other: change(runs, name, other)._asdict() for other in others},
        }
        for name in runs["scheduler"].unique()
    }


def _changes(runs: pd.DataFrame, name: str, others: Sequence[str]) -> list[Interval | None]:
    """Return changes of the mean JCT against others; None for the scheduler itself."""
    return [None if name == other else change(runs, name, other) for other in others]


# ---- Figure 9: jobs of one application ---------------------------------------------------------------------

#: Displayed name -> scheduler; all but Spark's own schedulers decide through the plugin.
SCHEDULERS = {**SPARKS_OWN, **WEIGHTED_FAIR, LEARNED: LEARNED}
#: Number of simulated batches on which weighted fair sharing is tuned.
TRAINING = 20


def fig9_spark(setup: Setup, workload: str | Path | None, **setting: Any) -> Outcome:
    """Compare schedulers on a real Spark; ``setting`` has the fields of ``Setting``, see ``compare_live``."""
    profiles, size = open_workload(workload or EMBEDDED).profiles, Setting(**setting)
    with needs_spark("fig9-spark"):
        runs, alpha = compare_live(profiles, size, tell=partial(setup.tell, "running"))
    return fig9_outcome(runs, alpha, size)


def compare_live(
    profiles: Sequence[JobProfile],
    setting: Setting,
    schedulers: Mapping[str, str] = SCHEDULERS,
    tell: Callable[[int, int], None] = lambda done, total: None,
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, str]:
    """Run batches of jobs on a real Spark under each scheduler, and predict their JCT.

    All schedulers run a batch before the next batch starts, so that other load of the machine affects them equally.
    ``elsewhere``: see ``live_spark``.

    Returns:
        One row per batch and scheduler; columns ``batch`` (int64), ``scheduler`` (str), ``real_ms`` and
        ``predicted_ms`` (float64, mean JCT), ``task_ms`` and ``stage_ms`` (float64, see ``Overhead``), ``jct_ms`` (list
        of float, by job in order of arrival). And the tuned weighted fair sharing, as a scheduler.

    Raises:
        WorkloadError: Spark cannot run any of the profiles.
        LiveSparkError: Spark or the service does not start, or a job fails.
        ImportError: pyspark is not installed.
    """
    import pyspark  # noqa: F401  # fails before the work begins

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
                fair = spec == "fair" and own
                spark = programs.enter_context(
                    live_spark(where, setting.executors, fair=fair, address=address, elsewhere=elsewhere)
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


def fig9_outcome(runs: pd.DataFrame, alpha: str, setting: Setting) -> Outcome:
    """Return the outcome for runs and tuned scheduler of ``compare_live``."""
    own = [name for name in SPARKS_OWN if name in runs["scheduler"].unique()]
    entries = _entries(runs, own)
    for name, entry in entries.items():
        predicted_ms = float(_column(runs, name, "predicted_ms").mean())
        entry |= {"predicted_ms": predicted_ms, "error": predicted_ms / entry["mean_jct_ms"]["mean"] - 1}
    batch, batches = ("Batch", "batches") if setting.arrivals == "batch" else ("Stream", "streams")
    table = table_of(
        f"{setting.batches} {batches} of {setting.jobs} jobs on Spark, {setting.executors} executors",
        ("Scheduler", "Mean JCT", "Predicted", "Error", *(f"vs {name}" for name in own)),
        (
            (
                name,
                _mean_s(runs, name),
                each["predicted_ms"] / 1000,
                each["error"],
                *_changes(runs, name, own),
            )
            for name, each in entries.items()
        ),
        (".1f", ".1f", *["+.1%"] * (1 + len(own))),
    )
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
    times_s = (runs[["real_ms", "predicted_ms"]] / 1000).to_numpy()
    texts = runs.assign(text=[f"{real:.1f}  {predicted:.1f}" for real, predicted in times_s])
    by_batch = texts.pivot_table("text", "batch", "scheduler", aggfunc="first")[runs["scheduler"].unique()]
    headings = (batch, *by_batch)
    return table_of("Mean JCT of each, real and predicted", headings, by_batch.itertuples(name=None))


def plot_live(runs: pd.DataFrame, batch: str) -> Figure:
    """Draw the mean JCT under each scheduler, real and predicted, and the real mean JCT of each batch."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    names, several = runs["scheduler"].unique(), len(runs["batch"].unique()) > 1
    looks = styles([LOOKS.get(name, name) for name in names])
    for place, name in enumerate(names):
        look, real = looks[LOOKS.get(name, name)], _mean_s(runs, name)
        predicted = _mean_s(runs, name, "predicted_ms")
        labels = ("real", "simulated") if not place else (None, None)
        bars: dict[str, Any] = {"width": 0.38, "color": look["color"], "ecolor": INTERVAL}
        left.bar(place - 0.2, real.mean, yerr=real.half_width if several else None, label=labels[0], **bars)
        left.bar(place + 0.2, predicted.mean, alpha=0.4, label=labels[1], **bars)
    left.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    left.legend(**LEGEND)
    finish_axes(left, ylabel="Average JCT (s)", title="Real and simulated, 95 % interval")
    left.grid(visible=False, axis="x")
    by_name = {name: looks[LOOKS.get(name, name)] for name in names}
    _draw_batches(right, runs, by_name, xlabel=batch, ylabel="Average JCT (s)", title="Each, real")
    return figure


def _draw_batches(axes: Axes, runs: pd.DataFrame, looks: Mapping[str, Any], **labels: str) -> None:
    """Draw the mean completion time of each batch, one line per scheduler."""
    for name, look in looks.items():
        axes.plot(_column(runs, name).to_numpy() / 1000, marker="o", label=name, **look)
    axes.set_xticks(range(runs["batch"].nunique()))
    axes.legend(**LEGEND)
    finish_axes(axes, **labels)
    axes.set_ylim(bottom=0)


# ---- applications on a standalone cluster ------------------------------------------------------------------

#: Default of Spark's standalone master: all slots for the first application.
FIFO = "Spark FIFO"
#: Equal and constant numbers of slots for all applications, with ``spark.cores.max``.
SHARES = "static shares"
#: Way to share the cluster among applications -> scheduler with its colour in the picture.
WAYS = {FIFO: "fifo", SHARES: "fair", LEARNED: LEARNED}
#: Delay between registrations of simultaneous applications, s, which keeps their order.
APART_S = 0.5
#: Time limit of a batch, s: a constant, plus the time of all its work on one executor.
TIMEOUT_S = 300.0


def spark_applications(setup: Setup, workload: str | Path | None, **setting: Any) -> Outcome:
    """Compare ways to share a standalone cluster; executors of ``Setting`` are slots."""
    profiles, size = open_workload(workload or EMBEDDED).profiles, Setting(**setting)
    with needs_spark("spark-applications"):
        runs = compare_applications(profiles, size, partial(setup.tell, "running"))
    return applications_outcome(runs, size)


def compare_applications(
    profiles: Sequence[JobProfile], setting: Setting, tell: Callable[[int, int], None]
) -> pd.DataFrame:
    """Run batches of applications with one job each on a real cluster, each batch in all ways to share the cluster.

    Returns:
        One row per batch and way; columns ``batch`` (int64), ``scheduler`` (str, key of ``WAYS``), ``real_ms``
        (float64, mean completion time) and ``jct_ms`` (list of float, by application in order).

    Raises:
        WorkloadError: Spark cannot run any of the profiles.
        LiveSparkError: Spark or the service does not start, or an application fails.
        RecorderError: no Java, no pyspark, or the cluster does not start.
    """
    naps = sleeping_jobs(profiles, setting)
    rows: list[dict[str, Any]] = []
    with sleeping_history(naps) as (folder, history):
        for batch, way in product(range(setting.batches), WAYS):
            jobs = setting.sequence(naps, setting.seed + batch)
            where = folder / f"{batch} {way}".replace(" ", "-")
            jct_ms = _run(jobs, way, setting.executors, history, where)
            real_ms = float(np.mean(jct_ms))
            rows.append({"batch": batch, "scheduler": way, "real_ms": real_ms, "jct_ms": jct_ms})
            tell(len(rows), setting.batches * len(WAYS))
    return pd.DataFrame(rows)


def _run(jobs: JobSequence, way: str, slots: int, history: Path, where: Path) -> list[float]:
    """Run a batch of applications, and return their completion times in order, ms."""
    where.mkdir()
    with ExitStack() as programs:
        settings = {}
        if way == SHARES:
            settings = {"spark.cores.max": str(max(1, slots // len(jobs)))}
        elif way != FIFO:
            address = programs.enter_context(serving(way, history, where / "served.jsonl", slots))
            settings = with_plugin(address, executors="true")
        cluster = programs.enter_context(Standalone(where / "cluster", slots, settings))
        names = [f"application-{number}" for number in range(len(jobs))]
        for name, profile in zip(names, jobs.profiles, strict=True):
            write_workload(where / f"{name}.json", Workload((profile,), name="sleeping"))
            # The first argument of ``submit`` identifies the application in the cluster.
            cluster.submit(name, [sys.executable, "-m", "decima.service.live_spark", str(where), name])
        _wait(cluster, names, where, "ready", TIMEOUT_S)
        begin_s = time.time()
        for number, name in enumerate(names):
            with atomic_path(where / f"{name}.go") as path:  # no application reads half of the file
                path.write_text(str(begin_s + number * APART_S))
        work_s = sum(profile.work_ms for profile in jobs.profiles) / 1000
        _wait(cluster, names, where, "done", work_s + TIMEOUT_S)
        ends_s = [float((where / f"{name}.done").read_text()) for name in names]
        return [(end_s - begin_s) * 1000 for end_s in ends_s]


def _wait(cluster: Standalone, names: Sequence[str], where: Path, ending: str, timeout_s: float) -> None:
    """Wait until each application has written a file with this ending."""
    end_s = time.monotonic() + timeout_s
    while not all((where / f"{name}.{ending}").exists() for name in names):
        for name in names:
            if cluster.applications[name].poll():
                last = cluster.log(name).strip().splitlines()[-1:]
                raise LiveSparkError(f"{name} failed on Spark: {''.join(last)}")
        if time.monotonic() > end_s:
            raise LiveSparkError(f"applications on Spark are not done after {timeout_s:.0f} s")
        time.sleep(0.05)


def applications_outcome(runs: pd.DataFrame, setting: Setting) -> Outcome:
    """Return the outcome for runs of ``compare_applications``."""
    others = (FIFO, SHARES)
    title = f"{setting.batches} batches of {setting.jobs} applications on Spark, {setting.executors} slots"
    rows = ((name, _mean_s(runs, name), *_changes(runs, name, others)) for name in WAYS)
    headings = ("Scheduler", "Mean completion time", *(f"vs {name}" for name in others))
    table = table_of(title, headings, rows, (".1f", "+.1%", "+.1%"))
    by_batch = runs.pivot_table("real_ms", "batch", "scheduler")[[*WAYS]] / 1000
    each = by_batch.itertuples(name=None)
    batches = table_of("Mean completion time of each", ("Batch", *WAYS), each, ".1f")
    return Outcome(
        "spark-applications",
        runs,
        [table, batches],
        [
            "Times are seconds from submission to the end of the application, starts of its executors included.",
            "± is half a 95 % confidence interval (Student's t); changes are paired by batches.",
            f"{SHARES}: spark.cores.max is {max(1, setting.executors // setting.jobs)} for each.",
        ],
        extra={"setting": vars(setting), "schedulers": _entries(runs, others)},
        pictures={"spark-applications": partial(plot_applications, runs, setting)},
    )


def plot_applications(runs: pd.DataFrame, setting: Setting) -> Figure:
    """Draw the mean completion time of each batch, one line per way to share the cluster."""
    figure, axes = new_axes(6, 4)
    looks = dict(zip(WAYS, styles(WAYS.values()).values(), strict=True))
    title = f"{setting.jobs} applications on {setting.executors} slots of a real Spark"
    _draw_batches(axes, runs, looks, xlabel="Batch", ylabel="Average completion time (s)", title=title)
    return figure
