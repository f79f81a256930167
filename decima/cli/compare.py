"""The commands ``decima compare``, ``decima schedulers`` and ``decima explain``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from decima.cli.conditions import SettingsCommand, conditions_named, options_without_effect
from decima.cli.console import INTERRUPTED, command_line, end, make_console, report
from decima.cli.options import (
    AT_LEAST_ONE,
    FLAG,
    JSON,
    NOT_NEGATIVE,
    PATH,
    POLICY_FILE,
    TEXT,
    WORKERS,
    WholeRange,
    guarantee_options,
    guarantees_named,
    option,
    out_option,
    refuse_without_effect,
    secondary,
)
from decima.evaluation import DEFAULT_SCHEDULERS, MOVING_DELAY, SCHEDULERS_THAT_PACK
from decima.progress import PATIENCE_S, progress

MEASURED_DELAY = (
    "Executors take {delay_s:g} s to move to another job, their start-up time in {workload}. If the jobs share one "
    "application, executors move without delay: --moving-delay 0."
)


class MetricNames(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """Names of metrics separated by commas, see ``decima.evaluation.metrics.SHOWN``; the value remains a text.

    If ``with_signal``, a signal may follow ``carbon``, as in ``carbon:FILE``.
    """

    name = "metrics"

    def __init__(self, *, with_signal: bool = False) -> None:
        self.with_signal = with_signal

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text after a check that all names are known and distinct."""
        from decima.evaluation.metrics import SHOWN
        from workloads.errors import did_you_mean

        names = value.split(",")
        for name in names:
            if name not in SHOWN and not (self.with_signal and name.startswith("carbon:")):
                hint = did_you_mean(name, SHOWN)
                self.fail(f"no metric named {name!r}{hint}, expected names of {', '.join(SHOWN)}", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r}: the same metric twice", param, ctx)
        return value


