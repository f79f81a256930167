"""The response surface: it finds the minimum of a noisy function of many variables, and weights for srpt-tuned."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import decima
from decima.evaluation import Conditions
from reproduce import response_surface
from reproduce.__main__ import cli
from reproduce.response_surface import ResponseSurface, draw_setting, mean_jcts_s


def excess(size: int, noise: float) -> float:
    """Search for the minimum of a quadratic function; return the excess at the end relative to the start."""
    search, random = ResponseSurface(np.full(size, 2.0), seed=0), np.random.default_rng(3)
    minimum, curvature = 0.3 * random.standard_normal(size), np.exp(random.normal(0.0, 0.7, size)) / size

    def cost(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return 0.3 * ((points - minimum) ** 2 @ curvature)

    for _ in range(30):
        candidates = search.ask(12)
        level = random.standard_normal((12, 1))  # of each sequence, common to its candidates
        search.tell(candidates, cost(candidates) + level + noise * random.standard_normal(candidates.shape[:2]))
    return float(cost(search.centre) / cost(np.zeros(size)))


def test_it_finds_the_minimum_of_a_noisy_function_also_with_many_variables() -> None:
    found = excess(10, noise=0.01)
    assert found < 0.15
    assert excess(68, noise=0.02) < 0.55
    assert excess(10, noise=0.01) == found


def test_the_centre_stays_where_costs_are_noise() -> None:
    search, random = ResponseSurface(np.full(20, 2.0), seed=0), np.random.default_rng(0)
    for _ in range(10):
        candidates = search.ask(6)
        search.tell(candidates, random.standard_normal(candidates.shape[:2]))
    assert np.abs(search.centre).max() < search.REACH


def test_candidates_are_the_centre_and_pairs_around_it_within_the_bounds() -> None:
    bounds = np.array([2.0, 2.0, 2.0, 0.5])
    search = ResponseSurface(bounds, seed=0)
    search.centre = np.array([0.0, 0.5, -0.5, 0.5])
    candidates = search.ask(3)
    assert candidates.shape == (3, 1 + 2 * search.PAIRS, 4)
    assert (candidates[:, 0] == search.centre).all()
    assert np.allclose((candidates[:, 1::2] + candidates[:, 2::2])[..., :3] / 2, search.centre[:3])
    assert (np.abs(candidates) <= bounds).all()
    assert len(np.unique(candidates[:, 1:, 0])) == 18, "each sequence has its own draws"


def test_settings_follow_from_their_seed_and_differ() -> None:
    settings = [draw_setting(seed, ("tpch", "synthetic")).to_dict() for seed in (*range(20), 0)]
    assert settings[0] == settings[-1]
    assert {setting["executors"] for setting in settings} == {25, 50, 100}
    assert {setting["arrivals"] for setting in settings} == {"batch", "poisson"}


def draw_small(seed: int, workload: tuple[str, ...]) -> Conditions:
    return replace(draw_setting(seed, workload), num_jobs=5)


def test_the_command_writes_weights_that_the_rule_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_surface, "draw_setting", draw_small)
    words = "--workload synthetic --generations 1 --sequences 2 --judged 2 --seed 5"
    words = ["response-surface", *words.split(), "--out", str(tmp_path), "--weights", str(tmp_path / "weights.json")]
    CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    rows = json.loads((tmp_path / "response-surface.json").read_text())["tables"]["other sequences"]
    assert [row["scheduler"] for row in rows] == ["srpt-tuned, shipped weights", "srpt-tuned, found weights"]
    settings = [draw_small(500_005 + index, ("synthetic",)) for index in range(2)]
    changes = [
        jct_s[1] / jct_s[0] - 1
        for jct_s in (mean_jcts_s(setting, ["srpt", f"srpt-tuned:{tmp_path / 'weights.json'}"]) for setting in settings)
    ]
    assert rows[1]["vs srpt"] == pytest.approx(decima.mean_interval(changes).mean)
