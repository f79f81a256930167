import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.grid import LOADS, MAX_STEPS, SHIPPED_NETWORK, GridComparison, grid_comparison, network_name
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.evaluation.metrics import compare_metrics
from decima.schedulers.grid import Packer, ShortestJobFirst, play
from simulator.grid import DEEPRM, Grid, GridConfig
from tests.cases import cases
from workloads import DISTRIBUTIONS, JobDistribution, WorkloadError, draw_jobs
from workloads.errors import DecimaError, PolicyFileError


def loads_of(comparison: GridComparison) -> list[float]:
    return [load for jobs in comparison.conditions.values() for load in jobs.loads(comparison.grid)]


def test_figures_are_those_of_the_grid() -> None:
    comparison = grid_comparison(loads=(0.7, 1.5), heuristics=("sjf", "packer"), sets=5, seed=3)
    assert not comparison.complete
    steps: list[tuple[int, int]] = []
    comparison.run(lambda done, total: steps.append((done, total)))
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert comparison.complete
    table = comparison.table()
    assert (table.index.tolist(), table.columns.tolist()) == (["70 %", "150 %"], ["sjf", "packer"])
    runs = comparison.runs
    assert list(runs) == ["condition", "scheduler", "set", "jobs", "unfinished", *GRID_METRICS]
    for load, condition in ((0.7, "70 %"), (1.5, "150 %")):
        jobs = draw_jobs(DISTRIBUTIONS["code"], load=load, sets=5, seed=3)
        for name, scheduler in (("sjf", ShortestJobFirst()), ("packer", Packer())):
            record = play(Grid(GridConfig(max_steps=MAX_STEPS), jobs), scheduler)
            found = comparison.compared[condition][name]
            assert found["slowdown"].mean.mean == pytest.approx(np.nanmean(record.slowdown())) == table[name][condition]
            assert found["completion"].mean.mean == pytest.approx(np.nanmean(record.completion))
            assert found["waiting"].mean.mean == pytest.approx(np.nanmean(record.waiting))
            rows = runs[runs["condition"] == condition]
            assert compare_metrics(rows, [name], None, ["slowdown"])[name]["slowdown"].mean == found["slowdown"].mean


def test_default_and_highest_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loads_of(grid_comparison()) == pytest.approx([*np.arange(0.1, 1.8, 0.2), 1.845])
    assert loads_of(grid_comparison(distribution="paper")) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9, 0.9225])
    assert loads_of(grid_comparison(machines=2))[-1] == pytest.approx(0.9225)
    assert grid_comparison(distribution="paper").grid.units == 20
    comparison = grid_comparison(loads=(0.5,), machines=2, sets=200)
    [jobs] = comparison.conditions.values()
    load = jobs.draw(comparison.grid, 200, 0).load(2 * comparison.grid.units)
    assert load.mean() == pytest.approx(0.5, abs=0.03)
    assert jobs.distribution_on(comparison.grid).rate(0.5) == pytest.approx(1 / 1.845)
    half = JobDistribution(slots=10, short=(1, 1), long=(1, 1), dominant=(5, 5), other=(5, 5))
    monkeypatch.setitem(DISTRIBUTIONS, "coarse", half)  # a job in every step is a load of 50 %
    assert loads_of(grid_comparison(distribution="coarse")) == [0.1, 0.3, 0.5]
    rounded = grid_comparison(distribution="coarse", loads=(0.5 * (1 + 1e-10),))
    assert loads_of(rounded)[0] > 0.5, "a rounding error is none"
    with pytest.raises(WorkloadError, match=r"a load of 51 %: expected above 0 and at most 50 %$"):
        grid_comparison(distribution="coarse", loads=(0.51,))


