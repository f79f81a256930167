"""Base classes of custom heads, which score stages and parallelism limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from decima.policy.config import PolicyConfig

__all__ = ["LimitHead", "StageHead"]


class StageHead(nn.Module, ABC):
    """Base class of heads that score stages: q in the paper.

    Args:
        config: configuration of the policy.
        width: number W of inputs for a stage: its features (with a shortcut or without a graph), and the embeddings
            of stage, job and cluster (with a graph).
    """

    def __init__(self, config: PolicyConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores of stages, float [n].

        Args:
            inputs: float [n, W], inputs for the stages that may be chosen.
        """


class LimitHead(nn.Module, ABC):
    """Base class of heads that score parallelism limits of jobs or of stages: w in the paper.

    Args:
        config: configuration of the policy.
        width: number W of inputs for a job: its features (with a shortcut or without a graph), and the embeddings
            of job and cluster (with a graph); as in ``StageHead`` if limits are per stage.
    """

    def __init__(self, config: PolicyConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width

    @abstractmethod
    def forward(self, inputs: Tensor, rows: Tensor, limits: Tensor) -> Tensor:
        """Return scores of limits, float [m].

        Args:
            inputs: float [n, W], inputs for jobs or stages.
            rows: int64 [m], row of ``inputs`` that each limit belongs to.
            limits: int64 [m], limits, numbers of executors from 0.
        """
