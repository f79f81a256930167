"""Tables and notes for an explained decision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.table import Table

from decima.show.tables import Report, interval_text, new_table, overruled_text, shortened, table_of
from workloads.display import count_text

if TYPE_CHECKING:
    from decima.evaluation.explain import Explanation

#: Maximum number of rows of a table; the JSON contains all.
MOST_ROWS = 8
#: Maximum length of the name of a job or stage.
LONGEST_NAME = 36


def shown(explanation: Explanation, command: str) -> Report:
    """Return the report of an explanation; ``command`` is the command line that repeats it."""
    return Report(
        tables=tables(explanation),
        notes=[*notes(explanation), f"Tables have {MOST_ROWS} rows at most; --json has all."],
        json=explanation.to_json(command=command),
    )


def tables(explanation: Explanation) -> list[Table]:
    """Return tables of jobs, schedulable stages, limits and feature influences."""
    return [_jobs(explanation), _stages(explanation), _limits(explanation), _influences(explanation)]


def _jobs(explanation: Explanation) -> Table:
    offered = count_text(explanation.offered, "executor")
    title = f"Decision {explanation.number} at {explanation.time_ms / 1000:.1f} s: {offered} offered, "
    title += "of no job" if explanation.source < 0 else f"of job {explanation.source}"
    is_exact = not explanation.jobs["log_sd"].any()
    headings = ("Number", "Executors", "Tasks left", "Work left (s)", "Waited (s)")
    uncertain = () if is_exact else ("Off by a factor of",)
    table = new_table(title, "Job", *headings, *uncertain, "Chosen by")
    jobs = explanation.jobs.sort_values("work_left_s", kind="stable", ignore_index=True)
    jobs["factor"] = np.exp(jobs["log_sd"])
    choices = {who: None if what is None else what[0] for who, what in _choices(explanation).items()}
    rivals = explanation.stages["job"].drop_duplicates().head(2)
    rows = _first(jobs, jobs["job"].isin([*choices.values(), *rivals]))
    for row, name in zip(rows, shortened([str(row["name"]) for row in rows], LONGEST_NAME), strict=True):
        times = [f"{row[column]:.1f}" for column in ("work_left_s", "waited_s")]
        if not is_exact:
            times.append(f"{row['factor']:.1f}")
        cells = (str(row[column]) for column in ("job", "executors", "tasks_left"))
        by = [who for who, job in choices.items() if job == row["job"]]
        table.add_row(name, *cells, *times, ", ".join(by), style="bold" if by else None)
    return table


def _stages(explanation: Explanation) -> Table:
    headings = ("Job", "Number", "Tasks", "Mean (s)", "Probability", "Chosen by")
    table = new_table("What it could run next", "Stage", *headings)
    choices = {who: None if what is None else what[:2] for who, what in _choices(explanation).items()}
    of_row = pd.Series(
        list(zip(explanation.stages["job"], explanation.stages["stage"], strict=True)), dtype=object
    )
    rows = _first(
        explanation.stages, of_row.isin([choice for choice in choices.values() if choice is not None])
    )
    names = shortened([str(row["name"]) or f"stage {row['stage']}" for row in rows], LONGEST_NAME)
    for row, name in zip(rows, names, strict=True):
        cells = (str(row[column]) for column in ("job", "stage", "tasks"))
        by = [who for who, what in choices.items() if what == (row["job"], row["stage"])]
        texts = (f"{row['mean_s']:.2f}", f"{row['probability']:.1%}", ", ".join(by))
        table.add_row(name, *cells, *texts, style="bold" if by else None)
    return table


def _limits(explanation: Explanation) -> Table:
    chosen = -1 if explanation.chosen is None else explanation.chosen[2]
    rows = (row.values() for row in _first(explanation.limits, explanation.limits["limit"] == chosen))
    headings = ("Limit", "Probability")
    return table_of("Executors that its job may then hold", headings, map(tuple, rows), ".1%")


def _influences(explanation: Explanation) -> Table:
    rows = (tuple(row.values()) for row in _first(explanation.influences))
    title, headings = (
        "What speaks for that stage, and what against it",
        ("Feature", "Effect on log-probability"),
    )
    return table_of(title, headings, rows, "+.2f")


def _first(table: pd.DataFrame, needed: pd.Series[bool] | None = None) -> list[dict[str, object]]:
    """Return the first ``MOST_ROWS`` rows, including the needed ones."""
    if needed is not None:
        order = np.argsort(~needed.to_numpy(), kind="stable")[:MOST_ROWS]
        table = table.iloc[np.sort(order)]
    return [
        {str(key): value for key, value in row.items()} for row in table.head(MOST_ROWS).to_dict("records")
    ]


def _choices(explanation: Explanation) -> dict[str, tuple[int, int, int] | None]:
    return {"policy": explanation.chosen, explanation.rule: explanation.by_rule}


def notes(explanation: Explanation) -> list[str]:
    """Return notes on the decisions of policy and rule, and on their outcomes, one sentence each."""
    what = [
        f"The policy: {_decision(explanation, explanation.chosen)}.",
        f"{explanation.rule}: {_decision(explanation, explanation.by_rule)}.",
    ]
    chosen = {choice[0] for choice in _choices(explanation).values() if choice is not None}
    for job in explanation.jobs.to_dict("records"):
        if job["job"] in chosen and not math.isnan(job["predicted_s"]):
            work, low, high = (job[f"predicted_{name}s"] for name in ("", "low_", "high_"))
            what.append(
                f"Job {job['job']} ({job['name']}) is unknown: estimated {work:.3g} s of work, between {low:.3g} and "
                f"{high:.3g} with a probability of 50 %, from its {job['predicted_from']}."
            )
    if not explanation.differs:
        what.append("Policy and rule decide alike here.")
    if explanation.guarded:
        what.append("The policy's guard changed what the network chose.")
    if explanation.guarantee:
        what.append(f"The guarantee {explanation.guarantee} changed what the policy chose.")
    if explanation.overruled:
        overruled = overruled_text(explanation.overruled)
        what.append(
            f"Guarantees changed {count_text(len(explanation.overruled), 'decision')} of the episode: {overruled}."
        )
    results = "; ".join(f"{name} {value:.2f} s" for name, value in explanation.mean_jct_s.items())
    what.append(f"Average JCT of the episode: {results}.")
    if explanation.futures:
        difference = interval_text(explanation.difference_s, "+.2f")
        futures = count_text(explanation.futures, "other future")
        what.append(f"In {futures}, the decision of {explanation.rule} here changes it by {difference} s.")
    return [
        *what,
        "The limit is the middle one of its distribution: half of the probability lies at or below it.",
        "Effect: by how much the logarithm of the stage's probability falls where all stages have the feature's mean.",
    ]


def _decision(explanation: Explanation, decision: tuple[int, int, int] | None) -> str:
    if decision is None:
        return "leaves the executors where they are"
    job, stage, limit = decision
    [name] = explanation.jobs.loc[explanation.jobs["job"] == job, "name"]
    return f"runs stage {stage} of job {job} ({name}), which may hold {limit} executors"
