"""The command ``decima explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from decima.cli.conditions import conditions_named, conditions_options, options_without_effect
from decima.cli.console import command_line, report
from decima.cli.options import (
    JSON,
    NOT_NEGATIVE,
    SEED,
    WholeRange,
    guarantee_options,
    guarantees_named,
    refuse_without_effect,
)


@click.command(context_settings={"show_default": True})
@click.option("--decision", type=WholeRange(), help="Number of the decision in the episode, from 0.")
@click.option(
    "--at", type=NOT_NEGATIVE, metavar="SECONDS", help="Explain the first decision from this time on."
)
@click.option(
    "--differing",
    is_flag=True,
    help="Explain the first decision from that point on in which the rule decides differently.",
)
@click.option(
    "--policy",
    default="general",
    metavar="NAME|FILE",
    help="Policy file of decima train, or a shipped policy.",
)
@click.option("--rule", default="priced-srpt", metavar="SCHEDULER", help="Scheduler for the comparison.")
@click.option(
    "--futures",
    type=WholeRange(0, 10_000),
    default=16,
    help="Number of futures in which both decisions are compared: other task noise, the same arrivals.",
)
@guarantee_options("the policy")
@click.option(
    "--overruled",
    is_flag=True,
    help="Explain the first decision from that point on that a guarantee changed.",
)
@conditions_options()
@click.option("--seed", type=SEED, default=0, help="Seed of the episode.")
@JSON
@click.pass_context
def explain(
    context: click.Context,
    /,
    decision: int | None,
    at: float | None,
    differing: bool,
    overruled: bool,
    policy: str,
    rule: str,
    futures: int,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Explain a decision of a policy.

    Shows the policy's observation, the probability of each stage and limit, the influence of features, the decision of
    a rule, and the outcomes of both. The episode is the first experiment of decima compare with the same options.
    """
    from decima.evaluation.explain import explain as explained
    from decima.outputs import check_file
    from decima.policy.files import policy_path
    from decima.registry import make_scheduler
    from decima.show.explanation import shown

    if decision is not None and at is not None:
        raise click.UsageError("--decision and --at exclude each other")
    guarantees = guarantees_named(options)
    if overruled and not guarantees:
        raise click.UsageError("--overruled needs a guarantee, such as --no-later-than 1.5")
    if overruled and differing:
        raise click.UsageError("--overruled and --differing exclude each other")
    if json_file is not None:
        check_file(json_file)
    file = policy_path(policy)
    make_scheduler(rule)  # raises before the policy runs
    conditions = conditions_named(options, 1)
    refuse_without_effect(context, ignored := options_without_effect(conditions, options))
    found = explained(
        conditions,
        file,
        decision=decision or 0,
        at_ms=1000 * (at or 0.0),
        differing=differing,
        rule=rule,
        futures=futures,
        guarantees=guarantees,
        overruled=overruled,
    )
    report(shown(found, command_line(context, **dict.fromkeys(ignored))), None, json_file)
