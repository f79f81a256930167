"""Reports of studies that compare schedulers, with synthetic results. Pictures: see
``tests.decima.show.test_plots``.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.table import Table

from decima.evaluation import Comparison, Conditions
from decima.evaluation.variants import HINDSIGHT
from decima.studies import deep_dive, single_resource
from decima.studies.compared import compared, plot_bars, study_table, summary, tidy
from tests.decima.episodes import episode
from tests.decima.show.test_plots import difference
from tests.simulator.cluster.build import job, stage
from workloads.sources.workload_file import Workload

SEEDS = 4


def made_up(means: dict[str, dict[str, float]]) -> pd.DataFrame:
    """Return tidy synthetic results: condition -> scheduler -> mean JCT, s; seeds differ by 10 % each."""
    rows = [
        {
            "condition": condition, "scheduler": name, "seed": seed, "mean_jct_s": mean * (0.85 + 0.1 * seed),
            "p95_jct_s": 2 * mean, "makespan_s": 3 * mean, "utilisation": 0.5, "load": math.nan,
            "fragmentation": 0.25,
        }
        for condition, schedulers in means.items()
        for name, mean in schedulers.items()
        for seed in range(SEEDS)
    ]  # fmt: skip
    return pd.DataFrame(rows)


RUNS = made_up({"low": {HINDSIGHT: 10.0, "decima": 8.0, "other": 9.0}, "high": {HINDSIGHT: 20.0, "decima": 15.0}})


def printed(*tables: Table, width: int = 200) -> list[str]:
    """Return the lines of tables as a terminal shows them."""
    console = Console(width=width, record=True)
    for table in tables:
        console.print(table)
    return console.export_text().splitlines()


def lines(*columns: str) -> list[list[str]]:
    paper = {("high", "decima"): "-21%"}
    table = study_table("Made up, 4 experiments", summary(RUNS), columns=columns, paper=paper)
    return [line.split() for line in printed(table)]


def test_the_summary_pairs_experiments_beside_the_paper() -> None:
    row = summary(RUNS)["low", "decima"]
    assert (row["mean_jct_s"], row["difference"]) == (pytest.approx(8), pytest.approx(-0.2))
    differences = -2 * (0.85 + 0.1 * np.arange(SEEDS))
    half_width = 3.182446 * differences.std(ddof=1) / np.sqrt(SEEDS)  # t of 3 degrees of freedom
    assert row["difference_ci95"] == pytest.approx(half_width / 10, rel=1e-6)
    assert row["makespan_s"] == pytest.approx(24)
    assert math.isnan(summary(RUNS, "absent")["low", "decima"]["difference"])
    assert " ".join(lines()[0]) == "Made up, 4 experiments"
    assert ["decima", "15.0", "±", "3.1", "30.0", "50.0%", "-25.0%", "±", "5.1%", "-21%"] in lines()
    assert ["high", HINDSIGHT, "20.0", "±", "4.1", "40.0", "50.0%", "—"] in lines()
    assert "Makespan" not in lines()[2]
    assert "Makespan" in lines("makespan_s")[2]


def test_the_json_says_how_it_was_made_and_what_was_not_measured() -> None:
    workload = Workload((job(stage(4, 100.0)),), None, "made up")
    comparison = Comparison(Conditions(workload, num_jobs=4, num_experiments=2), ["fair"])
    comparison.schedulers.clear()
    comparison.add("fair", {seed: 3.0 + seed / 1000 for seed in range(2)})
    outcome = compared("fig0", "One", {"": comparison}, notes=("A note.",), extra={"more": 1})
    shown = outcome.shown("decima reproduce fig0")
    content = json.loads(shown.json)
    assert (content["study"], content["command"], content["more"]) == ("fig0", "decima reproduce fig0", 1)
    assert {"platform", "processor", "cpus", "python", "versions"} == set(content["machine"])
    assert content["notes"] == ["A note."]
    assert "A note." in shown.notes
    assert not any(note.startswith("Iterations") for note in shown.notes)
    [condition] = content["conditions"]
    assert (condition["workload"], condition["arrivals"], condition["interval_s"]) == ("made up", "batch", None)
    assert condition["seeds"] == [0, 1]
    entry = condition["schedulers"]["fair"]
    assert entry["utilisation"] is None
    assert (entry["per_seed"]["mean_jct_s"], entry["per_seed"]["makespan_s"]) == ([3.0, 3.001], [None] * 2)
    assert [(row["scheduler"], row["seed"], row["mean_jct_s"]) for row in content["runs"]] == [
        ("fair", 0, 3.0),
        ("fair", 1, 3.001),
    ]
    assert len(tidy({"one": comparison, "other": comparison})) == 4


def test_pictures_of_studies(tmp_path: Path) -> None:
    assert difference(plot_bars(summary(RUNS)), "study-bars", tmp_path) is None
    assert len(single_resource.plot_fig9(made_up({"": {HINDSIGHT: 10.0, "decima": 8.0}})).axes[0].lines) == 2
    episodes = {name: episode(1 + place / 10) for place, name in enumerate((HINDSIGHT, "decima"))}
    assert single_resource.busy_speedup(episodes[HINDSIGHT], episodes[HINDSIGHT]) == 1
    figure = single_resource.plot_fig10(episodes)
    assert [axes.get_title()[:3] for axes in figure.axes] == ["(a)", "(b)", "(c)", "(d)", "(e)"]
    assert all(axes.get_xlabel().endswith("s)") and axes.get_ylabel() for axes in figure.axes)
    assert difference(figure, "fig10", tmp_path) is None
    records = [episode(1 + place / 10) for place in range(3)]
    assert difference(deep_dive.plot_fig13(records), "fig13", tmp_path) is None


def test_figure_14(tmp_path: Path) -> None:
    names = (HINDSIGHT, "decima", deep_dive.NO_LIMITS, deep_dive.NO_GRAPH, deep_dive.UNFIXED, deep_dive.BATCH)
    runs = made_up(
        {
            f"load {load}%": {name: load / 5 + place**2 * load / 40 for place, name in enumerate(names)}
            for load in (55, 65, 75, 85)
        }
    )
    assert difference(deep_dive.plot_fig14(runs), "fig14", tmp_path) is None


def test_figure_15a(tmp_path: Path) -> None:
    """Validated every 10 iterations; tuned weighted fair takes 30 s."""
    curves = {}
    for place, name in enumerate(("decima", deep_dive.OUTPUTS, deep_dive.STAGES)):
        judged = {10 * step: 20 + (40 + 10 * place) * math.exp(-step / (2 + place)) for step in range(11)}
        curves[name] = [
            {"iteration": float(iteration), "mean_jct_s": 1.0}
            | (
                {"validation_mean_jct_s": judged[iteration], "improvement": 1 - judged[iteration] / 30}
                if iteration in judged
                else {}
            )
            for iteration in range(101)
        ]
    figure = deep_dive.plot_fig15a(curves)
    assert figure.axes[0].lines[-1].get_ydata()[0] == pytest.approx(30)
    assert difference(figure, "fig15a", tmp_path) is None
