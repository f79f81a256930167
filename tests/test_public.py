"""What is public is documented, and the examples of docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

import workloads


@pytest.mark.parametrize(
    "name",
    [
        "workloads",
        "simulator.cluster.env",
        "simulator.grid.env",
        "decima.gym.scheduler",
        "simulator.grid.grid",
        "decima.evaluation.fit",
    ],
)
def test_the_example_of_a_docstring(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_public_names_are_there_and_documented() -> None:
    for name in workloads.__all__:
        assert getattr(workloads, name).__doc__, name
