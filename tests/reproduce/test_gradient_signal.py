"""The gradient signal of kinds of advantages, for a policy that was trained for one iteration."""

from pathlib import Path

import pytest

from reproduce import gradient_signal


def test_gradients_of_the_same_episodes_are_compared(tmp_path: Path) -> None:
    small = ("workload.jobs=3", "validation.sequences=2", "episodes.sequences=2", "episodes.per_sequence=2")
    result = gradient_signal.run(
        workload="synthetic",
        executors=4,
        horizon=(1.0, 1e6),
        iterations=1,
        sequences=5,
        policies=tmp_path,
        training=small,
    )
    table = result.tables["batches"].set_index("advantages")
    assert table.index.tolist() == ["returns", "critic, GAE horizon 1 s", "critic, GAE horizon 1e+06 s"]
    assert table.loc["returns", "direction"] == pytest.approx(1.0)
    assert table["signal"].between(-1, 1).all()
    assert (table["signal_ci95"] > 0).all()
    assert result.pictures["gradient-signal"].axes[0].get_xlabel()
