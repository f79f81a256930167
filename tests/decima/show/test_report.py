import json
import math
from pathlib import Path

import numpy as np

from decima.evaluation import Comparison
from decima.evaluation.metrics import Interval
from decima.policy import save_policy
from decima.policy.presets import PACKING_POLICY
from decima.show.plots import comparison_pictures
from decima.show.report import comparison_notes, comparison_table, group_table
from decima.show.tables import interval_text
from simulator import ClusterConfig
from simulator.cluster.faults import Faults
from tests.cases import cases
from tests.decima.evaluation.examples import LIBRARY, comparison, conditions, run
from tests.decima.policy.examples import policy_of
from workloads import JobSequence, Workload


def test_a_policy_is_shown_beside_the_others(shipped: dict[str, Path], tmp_path: Path) -> None:
    schedulers = ("fair", "decima:tpch-batch", "decima:packing-tpch", f"decima:{shipped['tpch-batch']}")
    shown = run(*schedulers, num_experiments=1)
    assert shown.table().index.tolist() == list(schedulers)
    assert comparison_table(shown).row_count == 4
    differing, decisions = shown.differences("decima:tpch-batch", "srpt-tuned")
    assert shown.differences("fair", "fair")[0] == 0 < differing < decisions
    said = f"decided otherwise than srpt-tuned in {differing / decisions:.0%} of {decisions} decisions"
    note = next(
        note for note in comparison_notes(shown) if note.startswith("decima:tpch-batch: the network tpch-batch, whose")
    )
    assert said in note
    assert len([note for note in comparison_notes(shown) if note.startswith("decima")]) == 3
    pictures = list(comparison_pictures(shown))
    assert pictures[1:3] == ["schedule-decima-tpch-batch", "schedule-decima-packing-tpch"]
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


def test_a_table_has_the_numbers_of_the_comparison() -> None:
    compared = run("fifo", "fair")
    names, *columns, versus = (list(column.cells) for column in comparison_table(compared).columns)
    assert (names, versus[1]) == (["fifo", "fair"], "best")
    for place, row in enumerate(compared.summary.values()):
        assert [column[place] for column in columns] == [
            interval_text(Interval(row["mean_jct_s"], row["mean_jct_ci95_s"])),
            f"{row['p95_jct_s']:.1f}",
            f"{row['slowdown']:.1f}",
            f"{row['utilisation']:.1%}",
        ]
    fifo = compared.summary["fifo"]
    assert versus[0] == interval_text(Interval(fifo["difference"], fifo["difference_ci95"]), "+.1%")


def test_shares_are_compared_in_percentage_points_and_other_metrics_relatively() -> None:
    for shown, form in (("utilised", ".1%"), ("makespan", ".1f")):
        compared = Comparison(conditions(), ["fifo", "fair"], show=(shown,))
        compared.run(1)
        means = {name: row[compared.compared_by] for name, row in compared.compared.items()}
        best = (max if shown == "utilised" else min)(means, key=lambda name: means[name].mean.mean)
        assert compared.best_heuristic == best
        names, values, versus = (list(column.cells) for column in comparison_table(compared).columns)
        for name, value, cell in zip(names, values, versus, strict=True):
            assert value == interval_text(means[name].mean, form)
            change = means[name].difference if shown == "utilised" else means[name].change
            assert cell == ("best" if name == best else interval_text(change, "+.1%"))


def test_notes_count_over_all_experiments(tmp_path: Path) -> None:
    save_policy(tmp_path / "policy.npz", policy_of(PACKING_POLICY, seed=1), {})
    cluster = ClusterConfig(4, moving_delay_ms=10.0, warmup_delay_ms=0.0, faults=Faults(task_failures=0.4))
    learned = f"decima:{tmp_path / 'policy.npz'}"
    compared = run("fair", learned, cluster=cluster, num_jobs=6)
    notes = comparison_notes(compared)
    sums = compared.runs.groupby("scheduler")[["failed_jobs", "guarded", "decisions"]].sum()
    largest = compared.runs.groupby("scheduler")[["failed_jobs", "guarded"]].max()
    assert (sums[["failed_jobs", "guarded"]].loc[learned] > largest.loc[learned]).all()
    for name, row in sums.iterrows():
        failed = f"{name}: {row['failed_jobs']:,} of 18 jobs failed; the times are those of the others."
        assert failed in notes
    row = sums.loc[learned]
    guarded = f"{learned}: its guard changed {row['guarded']:,} of {row['decisions']:,} decisions, which would have"
    assert sum(note.startswith(guarded) for note in notes) == 1
