"""The commands ``decima sweep`` and ``decima plot`` for several trainings."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from decima.cli.console import INTERRUPTED, command_line, end, progress, report
from decima.cli.options import (
    FILE,
    FOLDER,
    PATH,
    TEXT,
    option,
    out_option,
    secondary,
    workers_option,
)

if TYPE_CHECKING:
    from decima.learning.sweep import SweepResult
    from decima.show.tables import Report


@click.command(context_settings={"show_default": True})
@option("--config FILE.yaml", FILE, "Settings of the sweep.", required=True)
@option(
    "--set KEY=VALUE",
    TEXT,
    "Override a setting of all trainings, such as iterations=100; may be given several times.",
    name="overrides",
    multiple=True,
)
@secondary(
    "--out FOLDER", PATH, "Folder for trainings, results and the picture of learning curves.", required=True
)
@workers_option("1")
@click.pass_context
def sweep(
    context: click.Context, /, config: Path, overrides: tuple[str, ...], out: Path, workers: int | str | None
) -> None:
    """Train with several settings and seeds, and compare the policies.

    The file contains seeds and candidate settings: all combinations of lists, or samples from ranges. Each training has
    a folder in --out. The same command resumes an interrupted sweep, with the same results, bit for bit on a CPU.
    Ctrl-C ends the sweep early and shows the finished trials.
    """
    from decima.learning.sweep_config import read_sweep

    settings = read_sweep(config, overrides)
    if find_spec("optuna") is None:
        raise click.ClickException("decima sweep needs the optuna package: pip install -e '.[sweep]'")

    from decima.learning.sweep import run_sweep
    from decima.outputs import atomic_path
    from decima.show.learning import sweep_csv

    command = command_line(context)
    with progress() as update:
        result = run_sweep(settings, out, workers=workers or 1, command=command, progress=update)
    done = f"{len(result.trials)} of {settings.num_trials} trials"
    if result.trials:
        with atomic_path(out / "results.csv") as path:
            path.write_text(sweep_csv(result), encoding="utf-8")
        report(_shown(result, out, command), out, out / "results.json")
    if result.interrupted:
        end(f"interrupted after {done}; the same command resumes the sweep", INTERRUPTED)


def _shown(result: SweepResult, out: Path, command: str) -> Report:
    from decima.learning.curves import curve_of, objective_metric, read_run, reference_of
    from decima.learning.sweep import seed_folder
    from decima.show.learning import plot_curves, setting_text, sweep_json, sweep_table
    from decima.show.tables import Report

    curves, metric, found = {}, "", []
    for trial in result.ranked:
        if trial.diverged:
            continue
        runs = [read_run(out / seed_folder(trial.number, each.seed)) for each in trial.results]
        metric = objective_metric(runs[0])
        found += runs
        name = ", ".join(f"{key}={setting_text(value)}" for key, value in trial.settings.items())
        curves[name if name not in curves else f"{name} (trial {trial.number})"] = curve_of(runs, metric)
    notes = [
        "Objective: value for the best policy on the validation set; smaller is better. "
        "± is half a 95 % confidence interval over seeds (Student's t).",
        "Better by: improvement over the reference scheduler of the training, on the same set.",
    ]
    drawn = {"learning-curves": lambda: plot_curves(curves, metric, reference_of(found, metric))}
    return Report([sweep_table(result)], notes, sweep_json(result, command), drawn if curves else {})


@click.command(context_settings={"show_default": True})
@click.argument("runs", metavar="RUN..", nargs=-1, required=True, type=FOLDER)
@option(
    "--metric NAME",
    TEXT,
    "Metric to draw, a name of decima train --explain.  [default: the first run's objective on its validation "
    "set]",
)
@out_option("plot")
def plot(runs: tuple[Path, ...], metric: str | None, out: Path) -> None:
    """Compare trainings by their learning curves.

    Each RUN is the folder of a training, or a folder of such folders, such as --out of decima sweep. Runs that differ
    only by seed are one curve with a 95 % confidence interval.
    """
    from decima.learning.curves import (
        curve_of,
        find_runs,
        objective_metric,
        read_run,
        reference_of,
        same_but_seed,
    )
    from decima.learning.metrics import RENAMED
    from decima.outputs import make_folder
    from decima.show.learning import curves_table, plot_curves
    from decima.show.tables import Report

    found = [read_run(folder) for place in runs for folder in find_runs(place)]
    wanted = objective_metric(found[0]) if metric is None else RENAMED.get(metric, metric)
    curves = {name: curve_of(group, wanted) for name, group in same_but_seed(found).items()}
    make_folder(out)
    shown = Report(
        tables=[curves_table(curves, wanted)],
        notes=["± is half a 95 % confidence interval over seeds (Student's t)."],
        json="",
        pictures={wanted: lambda: plot_curves(curves, wanted, reference_of(found, wanted))},
    )
    report(shown, out, None)