@click.command(cls=SettingsCommand, context_settings={"show_default": True})
@option(
    "--schedulers A,B,..",
    TEXT,
    "Schedulers to compare: names of 'decima schedulers', or module:Class for a custom scheduler.  "
    f"[default: {DEFAULT_SCHEDULERS}; with --classes {SCHEDULERS_THAT_PACK}; decima if a shipped policy fits; "
    "rules for the objective, if there are any]",
    name="scheduler_names",
)
@option(
    "--checkpoint",
    POLICY_FILE,
    "Also compare decima with the policy in this file.  [default: a shipped policy, by workload and arrivals]",
)
@guarantee_options("each scheduler, which is compared with and without guarantees")
@option("--training", AT_LEAST_ONE, "Number of sequences for the tuning of weighted-fair.", 6)
@option(
    "--show A,B,..",
    MetricNames(),
    "Columns of the table, with intervals: mean, p50, p95, p99, makespan, slowdown, worst-slowdown, weighted (mean"
    " JCT by weight), misses (share of missed deadlines), tardiness, unfairness, jain (between tenants), hours (of "
    "executors), energy (kWh), carbon (g, or the price), utilised, load, unused; with guarantees also overruled "
    "(decisions), late (jobs), latest (JCT over JCT under fair sharing), lateness, below-floor and above-ceiling. The "
    "first column determines the best scheduler.",
)
@option(
    "--objective NAME",
    MetricNames(with_signal=True),
    "First column, before those of --show (by default mean). It determines the best scheduler, and decima is a "
    "policy trained for this objective, if one fits. carbon:FILE also sets --carbon FILE.",
)
@secondary(
    "--by", click.Choice(["query", "tenant"]), "Also show the mean JCT of each query's or tenant's jobs."
)
@secondary(
    "--csv", PATH, "Write the results of all jobs under all schedulers to this CSV file.", name="csv_file"
)
@secondary(
    "--report",
    PATH,
    "Write an interactive page to this HTML file: the table, distributions, schedules and DAGs of one experiment.",
    name="report_file",
)
@secondary(
    "--trace-events",
    PATH,
    "Write the schedules of one experiment to this file in Chrome's trace event format, for Perfetto; compressed "
    "if the name ends in .gz.",
    name="trace_file",
)
@WORKERS
@JSON
@out_option()
@click.pass_context
def compare(
    context: click.Context,
    /,
    workers: int | str | None,
    json_file: Path | None,
    csv_file: Path | None,
    report_file: Path | None,
    trace_file: Path | None,
    by: Literal["query", "tenant"] | None,
    show: str | None,
    objective: str | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Compare schedulers on the same job sequences with the same task noise.

    Shows the mean job completion time (JCT) with its 95 % confidence interval, the p95 JCT, the slowdown (JCT over the
    job's time alone), the utilisation, and the difference of the mean JCT from that of the best rule (also one with
    searched weights, or a custom scheduler, but no network). Ctrl-C ends the comparison early and keeps the finished
    experiments. --out draws pictures of schedules and results.
    """
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.compiling import show_compilation
    from decima.evaluation.options import choose_schedulers
    from decima.outputs import atomic_path, prepare_outputs

    objective = take_signal(objective, options)
    guarantees = guarantees_named(options)
    conditions, interrupted = conditions_named(options, options["seeds"]), False
    is_measured, delay_s = options["moving_delay"] is None, conditions.cluster.moving_delay_ms / 1000
    options["moving_delay"] = delay_s
    metrics = show.split(",") if show else ["mean"] if objective else []
    metrics = list(dict.fromkeys([*(objective.split(",") if objective else []), *metrics]))
    chosen = choose_schedulers(
        conditions, options["scheduler_names"], options["checkpoint"], metrics[0] if metrics else "mean"
    )
    comparison = Comparison(
        conditions,
        chosen.schedulers,
        policy=chosen.policy,
        num_training=options["training"],
        show=metrics,
        guarantees=guarantees,
    )
    ignored = options_without_effect(conditions, options)
    refuse_without_effect(context, ignored)
    if by == "tenant" and not conditions.sequence(conditions.seed).tenants:
        raise click.UsageError("--by tenant: the jobs have no tenants; --tenants draws them")
    prepare_outputs(out, json_file, csv_file, report_file, trace_file)
    try:
        with progress(PATIENCE_S) as update:
            comparison.run(workers, partial(update, "Comparing"), partial(show_compilation, update))
            from decima.show.report import shows_slowdown

            if json_file or csv_file or shows_slowdown(comparison):
                comparison.find_times_alone(partial(update, "Estimating times of jobs alone"))
    except KeyboardInterrupt:
        interrupted = True
    if comparison.finished:
        from decima.show.report import comparison_report

        notes = []
        if chosen.left_out:
            from decima.show.left_out import left_out_note

            notes = [left_out_note(conditions, options)]
        if is_measured and delay_s != MOVING_DELAY:
            notes.insert(0, MEASURED_DELAY.format(delay_s=delay_s, workload=options["workload"]))
        command = command_line(context, **dict.fromkeys(ignored))
        shown = comparison_report(
            comparison,
            command,
            notes,
            by=by,
            with_json=json_file is not None,
        )
        if csv_file is not None:
            with atomic_path(csv_file) as path:
                comparison.jobs.drop(columns=["setting", "alone_s"]).to_csv(path, index=False)
        if report_file is not None:
            from decima.show.page import comparison_page

            with atomic_path(report_file) as path:
                page = comparison_page(comparison, shown.tables, shown.notes, command)
                path.write_text(page, encoding="utf-8", errors="replace")
        if trace_file is not None:
            from decima.evaluation.decisions import decisions
            from decima.show.trace_events import write_trace_events

            seed = min(comparison.finished)
            decided = {
                name: decisions(conditions, seed, comparison.scheduler(name, seed))
                for name in comparison.episodes
            }
            with atomic_path(trace_file) as path:
                write_trace_events(path, comparison.episodes, decided, compress=trace_file.suffix == ".gz")
        if out is not None:
            from decima.show.plots import comparison_pictures

            shown = replace(shown, pictures=comparison_pictures(comparison))
        report(shown, out, json_file)
    if interrupted:
        finished = f"{len(comparison.finished)} of {conditions.num_experiments} experiments finished"
        end(f"interrupted, {finished}", INTERRUPTED)


def take_signal(objective: str | None, options: dict[str, Any]) -> str | None:
    """Return the objective without a signal; a signal after ``carbon:`` becomes the option ``--carbon``."""
    names = [] if objective is None else objective.split(",")
    for index, name in enumerate(names):
        metric, colon, signal = name.partition(":")
        if colon:
            if options["carbon"] not in (None, signal):
                raise click.UsageError(f"--objective {name}: --carbon is another signal, {options['carbon']}")
            names[index], options["carbon"] = metric, signal
    return ",".join(names) or None


@click.command()
def schedulers() -> None:
    """List the built-in schedulers: rules, rules with searched weights, networks."""
    from rich.table import Table

    from decima.evaluation.summaries import scheduler_summaries

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    for heading, schedulers in scheduler_summaries().items():
        table.add_row(heading, "", style="underline")
        for name, summary in schedulers.items():
            table.add_row(f"  {name}", summary)
    make_console().print(table)


@click.command(cls=SettingsCommand, without={"seeds"}, context_settings={"show_default": True})
@option("--decision", WholeRange(), "Number of the decision in the episode, from 0.")
@option("--at SECONDS", NOT_NEGATIVE, "Explain the first decision from this time on.")
@option(
    "--differing",
    FLAG,
    "Explain the first decision from that point on in which the rule decides differently.",
)
@option("--policy NAME|FILE", TEXT, "Policy file of decima train, or a shipped policy.", "embedded-batch")
@option("--rule SCHEDULER", TEXT, "Scheduler for the comparison.", "srpt")
@option(
    "--futures",
    WholeRange(0, 10_000),
    "Number of futures in which both decisions are compared: other task noise, the same arrivals.",
    16,
)
@guarantee_options("the policy")
@option("--overruled", FLAG, "Explain the first decision from that point on that a guarantee changed.")
@JSON
@click.pass_context
def explain(
    context: click.Context,
    /,
    decision: int | None,
    at: float | None,
    policy: str,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Explain a decision of a policy.

    Shows the policy's observation, the probability of each stage and limit, the influence of features, the decision of
    a rule, and the outcomes of both. The episode is the first experiment of decima compare with the same options.
    """
    from decima.outputs import check_file
    from decima.policy.files import policy_path
    from decima.registry import make_scheduler
    from decima.registry.policies import load_policy

    if decision is not None and at is not None:
        raise click.UsageError("--decision and --at exclude each other")
    guarantees = guarantees_named(options)
    if options["overruled"] and not guarantees:
        raise click.UsageError("--overruled needs a guarantee, such as --no-later-than 1.5")
    if options["overruled"] and options["differing"]:
        raise click.UsageError("--overruled and --differing exclude each other")
    if json_file is not None:
        check_file(json_file)
    file = policy_path(policy)
    load_policy(file)  # raises before PyTorch is imported
    make_scheduler(options["rule"])
    conditions = conditions_named(options, 1)
    refuse_without_effect(context, ignored := options_without_effect(conditions, options))

    from decima.evaluation.explain import explain as explained
    from decima.show.explanation import shown

    explanation = explained(
        conditions,
        file,
        decision=decision or 0,
        at_ms=1000 * (at or 0.0),
        guarantees=guarantees,
        **{name: options[name] for name in ("differing", "rule", "futures", "overruled")},
    )
    report(shown(explanation, command_line(context, **dict.fromkeys(ignored))), None, json_file)