def test_jobs_may_come_from_a_log(log: Path) -> None:
    comparison = grid_comparison(log=log, heuristics=("sjf",), sets=3, steps=20, machines=2)
    assert tuple(loads_of(comparison)) == LOADS == (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9)
    assert (comparison.grid.units, comparison.grid.machines) == (10, 2)
    assert comparison.conditions["70 %"].draw(comparison.grid, 3, 0).load(2 * 10).max(axis=1).min() >= 0.7
    with pytest.raises(WorkloadError, match=r"a load of -10 %: expected above 0$"):
        grid_comparison(log=log, loads=(-0.1,))
    comparison = grid_comparison(log=log, heuristics=("sjf",), sets=3, steps=20, machines=2, loads=(0.3,))
    comparison.run()
    document = json.loads(comparison.to_json())
    assert document["jobs"] == "small.swf.gz"
    assert document["loads"][0]["rate"] is None


def test_the_json_says_what_was_compared() -> None:
    values: dict[str, Any] = {"loads": (0.5,), "machines": 2, "sets": 2, "steps": 10, "seed": 4}
    comparison = grid_comparison(**values, heuristics=("sjf", "tetris*"), semantics="deeprm")
    comparison.run()
    document = json.loads(comparison.to_json(command="decima deeprm compare"))
    [of_load] = document.pop("loads")
    assert document.pop("versions").keys() >= {"decima", "numpy"}
    assert document.pop("measures").keys() == GRID_METRICS.keys()
    assert document == {
        "jobs": "code", "machines": 2, "units": 10, "semantics": "deeprm", "sets": 2, "steps": 10, "seed": 4,
        "network": None, "command": "decima deeprm compare",
    }  # fmt: skip
    jobs = comparison.conditions["50 %"].draw(comparison.grid, 2, 4)
    assert (of_load["jobs"], of_load["load"]) == (jobs.num_jobs.sum(), 0.5)
    assert (of_load["tetris_knob"], list(of_load["schedulers"])) == (comparison.knobs["50 %"], ["sjf", "tetris*"])
    plain = grid_comparison(**values, heuristics=("sjf",))
    plain.run()
    document = json.loads(plain.to_json())
    assert document["semantics"] == "paper"
    assert document["loads"][0]["tetris_knob"] is None


def test_networks_are_named_and_must_fit(network: Callable[..., Path], tmp_path: Path) -> None:
    assert grid_comparison().networks == {}
    assert network_name(SHIPPED_NETWORK) == "that ships"
    path = network()
    assert network_name(grid_comparison(network=path).networks["deeprm"]) == str(path)
    with pytest.raises(CompareError, match=r"policy\.npz: this network is for 2 machines, not for 1"):
        grid_comparison(network=network(machines=2))
    with pytest.raises(CompareError, match="for 10 units of each resource, not for 20"):
        grid_comparison(network=network(), distribution="paper")
    (tmp_path / "broken.npz").write_bytes(b"")
    with pytest.raises(PolicyFileError, match=r"broken\.npz"):
        grid_comparison(network=tmp_path / "broken.npz")


def test_a_network_takes_part_on_the_grid_that_it_was_made_for(network: Callable[..., Path]) -> None:
    path = network(visible_jobs=3, horizon=16)
    texts = []
    for _ in range(2):
        comparison = grid_comparison(loads=(0.9,), network=path, heuristics=("sjf",), sets=4, semantics="deeprm")
        assert comparison.schedulers == ("sjf", "deeprm")
        assert (comparison.grid.visible_jobs, comparison.grid.horizon) == (3, 16)
        assert comparison.grid.semantics == DEEPRM
        comparison.run()
        texts.append(comparison.to_json())
    assert texts[0] == texts[1]  # draws its actions, from the same stream


@cases(
    "values, told",
    ({"loads": (1.9,)}, "a load of 190 %: expected above 0 and at most 184.5 %"),
    ({"loads": (0.0,)}, "a load of 0 %"),
    ({"loads": (1.0,), "machines": 2}, "at most 92.25 %"),
    ({"loads": (0.5, 0.5)}, "a load is given twice"),
    ({"heuristics": ()}, "no schedulers"),
    ({"heuristics": ("sjf", "sjf")}, "given twice: sjf, sjf"),
    ({"steps": 0}, "^steps: expected a number of at least 1, got 0"),
)
def test_what_is_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(DecimaError, match=told):
        grid_comparison(**values)
