"""Speed of training on the grid: CPU time on one core, relative to matrix products.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_deeprm_speed.py``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decima.learning import DeepRMConfig, GridTraining
from decima.policy.threads import one_thread
from tests.benchmarks.yardstick import product_s

pytestmark = pytest.mark.benchmark

#: As the public code does it: it must find out which actions are possible.
PUBLIC: dict[str, Any] = {"episodes": {"mask": "all"}, "update": {"baseline": "action"}}


@pytest.fixture(autouse=True)
def _one_core() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("changes", [{}, PUBLIC], ids=["default", "public"])
def test_an_iteration_of_100_sets_and_20_episodes_of_each(changes: dict[str, Any], tmp_path: Path) -> None:
    """Episodes and update at a load of 70 %; the published code takes about 16 s."""
    config = DeepRMConfig.model_validate(changes)
    assert (config.episodes.sets, config.episodes.per_set, config.jobs.load) == (100, 20, 0.7)
    with GridTraining(config, tmp_path / "out").started() as training:
        training.learn(0)  # compiles, or loads what was compiled
        measured = [(training.learn(iteration), product_s()) for iteration in range(1, 4)]
    seconds = sorted(each["iteration_cpu_s"] for each, _ in measured)
    products = seconds[0] / min(unit_s for _, unit_s in measured)
    last, _ = measured[-1]
    print(
        f"\n{seconds[0]:.2f} to {seconds[-1]:.2f} s of CPU, {products:,.0f} products at least, "
        f"{last['samples']:,.0f} samples, slowdown {last['slowdown']:.2f}",
        end="",
    )
    assert products <= 16_000
