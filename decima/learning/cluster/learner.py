"""What learns: a policy, its optimiser, and what has been found out about rewards."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.evaluation.conditions import Conditions
from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.curriculum import imitation_seeds, imitation_shuffling, plan_iteration, shuffling
from decima.learning.cluster.rollout import EpisodeSpec, Trajectories, roll_out_scheduler
from decima.learning.cluster.sections import ImitationSection
from decima.learning.cluster.simulation import Simulation
from decima.learning.updates import UpdateReport, imitate, ppo, reinforce
from decima.policy.files import PolicyFileError, load_policy
from decima.policy.policy import Policy
from decima.registry import make_scheduler

__all__ = ["Learner"]

#: Samples per pass of REINFORCE, which bounds memory.
CHUNK = 1024
#: Added to the standard deviation that advantages are divided by.
TINY = 1e-9


class Learner:
    """A policy that gets better, iteration by iteration.

    Args:
        config: the settings of the training.
        settings: the cluster, and how sequences are drawn.
        device: where updates are computed.

    Attributes:
        policy: what is learned.
        average: its weights averaged over the last iterations, which is steadier and is what is judged and kept.
        optimiser: Adam; its state goes on from iteration to iteration.
        advantages: with what they know of past rewards.
        cpu_s: CPU time of all updates so far, s.
    """

    def __init__(self, config: TrainingConfig, settings: Conditions, device: str) -> None:
        self.config = config
        self.policy = Policy(config.policy.build(), seed=config.seed).to(device)
        self.average = copy.deepcopy(self.policy)
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=config.update.learning_rate)
        self.advantages = Advantages(config, settings)
        self.cpu_s = 0.0
        self._settings = settings

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

    def imitate(self, imitation: ImitationSection) -> None:
        """Learn the choices of a classic scheduler.

        Raises:
            NotFiniteError: a loss or its gradient is no number.
        """
        begun = time.process_time()
        settings = replace(self._settings, num_jobs=imitation.jobs or self._settings.num_jobs)
        specs = [EpisodeSpec(settings.sequence(seed)) for seed in imitation_seeds(self.config)]
        scheduler = make_scheduler(imitation.scheduler, self.config.seed)
        samples = roll_out_scheduler(scheduler, self.policy, self._settings.cluster, specs)
        optimiser = torch.optim.Adam(self.policy.parameters(), lr=imitation.learning_rate)
        epochs = imitate(
            self.policy,
            optimiser,
            samples,
            imitation_shuffling(self.config),
            entropy_weight=imitation.entropy,
            max_gradient_norm=self.config.update.max_gradient_norm,
            epochs=imitation.epochs if len(samples) else 0,
            minibatch=imitation.minibatch,
        )
        for _ in epochs:
            pass
        self.average.load_state_dict(self.policy.state_dict())
        self.cpu_s += time.process_time() - begun

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
            "jct_s": float(completed.mean()) / 1000 if completed.size else math.nan,
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
            if config.update.algorithm != "ppo":
                del metrics["kl"], metrics["clipped"]
        return metrics

    def _update(
        self, samples: Trajectories, advantage: NDArray[np.float64], iteration: int
    ) -> UpdateReport | None:
        """Follow the advantages; nothing if there was nothing to choose."""
        update, progress = self.config.update, iteration / self.config.iterations
        for group in self.optimiser.param_groups:
            group["lr"] = update.learning_rate_at(progress)
        if not len(samples):
            return None
        if update.algorithm == "reinforce":
            return reinforce(
                self.policy,
                self.optimiser,
                samples,
                advantage,
                entropy_weight=update.entropy_weight_at(progress),
                max_gradient_norm=update.max_gradient_norm,
                chunk=CHUNK,
            )
        return ppo(
            self.policy,
            self.optimiser,
            samples,
            advantage,
            shuffling(self.config, iteration),
            entropy_weight=update.entropy_weight_at(progress),
            max_gradient_norm=update.max_gradient_norm,
            clip=update.clip,
            epochs=update.epochs,
            minibatches=update.minibatches,
            max_kl=update.max_kl,
        )

    @torch.no_grad()
    def _follow(self) -> None:
        """Let the average follow the policy."""
        share = 1 - self.config.update.averaging
        for mean, weight in zip(self.average.parameters(), self.policy.parameters(), strict=True):
            mean.lerp_(weight, share)

    def optimiser_state(self) -> dict[str, Any]:
        """A copy of what the optimiser knows, on the CPU."""
        state = self.optimiser.state_dict()
        return {
            "state": {
                number: {name: value.detach().cpu().clone() for name, value in each.items()}
                for number, each in state["state"].items()
            },
            "param_groups": [dict(group) for group in state["param_groups"]],
        }


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean 0 and standard deviation 1, as far as they vary."""
    return (values - values.mean()) / (values.std() + TINY) if values.size else values
