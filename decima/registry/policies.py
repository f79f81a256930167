"""Learned schedulers: policies that ship with the package or that ``decima train`` wrote, by name or path."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from decima import policy as policies  # its names are imported on first use
from workloads.errors import PartError, PolicyFileError, SchedulerError

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor, NeuralScheduler

__all__ = ["learned_scheduler", "load_policy"]


def load_policy(policy: str | Path, guard: bool = True) -> NeuralScheduler:
    """Load a learned scheduler, ready for ``run_episode``.

    Args:
        policy: name of a shipped policy, such as ``tpch-batch`` (see ``decima.policy.shipped``), or path of a policy
            file that ``decima train`` wrote, or of the folder of the training.
        guard: whether a guard masks decisions that leave executors idle while work waits, see ``NeuralScheduler``.

    Raises:
        PolicyFileError: there is no such policy, or the file cannot be read.
        PartError: a custom part of the policy cannot be loaded.
    """
    if not isinstance(policy, str | Path):
        raise PolicyFileError(f"policy must be a name or a path, got {policy!r:.60}")
    path = policies.policy_path(policy)
    if path.is_dir():
        path = policies.policy_path(f"{path}/")
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise PolicyFileError(f"{path}: {error.strerror}") from None
    return policies.NeuralScheduler(_actor(path, changed_ns), guard=guard)


@lru_cache(maxsize=16)
def _actor(path: Path, changed_ns: int) -> Actor | Policy:
    """Read a policy file once per process and time of change."""
    return policies.load_actor(path)


def learned_scheduler(spec: str, policy: str, has_guard: bool) -> NeuralScheduler:
    """Load the policy of the scheduler ``spec``; errors name the scheduler."""
    try:
        return load_policy(policy, guard=has_guard)
    except (PartError, PolicyFileError) as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None
