"""The examples of docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["workloads", "simulator.cluster.env", "simulator.grid.env", "simulator.grid.grid"]
)
def test_the_example_of_a_docstring(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
