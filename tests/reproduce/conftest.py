"""Tuning that takes no time."""

from functools import partialmethod

import pytest

from decima.evaluation import Comparison, variants


@pytest.fixture
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the candidate settings of tuned schedulers to two."""
    few = {name: (grid[0], grid[-1]) for name, grid in variants.GRIDS.items()}
    monkeypatch.setattr("decima.evaluation.comparison.GRIDS", few)
    two_alphas = partialmethod(Comparison.__init__, alphas=(-1.0, 0.0))
    monkeypatch.setattr(Comparison, "__init__", two_alphas)
