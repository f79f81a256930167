"""Which jobs finish earlier and which later under the best scheduler of a comparison: sentences and a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from decima.evaluation.metrics import Interval, paired_change
from decima.show.tables import table_of

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from decima.evaluation.comparison import Comparison

#: The reference, if it is compared.
FAIR = "fair"
#: Relative change of a JCT up to which a job finishes at about the same time.
SAME = 0.01
#: Minimum number of experiments for a confidence interval.
LEAST_EXPERIMENTS = 5
#: Maximum number of rows of the table.
MOST_ROWS = 500


class Gains(NamedTuple):
    """Gains and losses of jobs.

    Attributes:
        best: scheduler with the shortest mean JCT.
        reference: the scheduler that it is compared with.
        notes: sentences with the numbers of jobs.
        table: a row for each name of jobs, largest gain first: name, number of runs, mean JCT under both schedulers in
            seconds, relative change.
        numbers: what rows of ``table`` are sorted by, one for each cell; None for a name or an unknown change.
    """

    best: str
    reference: str
    notes: list[str]
    table: Table
    numbers: list[tuple[float | None, ...]]


def gains_of(comparison: Comparison) -> Gains | None:
    """Compare the JCT of each job under the best scheduler with that under fair sharing, over all experiments.

    If fair sharing is the best, or is not compared, the reference is the first of the other schedulers. None if fewer
    than two schedulers have completed jobs.
    """
    jobs = comparison.measured_jobs
    completing = [] if jobs.empty else list(jobs.dropna(subset="jct_s")["scheduler"].unique())
    if len(completing) < 2:
        return None
    means_s = comparison.measured.groupby("scheduler")["mean_jct_s"].mean()
    best = str(means_s[completing].idxmin())
    others = [name for name in comparison.schedulers if name in completing and name != best]
    reference = FAIR if FAIR in others else others[0]
    keys = ["seed", "job", "query"]
    mine, theirs = (jobs.loc[jobs["scheduler"] == name, [*keys, "jct_s"]] for name in (best, reference))
    pairs = mine.merge(theirs.rename(columns={"jct_s": "reference_s"}), on=keys)
    completed = pairs.dropna()
    if completed.empty:
        return None
    rows = _rows(completed)
    shown = sorted(rows, key=lambda row: -row.runs * abs(row.jct_s - row.reference_s))[:MOST_ROWS]
    shown.sort(key=lambda row: (math.isnan(row.change.mean), row.change.mean))
    names = f"{len(rows):,}"
    if len(shown) < len(rows):
        names = f"the {len(shown)} of {len(rows):,} whose total JCT changes most"
    title = f"Jobs by name ({names}): mean JCT in s"
    headings = ("Job", "Runs", best, reference, "Change")
    return Gains(
        best,
        reference,
        _notes(completed, len(pairs)),
        table_of(title, headings, shown, (",d", ".1f", ".1f", "+.1%")),
        [
            (None, row.runs, row.jct_s, row.reference_s, None if math.isnan(change) else change)
            for row in shown
            for change in [row.change.mean]
        ],
    )


def _notes(completed: pd.DataFrame, num_jobs: int) -> list[str]:
    jct_s, reference_s = completed["jct_s"], completed["reference_s"]
    earlier = int((jct_s < (1 - SAME) * reference_s).sum())
    later = int((jct_s > (1 + SAME) * reference_s).sum())
    same = len(completed) - earlier - later
    median = float((jct_s / reference_s - 1).median())
    notes = [
        f"Of {len(completed):,} jobs in all experiments, {earlier:,} finish earlier, {later:,} later, and {same:,} at "
        f"about the same time (JCT within {SAME:.0%}).",
        f"The median change of a job's JCT is {median:+.1%}; minus is a gain.",
        f"± is half a 95 % confidence interval over experiments, for names in at least {LEAST_EXPERIMENTS} of them.",
    ]
    if failed := num_jobs - len(completed):
        notes.append(f"{failed:,} further jobs failed under one of the two or both.")
    return notes


class _Row(NamedTuple):
    """Jobs of a name: number of runs, mean JCT under both schedulers, relative change."""

    name: str
    runs: int
    jct_s: float
    reference_s: float
    change: Interval


def _rows(completed: pd.DataFrame) -> list[_Row]:
    rows = []
    for name, runs in completed.groupby("query", observed=True):
        # Jobs of an experiment share its cluster: independent are the means of experiments only.
        experiments = runs.groupby("seed")[["jct_s", "reference_s"]]
        means, sizes = experiments.mean(), experiments.size()
        change = paired_change(means["jct_s"], means["reference_s"], sizes)
        if len(sizes) < LEAST_EXPERIMENTS:
            change = Interval(change.mean, math.nan)
        jct_s, reference_s = float(runs["jct_s"].mean()), float(runs["reference_s"].mean())
        rows.append(_Row(str(name), len(runs), jct_s, reference_s, change))
    return rows
