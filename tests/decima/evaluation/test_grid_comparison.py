import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.grid import LOADS, MAX_STEPS, MEASURES, SHIPPED_NETWORK, GridComparison, GridSettings
from decima.policy.parts import PolicyFileError
from decima.schedulers.grid import Packer, ShortestJobFirst, play
from simulator.grid import DEEPRM, Grid, GridConfig
from tests.cases import cases
from workloads import DISTRIBUTIONS, WorkloadError, draw_jobs, read_swf


def test_figures_are_those_of_the_grid() -> None:
    settings = GridSettings(loads=(0.7, 1.5), heuristics=("sjf", "packer"), sets=5, seed=3)
    comparison = GridComparison(settings)
    assert not comparison.complete
    steps: list[tuple[int, int]] = []
    comparison.run(lambda done, total: steps.append((done, total)))
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert comparison.complete
    table = comparison.table()
    assert (table.index.tolist(), table.columns.tolist()) == ([0.7, 1.5], ["sjf", "packer"])
    assert table["sjf"][0.7] == pytest.approx(comparison.results[0.7]["sjf"].summary()["slowdown"]["mean"])
    for load in (0.7, 1.5):
        jobs = draw_jobs(DISTRIBUTIONS["code"], load=load, sets=5, seed=3)
        for name, scheduler in (("sjf", ShortestJobFirst()), ("packer", Packer())):
            record = play(Grid(GridConfig(max_steps=MAX_STEPS), jobs), scheduler)
            evaluation = comparison.results[load][name]
            assert evaluation.mean("slowdown") == pytest.approx(np.nanmean(record.slowdown()))
            assert evaluation.mean("completion") == pytest.approx(np.nanmean(record.completion))
            assert evaluation.mean("waiting") == pytest.approx(np.nanmean(record.waiting))


def test_default_and_highest_loads() -> None:
    assert GridSettings().loads == pytest.approx([*np.arange(0.1, 1.8, 0.2), 1.845])
    assert GridSettings(distribution="paper").loads == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9, 0.9225])
    assert GridSettings(machines=2).loads[-1] == pytest.approx(0.9225)
    assert GridSettings(distribution="paper").grid.units == 20
    assert Half().loads == (0.1, 0.3, 0.5)
    assert Half(loads=(0.5 * (1 + 1e-10),)).loads[0] > 0.5, "a rounding error is none"
    with pytest.raises(WorkloadError, match=r"a load of 51 %: expected above 0 and at most 50 %$"):
        Half(loads=(0.51,))
    settings = GridSettings(loads=(0.5,), machines=2, sets=200)
    load = settings.conditions(0.5).jobs().load(2 * settings.grid.units)
    assert load.mean() == pytest.approx(0.5, abs=0.03)
    assert settings.rate(0.5) == pytest.approx(1 / 1.845)


class Half(GridSettings):
    """Settings in which a job in every step is a load of 50 %."""

    highest_load = 0.5


def test_jobs_may_come_from_a_log(log: Path) -> None:
    settings = GridSettings(log=read_swf(log), heuristics=("sjf",), sets=3, steps=20, machines=2)
    assert settings.loads == LOADS
    assert LOADS == (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9)
    assert (settings.grid.units, settings.grid.machines) == (10, 2)
    assert settings.rate(0.5) is None
    assert settings.conditions(0.7).jobs().load(2 * 10).max(axis=1).min() >= 0.7
    with pytest.raises(WorkloadError, match=r"a load of -10 %: expected above 0$"):
        GridSettings(log=read_swf(log), loads=(-0.1,))
    comparison = GridComparison(replace(settings, loads=(0.3,)))
    comparison.run()
    document = json.loads(comparison.to_json())
    assert document["jobs"] == "small.swf.gz"
    assert document["loads"][0]["rate"] is None


def test_the_json_says_what_was_compared() -> None:
    settings = GridSettings(
        loads=(0.5,), machines=2, heuristics=("sjf", "tetris*"), sets=2, steps=10, seed=4, deeprm_semantics=True
    )
    comparison = GridComparison(settings)
    comparison.run()
    document = json.loads(comparison.to_json(command="decima deeprm compare"))
    [of_load] = document.pop("loads")
    assert document.pop("versions").keys() >= {"decima", "numpy"}
    assert document.pop("measures") == MEASURES
    assert document == {
        "jobs": "code", "machines": 2, "units": 10, "semantics": "deeprm", "sets": 2, "steps": 10, "seed": 4,
        "network": None, "command": "decima deeprm compare",
    }  # fmt: skip
    jobs = settings.conditions(0.5).jobs()
    assert (of_load["jobs"], of_load["load"]) == (jobs.num_jobs.sum(), 0.5)
    assert (of_load["tetris_knob"], list(of_load["schedulers"])) == (comparison.knobs[0.5], ["sjf", "tetris*"])
    plain = GridComparison(replace(settings, heuristics=("sjf",), deeprm_semantics=False))
    plain.run()
    document = json.loads(plain.to_json())
    assert document["semantics"] == "paper"
    assert document["loads"][0]["tetris_knob"] is None


def test_networks_are_named_and_must_fit(network: Callable[..., Path], tmp_path: Path) -> None:
    assert GridSettings().network_name is None
    assert GridSettings(network=SHIPPED_NETWORK).network_name == "that ships"
    path = network()
    assert GridSettings(network=path).network_name == str(path)
    with pytest.raises(CompareError, match=r"policy\.npz: this network is for 2 machines, not for 1"):
        GridSettings(network=network(machines=2))
    with pytest.raises(CompareError, match="for 10 units of each resource, not for 20"):
        GridSettings(network=network(), distribution="paper")
    (tmp_path / "broken.npz").write_bytes(b"")
    with pytest.raises(PolicyFileError, match=r"broken\.npz"):
        GridSettings(network=tmp_path / "broken.npz")


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


@cases(
    "values, told",
    ({"loads": (1.9,)}, "a load of 190 %: expected above 0 and at most 184.5 %"),
    ({"loads": (0.0,)}, "a load of 0 %"),
    ({"loads": (1.0,), "machines": 2}, "at most 92.25 %"),
    ({"loads": (0.5, 0.5)}, "a load is given twice"),
    ({"heuristics": ()}, "no schedulers"),
    ({"heuristics": ("sjf", "sjf")}, "given twice: sjf, sjf"),
)
def test_what_is_refused(values: dict[str, object], told: str) -> None:
    with pytest.raises((CompareError, WorkloadError), match=told):
        GridSettings(**values)  # type: ignore[arg-type]
