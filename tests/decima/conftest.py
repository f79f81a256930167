"""Policies that ship, or do not, whatever is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from decima.policy.shipped import SHIPPED


def save_small_policy(path: Path, seed: int) -> Path:
    """Write a policy that has learned nothing."""
    from decima.policy.config import PAPER_POLICY  # PyTorch takes long, and few tests need it
    from decima.policy.files import save_policy
    from decima.policy.policy import Policy
    from tests.decima.policy.examples import changed

    save_policy(path, Policy(changed(PAPER_POLICY, embedding=2, hidden=(3,), head_hidden=(3,)), seed))
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file."""
    return save_small_policy(tmp_path / "policy.npz", seed=1)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """All policies are there, and differ."""
    for seed, name in enumerate(SHIPPED):
        monkeypatch.setitem(SHIPPED, name, save_small_policy(tmp_path / f"{name}.npz", seed))
    return SHIPPED


@pytest.fixture
def not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy is there."""
    for name in SHIPPED:
        monkeypatch.setitem(SHIPPED, name, tmp_path / "nowhere" / f"{name}.npz")
