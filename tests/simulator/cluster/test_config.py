"""Executor classes as people write them."""

from __future__ import annotations

import pytest

from simulator import ConfigError, ExecutorClass
from simulator.cluster.config import parse_classes


def test_the_smallest_class_comes_first() -> None:
    classes = (ExecutorClass(20, 2, 0.5), ExecutorClass(10, 4, 0.5), ExecutorClass(5, 1, 1.0))
    assert parse_classes("5x1, 10x4:0.5,20x2:0.5") == classes


@pytest.mark.parametrize(
    "text", ["", "5", "5x", "x1", "5x1,", "5x1:2:3", "5.5x1", "0x1", "5x-1", "5xnan", "5x1:a", "5y1"]
)
def test_classes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^executor classes .*: expected COUNTxMEMORY or COUNTxCPU:MEMORY, .* got "
    ):
        parse_classes(text)
