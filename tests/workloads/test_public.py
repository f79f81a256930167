"""The package's front door."""

from __future__ import annotations

import workloads


def test_public_names_are_there_and_documented() -> None:
    for name in workloads.__all__:
        assert getattr(workloads, name).__doc__, name
