"""The command ``decima headroom``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from decima.cli.compare import on_compile
from decima.cli.conditions import conditions_named, conditions_options, options_without_effect
from decima.cli.console import PATIENCE_S, command_line, progress, report
from decima.cli.options import AT_LEAST_ONE, JSON, SEED, SEEDS, WORKERS, out_option, refuse_without_effect


@click.command(context_settings={"show_default": True})
@conditions_options()
@click.option(*SEEDS, "seeds", type=AT_LEAST_ONE, default=5, help="Number of sequences.")
@click.option("--seed", type=SEED, default=0, help="Seed of the first sequence.")
@click.option(
    "--rules",
    metavar="A,B,..",
    help="Rules; the best of them is compared with the search.  [default: the strongest rules]",
)
@click.option(
    "--budget", type=AT_LEAST_ONE, default=3000, help="Number of episodes of the search on each sequence."
)
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
