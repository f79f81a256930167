"""The command ``decima compare``."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.conditions import (
    conditions_named,
    conditions_options,
    options_without_effect,
)
from decima.cli.console import INTERRUPTED, PATIENCE_S, Tell, command_line, end, progress, report, say
from decima.cli.options import (
    AT_LEAST_ONE,
    FILE,
    JSON,
    PATH,
    SEED,
    SEEDS,
    WORKERS,
    Aside,
    Named,
    out_option,
    refuse_without_effect,
)
from decima.evaluation.defaults import DEFAULT_SCHEDULERS, MOVING_DELAY, SCHEDULERS_THAT_PACK

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.conditions import Conditions
    from decima.evaluation.explain import Explanation

__all__ = ["DEFAULT_SCHEDULERS", "SCHEDULERS_THAT_PACK", "compare"]

#: Policy that ships -> the recipe that made it.
RECIPES = {
    "general": "general",
    "packing-tpch": "packing",
    "packing-trace": "trace",
    "tpch-batch": "batch",
    "tpch-stream": "stream",
    "embedded-batch": "batch",
    "embedded-stream": "stream",
}


@click.command(context_settings={"show_default": True})
@conditions_options()
@click.option(
    "--schedulers",
    "scheduler_names",
    metavar="A,B,..",
    help="What to compare: names that 'decima schedulers' lists, or module:Class for your own.  "
    f"[default: {DEFAULT_SCHEDULERS}; with --classes {SCHEDULERS_THAT_PACK}; decima where a policy that ships fits]",
)
@click.option(
    "--checkpoint",
    type=FILE,
    help="Compare decima too, with the policy in this file.  [default: a policy that ships, by workload and arrivals]",
)
@click.option(*SEEDS, "seeds", type=AT_LEAST_ONE, default=20, help="Number of experiments.")
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Seed of the first experiment, or number of its window.",
)
@click.option("--training", type=AT_LEAST_ONE, default=6, help="Sequences to tune weighted-fair on.")
@click.option(
    "--by", cls=Aside, type=click.Choice(["query"]), help="Show the mean JCT of the jobs of each query, too."
)
@click.option(
    "--csv", "csv_file", cls=Aside, type=PATH, help="Write all jobs under all schedulers to this file."
)
@click.option(
    "--report",
    "report_file",
    cls=Aside,
    type=PATH,
    help="Write a page to explore to this HTML file: the table, distributions, schedules and DAGs of one experiment.",
)
@click.option(
    "--trace-events",
    "trace_file",
    cls=Aside,
    type=PATH,
    help="Write the schedules of one experiment to this file in Chrome's trace event format, for Perfetto; compressed "
    "where the name ends in .gz.",
)
@click.option(
    "--animation",
    "animation_file",
    cls=Aside,
    type=Named(".gif"),
    help="Write the schedules of the first and the last scheduler in one experiment, as they grow, to this GIF file.",
)
@WORKERS
@JSON
@out_option("compare")
@click.pass_context
def compare(
    context: click.Context,
    /,
    workers: int | str | None,
    json_file: Path | None,
    csv_file: Path | None,
    report_file: Path | None,
    trace_file: Path | None,
    animation_file: Path | None,
    by: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Compare schedulers on the same job sequences with the same task noise.

    Shows average job completion time (JCT), its 95 % confidence interval, p95 JCT, slowdown (JCT over what the job
    needs alone), utilisation, and how much the mean JCT differs from that of the best heuristic, which is
    the best scheduler that was not learned, your own included.
    Saves pictures of schedules and of the results.
    Ctrl-C ends it early and keeps the experiments that have finished.
    """
    from decima.outputs import atomic_path, prepare_outputs

    is_measured = options["moving_delay"] is None
    comparison, left_out = _comparison(options)
    conditions, interrupted = comparison.conditions, False
    ignored = options_without_effect(conditions, options)
    refuse_without_effect(context, ignored)
    prepare_outputs(out, json_file, csv_file, report_file, trace_file, animation_file)
    try:
        with progress(PATIENCE_S) as tell:
            comparison.run(workers, partial(tell, "Comparing"), partial(_on_compile, tell))
    except KeyboardInterrupt:
        interrupted = True
    if comparison.finished:
        from decima.show.plots import comparison_pictures
        from decima.show.report import comparison_notes, comparison_table, query_table
        from decima.show.shown import Shown

        command = command_line(context, **dict.fromkeys(ignored))
        shown = Shown(
            tables=[comparison_table(comparison), *([query_table(comparison)] if by else [])],
            notes=comparison_notes(comparison)
            + ([_measured_delay(options)] if is_measured and options["moving_delay"] != MOVING_DELAY else [])
            + [_left_out(policy, found, conditions, options) for policy, found in left_out.items()],
            json=comparison.to_json(
                command=command,
                left_out=[
                    {"scheduler": f"decima:{policy}", "outside_training": found}
                    for policy, found in left_out.items()
                ],
            ),
            pictures=comparison_pictures(comparison),
        )
        if csv_file is not None:
            with atomic_path(csv_file) as path:
                comparison.jobs.drop(columns=["setting", "alone_s"]).to_csv(path, index=False)
        if report_file is not None:
            from decima.show.page.page import comparison_page

            explained = _explained(comparison)
            with atomic_path(report_file) as path:
                page = comparison_page(comparison, shown.tables, shown.notes, command, explained)
                path.write_text(page, encoding="utf-8", errors="replace")
        if trace_file is not None:
            from decima.evaluation.decisions import decisions
            from decima.show.trace_events import write_trace_events

            episodes = comparison.episodes
            decided = {name: decisions(comparison, name) for name in episodes}
            with atomic_path(trace_file) as path:
                write_trace_events(path, episodes, decided, compress=trace_file.suffix == ".gz")
        if animation_file is not None:
            from decima.show.animation import write_animation

            names = list(comparison.episodes)
            with atomic_path(animation_file) as path:
                write_animation(path, {name: comparison.episodes[name] for name in (names[0], names[-1])})
        report(shown, out, json_file)
    if interrupted:
        finished = f"{len(comparison.finished)} of {conditions.num_experiments} experiments finished"
        end(f"interrupted, {finished}", INTERRUPTED)


