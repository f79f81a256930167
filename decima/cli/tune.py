"""The commands ``decima tune`` and ``decima headroom``, searches with CMA-ES."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.compare import on_compile
from decima.cli.conditions import conditions_named, conditions_options, options_without_effect
from decima.cli.console import PATIENCE_S, command_line, progress, report
from decima.cli.options import (
    AT_LEAST_ONE,
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

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions


@click.command(context_settings={"show_default": True})
@click.argument("rule", default="priced-srpt")
@conditions_options()
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
    "draws.",
)
@option(
    "--set KEY=VALUE",
    TEXT,
    "Override a setting of --config (for example settings.job_error=1); may be given several times.",
    name="overrides",
    multiple=True,
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
@out_option("tune")
@click.pass_context
def tune(
    context: click.Context,
    /,
    rule: str,
    texts: tuple[str, ...],
    config: str | None,
    overrides: tuple[str, ...],
    judged: int,
    judged_seed: int | None,
    objective: str,
    search: str,
    generations: int,
    sequences: int,
    workers: int | str | None,
    json_file: Path | None,
    out: Path,
    **options: Any,
) -> None:
    """Tune the constants of a rule.

    Rules: priced-srpt, adaptive-srpt, packed-srpt, adaptive-packed-srpt, gamma-boost and atc.

    A search changes all constants together. Candidates run the same sequences with the same task noise. The result is
    evaluated on other seeds. Schedulers take the constants by name, or from the file of --json as
    priced-srpt:FILE.json. A generation has about ten candidates. By default a setting with batches of 20 jobs takes
    less than a minute of CPU time, a setting with streams of 100 jobs five minutes. cma-es needs pip install -e
    '.[tune]'.
    """
    from decima.outputs import prepare_outputs
    from decima.studies.tune import outcome, tune_rule

    if config is not None:
        settings, unused = _of_training(context, config, overrides, options)
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
            objective=objective,
            search=search,
            generations=generations,
            sequences=sequences,
            judged=judged,
            judged_seed=judged_seed,
            seed=options["seed"],
            workers=workers,
            on_step=update,
            on_compile=partial(on_compile, update),
        )
    found = outcome(tuned, settings, str(json_file or "FILE.json"))
    report(found.shown(command_line(context, **dict.fromkeys(unused))), out, json_file)


@click.command("--setting", add_help_option=False)
@conditions_options()
def _setting(**options: Any) -> None:
    """Parse the options of a setting."""


def _of_text(text: str, options: dict[str, Any]) -> Conditions:
    """Return the setting of the options in a text, completed by the options of all settings."""
    try:
        context = _setting.make_context("--setting", shlex.split(text))
        given = {name for name in context.params if _is_given(context, name)}
        merged = options | {name: context.params[name] for name in given}
        conditions = conditions_named(merged, options["seeds"])
        refuse_without_effect(context, options_without_effect(conditions, merged))
    except (click.UsageError, ValueError) as error:
        message = error.format_message() if isinstance(error, click.UsageError) else error
        raise click.UsageError(f"--setting {text!r}: {message}") from None
    return conditions


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _of_training(
    context: click.Context, config: str, overrides: tuple[str, ...], options: dict[str, Any]
) -> tuple[dict[str, Conditions], dict[str, str]]:
    """Return the jobs of a training as the only setting, and options without effect as name -> reason."""
    from decima.learning.cluster.config import read_config

    names = [*(str(parameter.name) for parameter in _setting.params), "texts"]
    for name in names:
        if _is_given(context, name):
            option = "setting" if name == "texts" else name.replace("_", "-")
            raise click.UsageError(f"--config and --{option} exclude each other")
    conditions = read_config(config, overrides).conditions()
    unused = dict.fromkeys(names, "--config replaces it")
    return {config: replace(conditions, seed=options["seed"], num_experiments=options["seeds"])}, unused


@click.command(context_settings={"show_default": True})
@conditions_options()
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
@out_option("headroom")
@click.pass_context
def headroom(
    context: click.Context,
    /,
    rules: str | None,
    budget: int,
    workers: int | str | None,
    json_file: Path | None,
    out: Path,
    **options: Any,
) -> None:
    """Estimate the maximum possible gain over the best rule, before the training of a policy.

    On each sequence a search (CMA-ES) with hindsight of arrivals and task noise changes the order and the limits of
    jobs under the rule priced-srpt. Shows the gain of the search, its gain under other task noise, and lower bounds.
    Takes about a minute of CPU time for a batch of 20 jobs. Needs pip install -e '.[tune]'.
    """
    from decima.outputs import prepare_outputs
    from decima.registry import split_names
    from decima.studies.headroom import RULES, outcome
    from decima.studies.headroom import headroom as measure

    conditions = conditions_named(options, options["seeds"])
    refuse_without_effect(context, ignored := options_without_effect(conditions, options))
    prepare_outputs(out, json_file)
    names = RULES if rules is None else split_names(rules)
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
