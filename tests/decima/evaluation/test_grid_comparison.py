from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.grid_comparison import MAX_STEPS, GridComparison, GridSettings
from decima.policy.errors import PolicyFileError
from decima.schedulers.grid import Packer, ShortestJobFirst, play
from simulator.grid import DEEPRM, Grid, GridConfig
from workloads import DISTRIBUTIONS, WorkloadError, draw_jobs


def test_figures_are_those_of_the_grid() -> None:
    settings = GridSettings(loads=(0.7, 1.5), heuristics=("sjf", "packer"), sets=5, seed=3)
    comparison = GridComparison(settings)
    steps: list[tuple[int, int]] = []
    comparison.run(lambda done, total: steps.append((done, total)))
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert comparison.complete
    table = comparison.table()
    assert (table.index.tolist(), table.columns.tolist()) == ([0.7, 1.5], ["sjf", "packer"])
    assert table["sjf"][0.7] == pytest.approx(comparison.summary(0.7, "sjf")["slowdown"]["mean"])
    for load in (0.7, 1.5):
        jobs = draw_jobs(DISTRIBUTIONS["code"], load=load, sets=5, seed=3)
        for name, scheduler in (("sjf", ShortestJobFirst()), ("packer", Packer())):
            record = play(Grid(GridConfig(max_steps=MAX_STEPS), jobs), scheduler)
            evaluation = comparison.results[load][name]
            assert evaluation.mean("slowdown") == pytest.approx(np.nanmean(record.slowdown()))
            assert evaluation.mean("completion") == pytest.approx(np.nanmean(record.completion))
            assert evaluation.mean("waiting") == pytest.approx(np.nanmean(record.waiting))


def test_the_default_loads_end_with_the_highest() -> None:
    assert GridSettings().loads == pytest.approx([*np.arange(0.1, 1.8, 0.2), 1.845])
    assert GridSettings(distribution="paper").loads == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9, 0.9225])
    assert GridSettings(machines=2).loads[-1] == pytest.approx(0.9225)
    assert GridSettings(distribution="paper").grid.units == 20


def test_loads_are_shares_of_all_machines() -> None:
    settings = GridSettings(loads=(0.5,), machines=2, sets=200)
    load = settings.conditions(0.5).jobs().load(2 * settings.grid.units)
    assert load.mean() == pytest.approx(0.5, abs=0.03)
    assert settings.rate(0.5) == pytest.approx(1 / 1.845)


def test_a_network_takes_part_on_the_grid_that_it_was_made_for(network: Callable[..., Path]) -> None:
    path = network(visible_jobs=3, horizon=16)
    settings = GridSettings(loads=(0.9,), network=path, heuristics=("sjf",), sets=4, deeprm_semantics=True)
    assert settings.schedulers == ("sjf", "deeprm")
    assert (settings.grid.visible_jobs, settings.grid.horizon) == (3, 16)
    assert settings.grid.semantics == DEEPRM
    texts = []
    for _ in range(2):
        comparison = GridComparison(settings)
        comparison.run()
        texts.append(comparison.to_json())
    assert texts[0] == texts[1]  # draws its actions, from the same stream


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"loads": (1.9,)}, "a load of 190 %: expected above 0 and at most 184.5 %"),
        ({"loads": (0.0,)}, "a load of 0 %"),
        ({"loads": (1.0,), "machines": 2}, "at most 92.25 %"),
        ({"loads": (0.5, 0.5)}, "a load is given twice"),
        ({"heuristics": ()}, "no schedulers"),
        ({"heuristics": ("sjf", "sjf")}, "given twice: sjf, sjf"),
    ],
)
def test_what_is_refused(values: dict[str, object], told: str) -> None:
    with pytest.raises((CompareError, WorkloadError), match=told):
        GridSettings(**values)  # type: ignore[arg-type]


def test_a_network_that_does_not_fit(network: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(CompareError, match=r"policy\.npz: this network is for 2 machines, not for 1"):
        GridSettings(network=network(machines=2))
    with pytest.raises(CompareError, match="for 10 units of each resource, not for 20"):
        GridSettings(network=network(), distribution="paper")
    (tmp_path / "broken.npz").write_bytes(b"")
    with pytest.raises(PolicyFileError, match=r"broken\.npz"):
        GridSettings(network=tmp_path / "broken.npz")
