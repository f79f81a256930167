"""The commands that search: ``decima tune`` and ``headroom``; and ``decima plot`` for several trainings."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.compare import on_compile
from decima.cli.conditions import CONDITIONS, conditions_named, options_without_effect
from decima.cli.console import PATIENCE_S, command_line, progress, report
from decima.cli.options import (
    AT_LEAST_ONE,
    FOLDER,
    JSON,
    SEED,
    SEEDS,
    TEXT,
    WORKERS,
    WholeRange,
    is_given,
    option,
    out_option,
    refuse_without_effect,
)

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions


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


#: Options of ``tune`` that are arguments of ``tune_rule``.
TUNING = ("start", "objective", "search", "generations", "sequences", "judged", "judged_seed", "seed")


@click.command(context_settings={"show_default": True})
@click.argument("rule", default="srpt")
@CONDITIONS
@option(
    "--setting OPTIONS",
    TEXT,
    "A setting for the tuning, as options in one text (for example '--arrivals poisson --interval 14'). Other "
    "options apply to all settings. May be given several times.  [default: one setting]",
    name="texts",
    multiple=True,
)
@option(
    "--config FILE.yaml|RECIPE",
    TEXT,
    "Tune on the clusters and jobs of a training instead (for example the recipe general), which each sequence "
    "draws. May be given several times.",
    name="configs",
    multiple=True,
)
@option(
    "--set KEY=VALUE",
    TEXT,
    "Override a setting of --config (for example settings.job_error=1); may be given several times.",
    name="overrides",
    multiple=True,
)
@option(
    "--start SCHEDULER",
    TEXT,
    "Scheduler from whose constants the search starts, and with which the result is compared: the rule with other "
    "constants (srpt:FILE.json); or srpt for srpt-tuned: "
    "weights start at 0.  [default: the rule]",
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
@option(
    "--search",
    click.Choice(["cma-es", "response-surface"]),
    "cma-es for the constants of a rule; response-surface for the many weights of adaptive rules.",
    "cma-es",
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
    texts: tuple[str, ...],
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
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
    from decima.outputs import prepare_outputs
    from decima.studies.tune import outcome, tune_rule

    if configs:
        settings, unused = _of_training(context, configs, overrides, options)
    elif overrides:
        raise click.UsageError("--set has no effect: it needs --config")
    elif texts:
        settings, unused = {text or "as given": _of_text(text, options) for text in texts}, {}
    else:
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
            on_compile=partial(on_compile, update),
        )
    found = outcome(tuned, settings, None if json_file is None else str(json_file))
    report(found.shown(command_line(context, **dict.fromkeys(unused))), out, json_file)


@click.command("--setting", add_help_option=False)
@CONDITIONS
def _setting(**options: Any) -> None:
    """Parse the options of a setting."""


def _of_text(text: str, options: dict[str, Any]) -> Conditions:
    """Return the setting of the options in a text, completed by the options of all settings."""
    try:
        context = _setting.make_context("--setting", shlex.split(text))
        given = {name for name in context.params if is_given(context, name)}
        merged = options | {name: context.params[name] for name in given}
        conditions = conditions_named(merged, options["seeds"])
        refuse_without_effect(context, options_without_effect(conditions, merged))
    except (click.UsageError, ValueError) as error:
        message = error.format_message() if isinstance(error, click.UsageError) else error
        raise click.UsageError(f"--setting {text!r}: {message}") from None
    return conditions


def _of_training(
    context: click.Context, configs: tuple[str, ...], overrides: tuple[str, ...], options: dict[str, Any]
) -> tuple[dict[str, Conditions], dict[str, str]]:
    """Return the clusters and jobs of each training as a setting, and options without effect as name -> reason."""
    from decima.learning.cluster.config import read_config

    names = [*(str(parameter.name) for parameter in _setting.params), "texts"]
    for name in names:
        if is_given(context, name):
            option = "setting" if name == "texts" else name.replace("_", "-")
            raise click.UsageError(f"--config and --{option} exclude each other")
    settings = {
        config: replace(
            read_config(config, overrides).conditions(),
            seed=options["seed"],
            num_experiments=options["seeds"],
        )
        for config in configs
    }
    return settings, dict.fromkeys(names, "--config replaces it")


@click.command(context_settings={"show_default": True})
@CONDITIONS
@option(SEEDS, AT_LEAST_ONE, "Number of sequences.", 5)
@option("--seed", SEED, "Seed of the first sequence.", 0)
@option(
    "--rules A,B,..",
    TEXT,
    "Rules; the best of them is compared with the search.  [default: the strongest rules]",
)
@option("--budget", AT_LEAST_ONE, "Number of episodes of the search on each sequence.", 3000)
@WORKERS
@JSON
@out_option()
@click.pass_context
def headroom(
    context: click.Context,
    /,
    rules: str | None,
    budget: int,
    workers: int | str | None,
    json_file: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Estimate the maximum possible gain over the best rule, before the training of a policy.

    On each sequence a search (CMA-ES) with hindsight of arrivals and task noise changes the order and the limits of
    jobs under the rule srpt. Shows the gain of the search, its gain under other task noise, and lower bounds.
    Takes about a minute of CPU time for a batch of 20 jobs. Needs pip install -e '.[tune]'.
    """
    from decima.outputs import prepare_outputs
    from decima.registry import make_scheduler, split_names
    from decima.studies.headroom import RULES, outcome
    from decima.studies.headroom import headroom as measure

    conditions = conditions_named(options, options["seeds"])
    refuse_without_effect(context, ignored := options_without_effect(conditions, options))
    prepare_outputs(out, json_file)
    names = RULES if rules is None else split_names(rules)
    for name in names:
        make_scheduler(name)  # raises before the search
    with progress(PATIENCE_S) as tell:
        found = measure(
            conditions,
            names,
            budget=budget,
            workers=workers,
            on_step=partial(tell, "Searching"),
            on_compile=partial(on_compile, tell),
        )
    report(outcome(found, conditions).shown(command_line(context, **dict.fromkeys(ignored))), out, json_file)
