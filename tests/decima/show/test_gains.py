"""Gains and losses of jobs in the page of a comparison: counts, table, sorting in a browser."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from decima.evaluation import Comparison, Conditions
from decima.show.page import comparison_page
from decima.show.page.gains import Gains, gains_of
from decima.show.report import comparison_table
from simulator import ClusterConfig
from tests.browser import CHROMIUM, Page, visit
from workloads import JobProfile, StageProfile, TaskDurations, Workload

#: Names that would have an effect if the page treated them as markup.
EVIL = "job 10 <img src=x onerror=\"document.title='owned'\">"


def gains(jct_s: dict[str, list[float]], names: list[str], seeds: list[int]) -> Gains | None:
    """Gains of jobs, each in the experiment of its seed; ``jct_s`` are times by scheduler."""
    jobs = pd.concat(
        pd.DataFrame({"scheduler": name, "seed": seeds, "job": range(len(seeds)), "query": names, "jct_s": times})
        for name, times in jct_s.items()
    )
    measured = jobs.groupby(["scheduler", "seed"], sort=False)["jct_s"].mean().rename("mean_jct_s").reset_index()
    comparison: Any = SimpleNamespace(schedulers=dict.fromkeys(jct_s), measured_jobs=jobs, measured=measured)
    return gains_of(comparison)


def cells(found: Gains) -> list[tuple[str, ...]]:
    return list(zip(*(map(str, column.cells) for column in found.table.columns), strict=True))


def test_jobs_count_as_earlier_later_or_the_same_and_failed_ones_apart() -> None:
    best = [5.0, 8.0, 10.05, 9.95, 12.0, math.nan, 1.0]
    found = gains({"fifo": [99.0] * 7, "fair": [10.0] * 6 + [math.nan], "mine": best}, ["a"] * 7, [0] * 7)
    assert found is not None
    assert (found.best, found.reference) == ("mine", "fair")
    assert "Of 5 jobs in all experiments, 2 finish earlier, 1 later, and 2 at about the same time" in found.notes[0]
    assert "-0.5%" in found.notes[1]
    assert found.notes[-1] == "2 further jobs failed under one of the two or both."
    assert cells(found) == [("a", "5", "9.0", "10.0", "-10.0%")]


def test_an_interval_is_over_experiments_and_needs_enough_of_them() -> None:
    ours, fair = [8.0, 9.0, 7.0, 9.5, 8.5], [10.0, 10.0, 11.0, 10.0, 9.0]
    # Two equal jobs in each experiment are no more certain than one.
    times = {"fair": fair + fair + fair[:4], "mine": ours + ours + ours[:4]}
    seeds = [0, 1, 2, 3, 4]
    found = gains(times, ["often"] * 10 + ["seldom"] * 4, seeds + seeds + seeds[:4])
    assert found is not None
    difference = np.subtract(ours, fair)
    half = stats.t.ppf(0.975, 4) * difference.std(ddof=1) / math.sqrt(5) / np.mean(fair)
    change = {row[0]: row[-1] for row in cells(found)}
    assert change["often"] == f"{difference.mean() / np.mean(fair):+.1%} ± {half:.1%}"
    assert change["seldom"] == f"{sum(ours[:4]) / sum(fair[:4]) - 1:+.1%}"


def test_the_reference_is_fair_sharing_or_else_the_first_of_the_others() -> None:
    def pair(**means: float) -> tuple[str, str] | None:
        found = gains({name: [mean] for name, mean in means.items()}, ["a"], [0])
        return found and (found.best, found.reference)

    assert pair(fifo=3, fair=2, srpt=1) == ("srpt", "fair")
    assert pair(fifo=3, fair=1, srpt=2) == ("fair", "fifo")
    assert pair(srpt=1, fifo=3, mine=2) == ("srpt", "fifo")
    assert pair(fair=1, srpt=math.nan) is None
    assert pair(fair=1) is None


def test_of_many_names_those_are_shown_whose_times_change_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.show.page.gains.MOST_ROWS", 2)
    times = {"fair": [10.0, 100.0, 50.0], "mine": [9.0, 80.0, 60.0]}
    found = gains(times, ["little", "gains", "loses"], [0] * 3)
    assert found is not None
    assert [row[0] for row in cells(found)] == ["gains", "loses"]
    assert "the 2 of 3 whose total JCT changes most" in str(found.table.title)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Jobs of three names under fifo, fair and srpt."""
    profiles = [
        JobProfile(name, (StageProfile(tasks, TaskDurations.constant(1000.0)),), np.empty((0, 2), dtype=np.int64))
        for name, tasks in (("job 2", 4), (EVIL, 40), ("job 1", 15))
    ]
    conditions = Conditions(
        Workload(tuple(profiles), None, "three"), ClusterConfig(num_executors=4), num_jobs=8, num_experiments=3
    )
    comparison = Comparison(conditions, ["fifo", "fair", "srpt"])
    comparison.run(workers=1)
    return comparison


def test_the_table_is_that_of_the_jobs(comparison: Comparison) -> None:
    found = gains_of(comparison)
    assert found is not None
    assert (found.best, found.reference) == ("srpt", "fair")
    jct_s = comparison.jobs.groupby(["query", "scheduler"], observed=True)["jct_s"]
    mean, runs = jct_s.mean(), jct_s.size()
    for (name, *_), numbers in zip(cells(found), found.numbers, strict=True):
        mine, fair = mean[name, "srpt"], mean[name, "fair"]
        assert numbers == (None, runs[name, "srpt"], *map(pytest.approx, (mine, fair, mine / fair - 1)))
    changes = [row[-1] for row in found.numbers if row[-1] is not None]
    assert len(changes) == 3
    assert changes == sorted(changes)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page")
def test_heads_of_columns_sort_the_table_by_mouse_and_keyboard(comparison: Comparison, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(comparison_page(comparison, [comparison_table(comparison)], []), encoding="utf-8")
    orders: list[list[str]] = []
    states: list[list[str]] = []

    async def look(tab: Page) -> None:
        await tab.until("document.body && document.body.dataset.drawn")

        async def read() -> None:
            rows = "[...document.querySelectorAll('#gains tr')]"
            orders.append(await tab.run(f"{rows}.slice(1).map(row => row.cells[0].textContent)"))
            states.append(await tab.run(f"[...{rows}[0].cells].map(head => head.getAttribute('aria-sort'))"))

        await read()
        for column, by_keyboard in ((0, True), (2, False), (2, True)):
            button = f"document.querySelectorAll('#gains th button')[{column}]"
            if by_keyboard:
                await tab.run(f"{button}.focus()")
                for kind in ("keyDown", "keyUp"):
                    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
                    await tab.send("Input.dispatchKeyEvent", type=kind, **key)
            else:
                await tab.run(f"{button}.click()")
            await read()
        assert await tab.run("document.querySelectorAll('img').length") == 0
        assert not tab.errors

    visit(page, look, tmp_path)
    found = gains_of(comparison)
    assert found is not None
    names = [row[0] for row in cells(found)]
    by_jct = [name for _, name in sorted(zip((row[2] for row in found.numbers), names, strict=True))]
    # Names are in the order of their numbers: 2 is before 10.
    assert orders == [names, ["job 1", "job 2", EVIL], by_jct[::-1], by_jct]
    assert all(one != other for one, other in itertools.pairwise(orders)), "each press changes the order"
    none = ["none"] * 5
    expected = ((4, "ascending"), (0, "ascending"), (2, "descending"), (2, "ascending"))
    assert states == [[*none[:column], state, *none[column + 1 :]] for column, state in expected]
