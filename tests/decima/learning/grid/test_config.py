from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from decima.learning.grid.config import RECIPES, DeepRMConfig
from decima.policy.grid import Channels, build_actor
from decima.settings import TrainingError, parse_settings, read_settings
from simulator.grid import DEEPRM, PAPER, Grid, GridConfig
from tests.cases import cases
from tests.refusal import one_line
from workloads import WorkloadError


def read(source: str | Path, *overrides: str) -> DeepRMConfig:
    return read_settings(DeepRMConfig, RECIPES, source, overrides)


@pytest.mark.parametrize(("load", "loads"), [("0.7", (0.7,)), ("[0.3, 0.9]", (0.3, 0.9))])
def test_one_load_or_several(load: str, loads: tuple[float, ...]) -> None:
    config = read(RECIPES.names()[0], f"jobs.load={load}", "jobs.rate=null")
    assert config.jobs.loads(config.grid) == loads


def test_a_rate_replaces_the_default_load() -> None:
    jobs = parse_settings(DeepRMConfig, {"jobs": {"rate": 0.5}}, "mine.yaml").jobs
    assert (jobs.load, jobs.rate) == (None, 0.5)
    assert jobs.loads(GridConfig()) == pytest.approx((0.9225,))
    assert parse_settings(DeepRMConfig, {"jobs": {"load": None}}, "mine.yaml").jobs.load == 0.7


@pytest.mark.parametrize("recipe", RECIPES.names())
def test_recipes_are_complete_settings(recipe: str, tmp_path: Path) -> None:
    """In recipes, jobs fit the grid and the network fits the picture; settings are unchanged when read again."""
    config = read(recipe)
    grid = config.grid
    Grid(grid, config.jobs.draw(grid, 3, 1))
    network = build_actor(config.policy)
    assert list(network.parameters())[-1].shape == (grid.num_actions,)
    path = tmp_path / "mine.yaml"
    path.write_text(config.to_yaml())
    assert read(path) == config
    assert set(yaml.safe_load(path.read_text())) == set(DeepRMConfig.model_fields)


def test_recipes_loads_and_rates() -> None:
    deeprm, cnn, a2c = read("deeprm"), read("cnn"), read("a2c")
    assert (deeprm.grid.units, deeprm.grid.visible_jobs, deeprm.grid.horizon) == (10, 10, 20)
    assert (deeprm.network.filters, deeprm.network.hidden) == (0, (20,))
    assert (cnn.network.filters, cnn.network.kernel, cnn.network.reshape) == (16, 2, True)
    channels = build_actor(cnn.policy)[0]
    assert isinstance(channels, Channels)
    assert channels.shape[0] == cnn.grid.num_resources
    assert [recipe.update.algorithm for recipe in (deeprm, cnn, a2c)] == ["reinforce", "reinforce", "a2c"]
    assert (a2c.jobs.distribution, a2c.grid.units) == ("paper", 20)
    assert DeepRMConfig().grid == GridConfig(max_steps=DeepRMConfig().grid.max_steps, semantics=PAPER)
    config = read("deeprm", "grid={machines: 2, machine_weights: [1, 0.5], semantics: deeprm}")
    assert config.grid.weights == (1.0, 0.5)
    assert config.grid.semantics == DEEPRM
    config = read("deeprm", "jobs.load=1.2", "grid.machines=2")
    with pytest.raises(WorkloadError, match=r"at most 0\.9225, that of a job in every step, got 1\.2"):
        config.jobs.draw(config.grid, 1, 0)
    jobs = "jobs={rate: [0.5, 1.0], load: null, distribution: paper}"
    config = read("deeprm", jobs, "grid={units: 20, machines: 2}")
    assert config.jobs.loads(config.grid) == pytest.approx((0.9225 / 4, 0.9225 / 2))
    sets = config.jobs.draw(config.grid, 200, 1)
    loads = sets.load(20).mean(axis=1) / 2
    np.testing.assert_allclose([loads[::2].mean(), loads[1::2].mean()], [0.9225 / 4, 0.9225 / 2], rtol=0.1)


@cases(
    "overrides",
    ["jobs.load=0.7"],
    ["jobs={rate: 0.6, load: null, distribution: paper}", "grid.units=20"],
    ["jobs={load: 0.8, distribution: coarse}"],
    ["jobs.load=0.5", "grid={units: 15, machines: 2}"],
)
def test_jobs_need_the_share_of_the_grid_that_was_asked_for(overrides: list[str]) -> None:
    config = read("deeprm", *overrides)
    grid = config.grid
    jobs = config.jobs.draw(grid, 2000, 1)
    wanted = config.jobs.load if config.jobs.rate is None else 0.6 * 0.9225
    assert jobs.load(grid.units).mean() / grid.machines == pytest.approx(wanted, rel=0.03)


@cases("changes, message",
        ({"iteration": 3}, "iteration: unknown key"),
        ({"grid": {"unit": 3}}, "grid.unit: unknown key"),
        ({"grid": {"units": 0}}, "grid.units: expected a number of at least 1, got 0"),
        ({"grid": {"objective": "speed"}}, "grid.objective: expected 'slowdown'"),
        ({"jobs": {"rate": 0.5, "load": 0.7}}, "jobs: load and rate exclude each other"),
        ({"jobs": {"load": -1}}, "jobs.load: expected a number above 0, got -1"),
        ({"jobs": {"rate": 1.5}}, "jobs.rate: expected a number of at most 1, got 1.5"),
        ({"jobs": {"load": [0.5, 0]}}, "jobs.load: expected a number"),
        ({"jobs": {"log": "a.swf", "load": None, "rate": 0.5}}, "jobs: load: a log is drawn from by one load"),
        ({"network": {"hidden": []}}, "network.hidden: "),
        ({"episodes": {"per_set": 1}}, "episodes.per_set: expected greater than or equal to 2"),
        ({"episodes": {"mask": "none"}}, "episodes.mask: expected 'all', 'bookable' or 'startable'"),
        ({"update": {"algorithm": "ppo"}}, "update.algorithm: expected 'reinforce' or 'a2c'"),
        ({"update": {"learning_rate": float("nan")}}, "update.learning_rate: "),
        ({"behaviour_cloning": {"heuristic": "random"}}, "behaviour_cloning.heuristic: expected 'sjf', 'packer'"),
        ({"start": "a.npz", "behaviour_cloning": {}}, "start: expected behaviour_cloning=null beside it"),
        ({"imitation": None}, "imitation is called behaviour_cloning now"),
        ({"seed": 1_000_000}, "seed: expected less than 1000000"),
)  # fmt: skip
def test_bad_settings_are_refused_in_one_line_that_names_the_place(changes: dict[str, Any], message: str) -> None:
    assert one_line(TrainingError, parse_settings, DeepRMConfig, changes, "mine.yaml").startswith(
        f"mine.yaml: {message}"
    )
