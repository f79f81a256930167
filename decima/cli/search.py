"""The commands ``decima tune``, which searches constants of a rule, and ``decima plot`` for several trainings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.conditions import SettingsCommand, conditions_named, options_without_effect
from decima.cli.console import command_line, report
from decima.cli.options import (
    AT_LEAST_ONE,
    FOLDER,
    JSON,
    SEED,
    SEEDS,
    TEXT,
    WORKERS,
    WholeRange,
    option,
    out_option,
    refuse_without_effect,
)
from decima.progress import PATIENCE_S, progress

if TYPE_CHECKING:
    pass


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

    Each RUN is the folder of a training, or a folder of such folders. Runs that differ
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
    from decima.learning.metrics_file import RENAMED
    from decima.outputs import make_folder
    from decima.show.learning import curves_table, plot_curves
    from decima.show.tables import Report

    trainings = [read_run(folder) for path in runs for folder in find_runs(path)]
    wanted = objective_metric(trainings[0]) if metric is None else RENAMED.get(metric, metric)
    curves = {name: curve_of(group, wanted) for name, group in same_but_seed(trainings).items()}
    make_folder(out)
    shown = Report(
        tables=[curves_table(curves, wanted)],
        notes=["± is half a 95 % confidence interval over seeds (Student's t)."],
        json="",
        pictures={wanted: lambda: plot_curves(curves, wanted, reference_of(trainings, wanted))},
    )
    report(shown, out, None)


#: Options of ``tune`` that are arguments of ``tune_rule``.
TUNING = ("start", "objective", "generations", "sequences", "judged", "judged_seed", "seed")


@click.command(cls=SettingsCommand, without={"seeds", "seed"}, context_settings={"show_default": True})
@click.argument("rule", default="srpt")
@option(
    "--start SCHEDULER",
    TEXT,
    "Scheduler from whose constants the search starts, and with which the result is compared: the rule with other "
    "constants (srpt:FILE.json).  [default: the rule]",
)
@option(SEEDS, AT_LEAST_ONE, "Number of tuning sequences of each setting.", 200)
@option("--seed", SEED, "Seed of the first tuning sequence, and of the search.", 0)
@option("--judged", WholeRange(2), "Number of test sequences of each setting.", 40)
@option("--judged-seed", SEED, "Seed of the first test sequence.  [default: --seed plus 1,000,000]")
@option(
    "--objective NAME",
    TEXT,
    "Metric to minimise, a name of decima compare --show, such as misses or weighted.",
    "mean",
)
@option("--generations", AT_LEAST_ONE, "Number of generations of the search.", 60)
@option("--sequences", AT_LEAST_ONE, "Number of sequences of each setting per generation.", 4)
@WORKERS
@JSON
@out_option()
@click.pass_context
def tune(
    context: click.Context,
    /,
    rule: str,
    workers: int | str | None,
    json_file: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Tune the constants of a rule.

    Rules: srpt, srpt-tuned, gamma-boost and atc.

    A search changes all constants together. Candidates run the same sequences with the same task noise. The result is
    evaluated on other seeds. Schedulers take the constants by name, or from the file of --json as
    srpt:FILE.json. A generation has about ten candidates. By default a setting with batches of 20 jobs takes
    less than a minute of CPU time, a setting with streams of 100 jobs five minutes. cma-es needs pip install -e
    '.[tune]'.
    """
    from decima.evaluation.compiling import show_compilation
    from decima.evaluation.tune import tune_rule
    from decima.outputs import prepare_outputs
    from decima.show.tuning import tuning_report

    conditions = conditions_named(options, options["seeds"])
    refuse_without_effect(context, unused := options_without_effect(conditions, options))
    settings = {conditions.workload.name: conditions}
    prepare_outputs(out, json_file)
    with progress(PATIENCE_S) as update:
        tuned = tune_rule(
            settings,
            rule,
            **{name: options[name] for name in TUNING},
            workers=workers,
            on_step=update,
            on_compile=partial(show_compilation, update),
        )
    command = command_line(context, **dict.fromkeys(unused))
    shown = tuning_report(tuned, settings, None if json_file is None else str(json_file), command)
    report(shown, out, json_file)
