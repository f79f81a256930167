import json
import math
from pathlib import Path

import numpy as np

from decima.evaluation.metrics import Interval
from decima.show.plots import comparison_pictures
from decima.show.report import comparison_notes, comparison_table, group_table
from decima.show.tables import interval_text
from tests.cases import cases
from tests.decima.evaluation.examples import LIBRARY, comparison, run
from workloads import JobSequence, Workload


def test_a_policy_is_shown_beside_the_others(shipped: dict[str, Path], tmp_path: Path) -> None:
    schedulers = ("fair", "decima", "decima:packing-tpch", f"decima:{shipped['general']}")
    shown = run(*schedulers, num_experiments=1)
    assert shown.table().index.tolist() == list(schedulers)
    assert comparison_table(shown).row_count == 4
    assert "decima: the policy general." in comparison_notes(shown)
    assert len([note for note in comparison_notes(shown) if note.startswith("decima")]) == 1
    pictures = list(comparison_pictures(shown))
    assert pictures[1:3] == ["schedule-decima", "schedule-decima-packing-tpch"]
    entries = json.loads(shown.to_json())["schedulers"]
    assert "policy" not in entries["decima:packing-tpch"]


@cases(
    "interval, form, text",
    (Interval(12.34, 0.56), ".1f", "12.3 ± 0.6"),
    (Interval(-0.211, 0.04), "+.1%", "-21.1% ± 4.0%"),
    (Interval(3.0, math.nan), "+.1f", "+3.0"),
    (Interval(math.nan, math.nan), ".1f", "-"),
)
def test_a_mean_and_its_interval(interval: Interval, form: str, text: str) -> None:
    assert interval_text(interval, form) == text


def test_the_mean_jct_by_query_with_most_jobs_first() -> None:
    sequence = JobSequence(tuple(LIBRARY.profiles[place] for place in (0, 1, 1, 2, 1, 2)), np.zeros(6))
    compared = comparison(workload=Workload(LIBRARY.profiles, sequence, "exact"), num_experiments=2)
    compared.run(1)
    names, sizes, best, other = (list(column.cells) for column in group_table(compared).columns)
    assert list(zip(names, sizes, strict=True)) == [("job-5", "6"), ("job-11", "4"), ("job-2", "2")]
    jobs = compared.jobs.query("query == 'job-11'").groupby("scheduler", observed=True)["jct_s"].mean()
    assert compared.best_heuristic == "fair"
    assert best[1] == f"{jobs['fair']:.1f}"
    assert other[1] == f"{jobs['fifo']:.1f} ({jobs['fifo'] / jobs['fair'] - 1:+.0%})"
