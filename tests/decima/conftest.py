"""Policies, a log, and shipped policies independent of the installed ones."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from decima.policy.shipped import SHIPPED


def save_small_policy(path: Path, seed: int) -> Path:
    """Write an untrained policy."""
    from decima.policy.policy import Policy
    from decima.policy.presets import PAPER_POLICY  # PyTorch takes long, and few tests need it
    from decima.policy.save import save_policy
    from tests.decima.policy.examples import changed

    save_policy(path, Policy(changed(PAPER_POLICY, embedding=2, hidden=(3,), head_hidden=(3,)), seed))
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file."""
    return save_small_policy(tmp_path / "policy.npz", seed=1)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Make all shipped policies exist, with different contents."""
    for seed, name in enumerate(SHIPPED):
        monkeypatch.setitem(SHIPPED, name, save_small_policy(tmp_path / f"{name}.npz", seed))
    return SHIPPED


@pytest.fixture
def not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all shipped policies missing."""
    for name in SHIPPED:
        monkeypatch.setitem(SHIPPED, name, tmp_path / "nowhere" / f"{name}.npz")


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., Path]:
    """``network(units=10)``: a file with an untrained network for a grid with these settings."""

    def make(**grid: int) -> Path:
        import torch  # takes long, and few tests need it

        from decima.learning.grid.config import DeepRMConfig
        from decima.policy.grid import build_actor, save_network

        config = DeepRMConfig.model_validate({"grid": grid})
        torch.manual_seed(0)
        path = tmp_path / "policy.npz"
        save_network(path, build_actor(config.policy), config.policy, {"config": config.model_dump(mode="json")})
        return path

    return make


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """300 jobs of a machine with 64 processors, one without a run time."""
    random = np.random.default_rng(0)
    lines = ["; MaxProcs: 64"]
    for job in range(300):
        run_s = -1 if job == 7 else random.integers(10, 1000)
        lines.append(f"{job} {60 * job} 0 {run_s} {random.integers(1, 33)} " + "-1 " * 13)
    path = tmp_path / "small.swf.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path
