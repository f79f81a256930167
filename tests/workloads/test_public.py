"""The package's front door."""

from __future__ import annotations

import doctest

import workloads


def test_the_example_of_the_package() -> None:
    result = doctest.testmod(workloads)
    assert result.attempted > 0
    assert result.failed == 0


def test_public_names_are_there_and_documented() -> None:
    for name in workloads.__all__:
        assert getattr(workloads, name).__doc__, name
