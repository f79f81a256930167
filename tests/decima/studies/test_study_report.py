"""What studies show, on made-up results. Pictures as in ``tests.decima.show.test_plots``."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions
from decima.evaluation.run import Run
from decima.evaluation.tuning import HINDSIGHT
from decima.studies import fig9, fig13, fig14, fig15
from decima.studies.study_report import Outcome, plot_bars, study_json, study_notes, study_table, summary
from simulator.cluster.record import EpisodeRecord
from tests.decima.episodes import episode
from tests.decima.show.test_plots import difference
from tests.simulator.cluster.build import job, stage
from workloads.sources.workload_file import Workload

SEEDS = 4
CONDITIONS = Conditions(Workload((job(stage(4, 100.0)),), None, "made up"), num_jobs=4, num_experiments=SEEDS)


class MadeUp(Comparison):
    """Results that nothing ran for."""

    def __init__(self, jct_s: dict[str, float], makespan: bool) -> None:
        """Scheduler -> mean JCT, s; seeds differ by 10 % each."""
        super().__init__(CONDITIONS, ["fair"])
        self.schedulers.clear()
        for name, mean in jct_s.items():
            setting = "weighted-fair:-1" if name == HINDSIGHT else ""
            rest = (3000 * mean, 0.5, math.nan, 0.25, setting) if makespan else ()
            self.add(
                name,
                {seed: Run(1000 * mean * (0.85 + 0.1 * seed), 2000 * mean, *rest) for seed in range(SEEDS)},
            )

    @property
    def episodes(self) -> dict[str, EpisodeRecord]:
        return {name: episode(1 + place / 10) for place, name in enumerate(self.schedulers)}


def made_up(means: dict[str, dict[str, float]], makespan: bool = True) -> dict[str, Comparison]:
    """Condition -> scheduler -> mean JCT, s; the makespan and what follows is known, or not."""
    return {condition: MadeUp(jct_s, makespan) for condition, jct_s in means.items()}


OUTCOME = Outcome(
    "fig0",
    "Made up",
    made_up(
        {"low": {HINDSIGHT: 10.0, "decima": 8.0, "other": 9.0}, "high": {HINDSIGHT: 20.0, "decima": 15.0}}
    ),
    paper={("high", "decima"): "-21%"},
    notes=("A note.",),
    extra={"more": 1},
)


def shown(outcome: Outcome) -> list[list[str]]:
    console = Console(width=200, record=True)
    console.print(study_table(outcome))
    return [line.split() for line in console.export_text().splitlines()]


def test_the_summary_pairs_experiments() -> None:
    row = summary(OUTCOME.comparisons)["low", "decima"]
    assert row["mean_jct_s"] == pytest.approx(8)
    assert row["change"] == pytest.approx(-0.2)
    differences = -2 * (0.85 + 0.1 * np.arange(SEEDS))
    half_width = 3.182446 * differences.std(ddof=1) / np.sqrt(SEEDS)  # t of 3 degrees of freedom
    assert row["change_ci95"] == pytest.approx(half_width / 10, rel=1e-6)
    assert row["makespan_s"] == pytest.approx(24)


def test_the_table_stands_beside_the_paper() -> None:
    lines = shown(OUTCOME)
    assert " ".join(lines[0]) == "Made up, 4 experiments"
    assert ["decima", "15.0", "±", "3.1", "30.0", "50.0%", "-25.0%", "±", "5.1%", "-21%"] in lines
    assert ["high", HINDSIGHT, "20.0", "±", "4.1", "40.0", "50.0%", "—"] in lines
    assert "Makespan" not in lines[2]
    assert "Makespan" in shown(replace(OUTCOME, makespan=True))[2]


def test_what_was_not_measured() -> None:
    outcome = Outcome("fig0", "One", made_up({"": {"fair": 3.0}}, makespan=False))
    assert ["fair", "3.0", "±", "0.6", "6.0", "—", "—"] in shown(outcome)
    [condition] = json.loads(study_json(outcome))["conditions"]
    assert condition["schedulers"]["fair"]["utilisation"] is None
    assert condition["schedulers"]["fair"]["per_seed"]["makespan_s"] == [None] * SEEDS
    assert condition["schedulers"]["fair"]["per_seed"]["setting"] == [""] * SEEDS


def test_the_json_says_how_it_was_made() -> None:
    content = json.loads(study_json(OUTCOME, command="decima reproduce fig0"))
    assert content["command"] == "decima reproduce fig0"
    assert content["more"] == 1
    assert {"platform", "processor", "cpus", "python", "versions"} == set(content["machine"])
    low, high = content["conditions"]
    assert low["seeds"] == [0, 1, 2, 3]
    assert (low["workload"], low["arrivals"], low["interval_s"]) == ("made up", "batch", None)
    assert high["schedulers"]["decima"]["paper"] == "-21%"
    assert high["schedulers"]["decima"]["per_seed"]["mean_jct_s"] == pytest.approx(
        [12.75, 14.25, 15.75, 17.25]
    )


def test_the_notes() -> None:
    notes = study_notes(OUTCOME)
    assert "A note." in notes
    assert not any(note.startswith("Iterations") for note in notes)


def test_bars(tmp_path: Path) -> None:
    assert difference(plot_bars(OUTCOME), "study-bars", tmp_path) is None


def test_figure_10(tmp_path: Path) -> None:
    outcome = Outcome("fig9b", "", made_up({"": {HINDSIGHT: 10.0, "decima": 8.0}}))
    assert difference(fig9.plot_fig10(outcome), "fig10", tmp_path) is None


def test_figure_13(tmp_path: Path) -> None:
    policies = dict.fromkeys((fig13.FOR_JCT, fig13.FOR_JCT_FREE, fig13.FOR_MAKESPAN), 5.0)
    comparisons = made_up({fig13.MOVES_COST: policies, fig13.MOVES_FREE: policies})
    assert difference(fig13.plot_fig13(Outcome("fig13", "", comparisons)), "fig13", tmp_path) is None


def test_figure_14(tmp_path: Path) -> None:
    names = (HINDSIGHT, "decima", fig14.NO_LIMITS, fig14.NO_GRAPH, fig14.UNFIXED, fig14.BATCH)
    comparisons = made_up(
        {
            f"load {load}%": {name: load / 5 + place**2 * load / 40 for place, name in enumerate(names)}
            for load in (55, 65, 75, 85)
        }
    )
    assert difference(fig14.plot_fig14(Outcome("fig14", "", comparisons)), "fig14", tmp_path) is None


def test_figure_15a(tmp_path: Path) -> None:
    """Validated every 10 iterations; tuned weighted fair takes 30 s."""
    curves = {}
    for place, name in enumerate(("decima", fig15.OUTPUTS, fig15.STAGES)):
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
    outcome = Outcome("fig15a", "", made_up({"": {HINDSIGHT: 1.0}}), curves=curves)
    figure = fig15.plot_fig15a(outcome)
    assert figure.axes[0].lines[-1].get_ydata()[0] == pytest.approx(30)
    assert difference(figure, "fig15a", tmp_path) is None
