"""Text form of executor classes."""

import math

import pytest

from simulator import PAPER, ClusterConfig, ConfigError, ExecutorClass
from simulator.cluster.texts import parse_classes
from tests.cases import cases


def test_defaults_and_order_of_classes() -> None:
    # Defaults are those of Decima, sections 6.2 and 7.2, and its published simulator.
    config = ClusterConfig()
    assert config.executor_classes == (ExecutorClass(50, 1.0, 1.0),)
    assert (config.moving_delay_ms, config.warmup_delay_ms, config.max_time_ms) == (2000, 1000, math.inf)
    assert (config.reward, config.reward_scale_ms) == ("jct", 100_000)
    assert (config.semantics, config.engine) == (PAPER, "compiled")
    classes = (ExecutorClass(20, 2, 0.5), ExecutorClass(10, 4, 0.5), ExecutorClass(5, 1, 1.0))
    assert parse_classes("5x1, 10x4:0.5,20x2:0.5") == classes


@cases("text", "", "5", "5x", "x1", "5x1,", "5x1:2:3", "5.5x1", "0x1", "5x-1", "5xnan", "5x1:a", "5y1")
def test_classes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^expected COUNTxMEMORY or COUNTxCPU:MEMORY, .* got "):
        parse_classes(text)