def _on_compile(tell: Tell, done: int, total: int) -> None:
    if done == 0:
        say("Compiling the simulator and the schedulers, once after an installation.", err=True)
    tell("Compiling", done, total)


def _explained(comparison: Comparison) -> Explanation | None:
    """A decision of the first policy that learned, if there is one."""
    from decima.policy.files import policy_path
    from decima.registry import policy_named

    for policy in filter(None, map(policy_named, comparison.schedulers.values())):
        from decima.evaluation.explain import explain_first

        return explain_first(comparison.conditions, policy_path(policy))
    return None


def _comparison(options: dict[str, Any]) -> tuple[Comparison, dict[str, list[str]]]:
    """What is compared; and policy -> why it is not, though it ships for such a workload."""
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.options import choose_schedulers

    conditions = conditions_named(options, options["seeds"])
    options["moving_delay"] = conditions.cluster.moving_delay_ms / 1000
    chosen = choose_schedulers(conditions, options["scheduler_names"], options["checkpoint"])
    comparison = Comparison(
        conditions, chosen.schedulers, policy=chosen.policy, num_training=options["training"]
    )
    return comparison, chosen.left_out


def _measured_delay(options: dict[str, Any]) -> str:
    return (
        f"Executors take {options['moving_delay']:g} s to move to another job, as {options['workload']} says that they "
        "took to start. Where the jobs share one application, they take none: --moving-delay 0."
    )


def _left_out(policy: str, found: list[str], conditions: Conditions, options: dict[str, Any]) -> str:
    """Why decima does not take part by default, and what can be done about it."""
    return (
        f"decima is left out, its policy {policy} was trained on something else: {'; '.join(found)}. "
        f"To train one that fits: {_train_command(policy, conditions, options)}. "
        "To see it all the same: --schedulers fair,decima."
    )


def _train_command(policy: str, conditions: Conditions, options: dict[str, Any]) -> str:
    """The training that makes a policy for these jobs and this cluster.

    The one for any cluster goes on from the policy, in this one setting; with classes of executors it begins anew, with
    the choices of a rule.
    """
    wanted = (
        _one_setting(conditions, options)
        if policy == "general"
        else _packing(RECIPES[policy], conditions, options)
    )
    words = ["decima", "train", "--config", RECIPES[policy]]
    for key, value in wanted.items():
        words += ["--set", f"{key}={f'{value:g}' if isinstance(value, float) else value}"]
    if policy != "general":
        for option in ("workload", "profiles"):
            if options[option] is not None:
                words += [f"--{option}", str(options[option])]
    return shlex.join([*words, "--out", "DIR"])


def _one_setting(conditions: Conditions, options: dict[str, Any]) -> dict[str, object]:
    """Settings of the recipe general that leave one setting of its many: this one."""
    from decima.evaluation.fit import evaluation_setting

    here = evaluation_setting(conditions)
    source = options["workload"] or options["profiles"] or "tpch"
    wanted: dict[str, object] = {
        "start": "general",
        "behaviour_cloning": "null",
        "iterations": 40,
        "settings.sources": f"[{source}]",
        "settings.executors": options["executors"],
        "settings.moving_delay": options["moving_delay"],
        "settings.durations": 1,
        "settings.tasks": 1,
    }
    if here.load is None:
        jobs = options["jobs"] if here.jobs is None else round(here.jobs.middle)
        wanted |= {"settings.batches": 1, "settings.batch_jobs": jobs}
    else:
        wanted |= {"settings.batches": 0, "settings.load": here.load.middle}
    if options["semantics"] != "paper":
        wanted["cluster.semantics"] = options["semantics"]
    return wanted | {"validation.cells": 1, "validation.sequences": 20}


def _packing(recipe: str, conditions: Conditions, options: dict[str, Any]) -> dict[str, object]:
    """Settings that the recipe does not have."""
    from decima.learning.cluster.config import read_config

    settings = read_config(recipe)
    wanted: list[tuple[str, object, object]] = [
        ("cluster.classes", settings.cluster.classes, options["classes"]),
        ("cluster.moving_delay", settings.cluster.moving_delay, options["moving_delay"]),
        ("cluster.semantics", settings.cluster.semantics, options["semantics"]),
        ("workload.memory_demand", settings.workload.memory_demand, options["memory_demand"]),
    ]
    if conditions.workload.sequence is None:
        wanted.append(("workload.arrivals", settings.workload.arrivals, options["arrivals"]))
        name = "interval" if options["arrivals"] == "poisson" else "jobs"
        wanted.append((f"workload.{name}", getattr(settings.workload, name), options[name]))
        wanted.append(("workload.drift", settings.workload.drift, options["drift"]))
    return {key: instead for key, value, instead in wanted if value != instead}
