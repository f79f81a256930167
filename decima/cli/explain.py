"""The command ``decima explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from decima.cli.conditions import conditions_named, conditions_options, options_without_effect
from decima.cli.console import command_line, report
from decima.cli.options import (
    FLAG,
    JSON,
    NOT_NEGATIVE,
    SEED,
    TEXT,
    WholeRange,
    guarantee_options,
    guarantees_named,
    option,
    refuse_without_effect,
)


@click.command(context_settings={"show_default": True})
@option("--decision", WholeRange(), "Number of the decision in the episode, from 0.")
@option("--at SECONDS", NOT_NEGATIVE, "Explain the first decision from this time on.")
@option(
    "--differing",
    FLAG,
    "Explain the first decision from that point on in which the rule decides differently.",
)
@option("--policy NAME|FILE", TEXT, "Policy file of decima train, or a shipped policy.", "general")
@option("--rule SCHEDULER", TEXT, "Scheduler for the comparison.", "priced-srpt")
@option(
    "--futures",
    WholeRange(0, 10_000),
    "Number of futures in which both decisions are compared: other task noise, the same arrivals.",
    16,
)
@guarantee_options("the policy")
@option("--overruled", FLAG, "Explain the first decision from that point on that a guarantee changed.")
@conditions_options()
@option("--seed", SEED, "Seed of the episode.", 0)
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
