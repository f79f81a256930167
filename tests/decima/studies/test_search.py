"""Searches: both find the minimum of a noisy function, the response surface also with many variables."""

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.studies.search import SEARCHES, ResponseSurface, Search


def excess(search: Search, size: int, noise: float, generations: int = 30, far: float = 0.3) -> float:
    """Search for the minimum of a quadratic function; return the excess at the end relative to the start."""
    random = np.random.default_rng(3)
    minimum, curvature = far * random.standard_normal(size), np.exp(random.normal(0.0, 0.7, size)) / size

    def of(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return 0.3 * ((points - minimum) ** 2 @ curvature)

    for _ in range(generations):
        candidates = search.ask(12)
        level = random.standard_normal((12, 1))  # of each sequence, common to its candidates
        search.tell(candidates, of(candidates) + level + noise * random.standard_normal(candidates.shape[:2]))
    return float(of(search.centre) / of(np.zeros(size)))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_finds_the_minimum_of_a_noisy_function(name: str) -> None:
    assert excess(SEARCHES[name](np.full(10, 2.0), seed=0), 10, noise=0.01) < 0.15


def test_a_response_surface_finds_it_with_many_variables() -> None:
    found = excess(ResponseSurface(np.full(68, 2.0), seed=0), 68, noise=0.02)
    assert found < 0.55
    assert found == excess(ResponseSurface(np.full(68, 2.0), seed=0), 68, noise=0.02)  # reproducible


def test_centre_and_candidates_of_the_response_surface() -> None:
    search = ResponseSurface(np.full(20, 2.0), seed=0)
    random = np.random.default_rng(0)
    for _ in range(10):
        candidates = search.ask(6)
        search.tell(candidates, random.standard_normal(candidates.shape[:2]))
    assert np.abs(search.centre).max() < search.REACH
    most = np.array([2.0, 2.0, 2.0, 0.5])
    search = ResponseSurface(most, seed=0)
    search.centre = np.array([0.0, 0.5, -0.5, 0.5])
    asked = search.ask(3)
    assert asked.shape == (3, 1 + 2 * search.PAIRS, 4)
    assert (asked[:, 0] == search.centre).all()
    assert np.allclose((asked[:, 1::2] + asked[:, 2::2])[..., :3] / 2, search.centre[:3])
    assert (np.abs(asked) <= most).all()
    assert len(np.unique(asked[:, 1:, 0])) == 18  # each sequence has its own draws
