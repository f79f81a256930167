"""What learns on clusters: a policy, its optimiser, and what has been found out about rewards."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning import learner
from decima.learning.algorithms import PPO, Algorithm, Batch, Reinforce
from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.curriculum import cloning_seeds, cloning_shuffling, plan_iteration, shuffling
from decima.learning.cluster.rollout import Trajectories
from decima.learning.part import wrong_part
from decima.learning.progress import Tell, silent
from decima.learning.updates import UpdateReport, parts_of
from decima.policy.errors import PolicyFileError
from decima.policy.files import load_policy
from decima.policy.parts import build_part, is_own
from decima.policy.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

    from decima.evaluation.conditions import Conditions
    from decima.learning.cluster.config import TrainingConfig
    from decima.learning.cluster.sections import CloningSection, UpdateSection
    from decima.learning.cluster.simulation import Simulation

__all__ = ["Learner"]

#: Added to the standard deviation that advantages are divided by.
TINY = 1e-9


class Learner(learner.Learner):
    """A policy that gets better, iteration by iteration.

    Args:
        config: the settings of the training.
        conditions: the cluster, and how sequences are drawn.
        device: where updates are computed.

    Attributes:
        policy: what is learned, by Adam, whose state goes on from iteration to iteration.
        average: the exponential moving average of its weights, which is steadier and is what is judged and kept.
        advantages: with what they know of past rewards.
    """

    def __init__(self, config: TrainingConfig, conditions: Conditions, device: str) -> None:
        self.config = config
        self.policy = Policy(config.policy.build(), seed=config.seed).to(device)
        self.average = copy.deepcopy(self.policy)
        self.advantages = Advantages(config, conditions)
        self._algorithm = _make_algorithm(config.update)
        self._conditions = conditions
        self._optimiser = torch.optim.Adam(self.policy.parameters(), lr=config.update.learning_rate)
        networks = {"policy": self.policy, "average": self.average}
        super().__init__(networks, {"policy": self._optimiser}, self.average)

    def state(self) -> dict[str, Any]:
        """See ``Learner``."""
        own = self._algorithm.state()
        state = {**super().state(), "advantages": self.advantages.state()}
        return {**state, "algorithm": own} if own else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """See ``Learner``."""
        super().restore(state)
        self.advantages.restore(state["advantages"])
        if "algorithm" in state:
            self._algorithm.restore(state["algorithm"])

    def begin_with(self, path: Path) -> None:
        """Take the weights of a policy file.

        Raises:
            PolicyFileError: the file holds no policy, or one of other features or sizes.
        """
        policy = load_policy(path)
        here, there = (each.config.model_dump() for each in (self.policy, policy))
        if other := [name for name in here if here[name] != there[name]]:
            raise PolicyFileError(f"{path}: a policy of other settings: {', '.join(other)}")
        for each in (self.policy, self.average):
            each.load_state_dict(policy.state_dict())

    def clone(
        self, simulation: Simulation, cloning: CloningSection, epochs_done: int = 0, tell: Tell = silent
    ) -> Iterator[dict[str, float]]:
        """Learn the choices of a heuristic. The learning rate falls linearly to a tenth.

        Returns:
            Measured values of each epoch that is left, see ``clone_epochs``.

        Raises:
            NotFiniteError: a loss or its gradient is not finite.
            WorkerError: a worker process died.
        """
        samples = simulation.watch(
            cloning.scheduler, cloning_seeds(self.config), cloning.jobs, self.config.episodes.share, tell
        )
        random = cloning_shuffling(self.config)
        for metrics in self.clone_epochs(
            partial(samples.evaluate, self.policy),
            (
                parts_of(random.permutation(len(samples)), cloning.minibatch) if len(samples) else []
                for _ in itertools.count()
            ),
            [
                cloning.learning_rate * (1 - 0.9 * epoch / max(1, cloning.epochs - 1))
                for epoch in range(cloning.epochs)
            ],
            epochs_done,
            tell,
            entropy_weight=cloning.entropy,
            max_gradient_norm=self.config.update.max_gradient_norm,
        ):
            self.average.load_state_dict(self.policy.state_dict())
            yield metrics

    def learn(self, simulation: Simulation, iteration: int) -> dict[str, float]:
        """Run an iteration's episodes and follow their advantages.

        Returns:
            What was measured, by the names of ``metrics.METRICS``.

        Raises:
            NotFiniteError: a probability, a loss or its gradient is no number.
            WorkerError: a worker process died.
        """
        config, progress = self.config, iteration / self.config.iterations
        groups = plan_iteration(config, iteration)
        before = simulation.cpu_s
        samples = simulation.roll_out(self.policy, [plan for group in groups for plan in group])
        rollout_s = simulation.cpu_s - before
        begun = time.process_time()
        advantage = self.advantages(self.policy, samples, groups)
        spread = float(advantage.std()) if len(samples) else math.nan
        parts = [advantage]
        if config.update.normalise == "sequence":
            ends = np.cumsum([len(group) for group in groups])[:-1]
            parts = np.split(advantage, samples.first[ends])
        if config.update.normalise != "none":
            advantage = np.concatenate([_standardised(part) for part in parts])
        report = self._update(samples, advantage, iteration)
        self._follow()
        update_s = time.process_time() - begun
        self.cpu_s += update_s
        completed = samples.mean_jct_ms[samples.num_completed > 0]
        num_decisions = int(samples.num_decisions.sum())
        metrics = {
            "mean_jct_s": float(completed.mean()) / 1000 if completed.size else math.nan,
            "return": float(samples.reward.sum()) / samples.num_episodes,
            "advantage_std": spread,
            "learning_rate": config.update.learning_rate_at(progress),
            "entropy_weight": config.update.entropy_weight_at(progress),
            "samples": len(samples),
            "decisions": num_decisions,
            "completed_jobs": int(samples.num_completed.sum()),
            "rollout_cpu_s": rollout_s,
            "update_cpu_s": update_s,
            "rollout_ms_per_decision": 1000 * rollout_s / max(1, num_decisions),
        }
        if config.curriculum is not None:
            metrics["mean_end_s"] = config.curriculum.mean_end_s(progress)
        if report is not None:
            metrics |= vars(report)
            if config.update.algorithm == "reinforce":
                del metrics["kl"], metrics["clipped"]
        return metrics

    def _update(
        self, samples: Trajectories, advantage: NDArray[np.float64], iteration: int
    ) -> UpdateReport | None:
        """Follow the advantages; nothing if there was nothing to choose."""
        update, progress = self.config.update, iteration / self.config.iterations
        self._optimiser.param_groups[0]["lr"] = update.learning_rate_at(progress)
        if not len(samples):
            return None
        batch = Batch(
            partial(samples.evaluate, self.policy),
            advantage,
            samples.log_probability,
            shuffling(self.config, iteration),
            update.entropy_weight_at(progress),
            update.max_gradient_norm,
        )
        report = self._algorithm.update(self.policy, self._optimiser, batch)
        if not isinstance(report, UpdateReport):
            raise wrong_part(
                "update.algorithm", self._algorithm, f"an UpdateReport, gave {type(report).__name__}"
            )
        return report

    @torch.no_grad()
    def _follow(self) -> None:
        """Let the moving average follow the policy."""
        share = 1 - self.config.update.ema_decay
        for mean, weight in zip(self.average.parameters(), self.policy.parameters(), strict=True):
            mean.lerp_(weight, share)


def _make_algorithm(update: UpdateSection) -> Algorithm:
    if is_own(update.algorithm):
        own: Algorithm = build_part(update.algorithm, Algorithm, **(update.options or {}))
        return own
    if update.algorithm == "reinforce":
        return Reinforce()
    return PPO(update.clip, update.epochs, update.minibatches, update.max_kl)


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean 0 and standard deviation 1, as far as they vary."""
    return (values - values.mean()) / (values.std() + TINY) if values.size else values
