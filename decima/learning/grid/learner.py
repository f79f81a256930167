"""What learns on grids: REINFORCE as DeepRM has it, and advantage actor-critic as A2cScheduler has it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.cluster.rollout import NotFiniteError
from decima.learning.grid.config import DeepRMConfig, ImitationSection
from decima.learning.grid.rollout import (
    IMITATES,
    Actor,
    Episodes,
    Steps,
    Watched,
    action_baseline,
    log_probabilities,
    multi_step_returns,
    returns_to_go,
    roll_out,
    time_baseline,
)
from decima.policy.files import PolicyFileError
from decima.policy.grid.files import load_network
from decima.schedulers.grid import ShortestJobFirst, make_heuristic
from simulator.grid import Grid, GridRecord
from workloads import JobSets, RandomStream, random_stream

__all__ = ["TRAINING_SEED", "VALIDATION_SEED", "Learner"]

#: Added to a run's seed for its jobs; ``decima deeprm compare`` uses smaller numbers.
TRAINING_SEED, VALIDATION_SEED, IMITATION_SEED = 1_000_000, 2_000_000, 3_000_000
#: Between the seeds of the fresh sets of two iterations.
FRESH = 10_000_000


class Learner:
    """An actor, and perhaps a critic, that get better iteration by iteration.

    Args:
        config: the settings.

    Attributes:
        jobs: the training sets.
        networks: ``actor``, and for actor-critic ``critic``.
        optimisers: one for each.
        cpu_s: CPU time so far, s.

    Raises:
        WorkloadError: the jobs cannot be drawn, or do not fit the grid.
    """

    def __init__(self, config: DeepRMConfig) -> None:
        self.config = config
        self.grid_config = config.grid.build()
        self.cpu_s = 0.0
        self.jobs = self._draw(TRAINING_SEED + config.seed)
        torch.manual_seed(config.seed)
        self.networks = nn.ModuleDict(
            {"actor": config.network.build(self.grid_config, self.grid_config.num_actions)}
        )
        self._value_scale = 1.0
        if config.update.algorithm == "a2c":
            self.networks["critic"] = config.network.build(self.grid_config, 1)
            self._value_scale = self._usual_return()
        rates = {"actor": config.update.learning_rate, "critic": config.update.critic_learning_rate}
        self.optimisers = {
            name: _optimiser(config.update.optimiser, network, rates[name])
            for name, network in self.networks.items()
        }
        Grid(self.grid_config, self.jobs)  # refuses jobs that do not fit

    def learn(self, iteration: int) -> dict[str, float]:
        """Run an iteration's episodes and follow their advantages.

        Returns:
            What was measured, by the names of ``metrics.METRICS``.

        Raises:
            NotFiniteError: a probability or gradient is no number.
        """
        begun = time.process_time()
        episodes, update = self.config.episodes, self.config.update
        rate = self._set_rate(iteration)
        jobs = (
            self._draw(TRAINING_SEED + self.config.seed + FRESH * (iteration + 1))
            if episodes.fresh
            else self.jobs
        )
        random = random_stream(self.config.seed, RandomStream.POLICY, iteration)
        actor = Actor(self.networks["actor"], random, mask=episodes.mask)
        tally = _Tally()
        for first in range(0, len(jobs), episodes.at_once):
            sets = jobs[first : first + episodes.at_once]
            grid = Grid(self.grid_config, sets[np.repeat(np.arange(len(sets)), episodes.per_set)])
            self._learn_from(grid, actor, random, tally)
            last = first + episodes.at_once >= len(jobs)
            if tally.pending and (last or update.step == "group"):
                tally.end_step(self._step("actor", tally.pending))
        cpu_s = time.process_time() - begun
        self.cpu_s += cpu_s
        return {**tally.metrics(), "learning_rate": rate, "iteration_cpu_s": cpu_s}

    def begin_with(self, path: Path) -> None:
        """Take the actor's weights from a policy file.

        Raises:
            PolicyFileError: the file holds no network, or one of other sizes.
        """
        network, config = load_network(path)
        here, there = _sizes(self.config), _sizes(config)
        if here != there:
            raise PolicyFileError(f"{path}: a network for {there}; expected {here}")
        self.networks["actor"].load_state_dict(network.state_dict())

    def imitate(self, imitation: ImitationSection) -> None:
        """Learn the choices of a heuristic.

        Raises:
            NotFiniteError: a gradient is no number.
        """
        begun = time.process_time()
        samples = self._choices_of(imitation)
        optimiser = torch.optim.Adam(self.networks["actor"].parameters(), lr=imitation.learning_rate)
        random = random_stream(self.config.seed, RandomStream.POLICY, IMITATES)
        for _ in range(imitation.epochs):
            order = torch.from_numpy(random.permutation(len(samples.action)))
            for part in torch.split(order, imitation.minibatch):
                scores = self._log_probabilities(samples, part)
                loss = nn.functional.nll_loss(scores, samples.action[part])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                _gradient_norm(self.networks["actor"])
                optimiser.step()
        optimiser.zero_grad()  # it is not the gradient of what comes next
        self.cpu_s += time.process_time() - begun

    def _learn_from(self, grid: Grid, actor: Actor, random: np.random.Generator, tally: _Tally) -> None:
        """Add up the gradient of a few sets' episodes; a critic follows its own.

        Without a critic an advantage is what follows (DeepRM, section 3.3); with one, how much better the next few
        actions do than the critic expects. Of either the baseline is subtracted.
        """
        update, per_set = self.config.update, self.config.episodes.per_set
        run = roll_out(grid, actor, keep_states=update.algorithm == "a2c")
        if update.algorithm == "a2c":
            values = self._values(run)
            returns = multi_step_returns(run.rewards, run.clock, values, update.td_steps, update.discount)
            advantages = returns - values[:-1]
        else:
            returns = advantages = returns_to_go(run.rewards, run.clock, update.discount)
        if update.baseline == "time":
            advantages = advantages - time_baseline(advantages, run.clock, per_set)
        elif update.baseline == "action":
            advantages = advantages - action_baseline(advantages, per_set)
        self._add_gradients(run.steps, advantages, tally)
        if update.algorithm == "a2c":
            self._teach_critic(run, returns, random, tally)
        tally.add_episodes(run.rewards, run.record, per_set)

    # The critic, as A2cScheduler has it.

    def _values(self, run: Episodes) -> NDArray[np.float64]:
        """What the critic expects after each state, float64 [S + 1, N]; 0 after the end."""
        values = np.zeros(run.clock.shape)
        with torch.no_grad():
            for row, state in zip(values, run.states, strict=False):
                row[state.episode] = self.networks["critic"](state.pictures)[:, 0].double().numpy()
        return values * self._value_scale

    def _teach_critic(
        self, run: Episodes, returns: NDArray[np.float64], random: np.random.Generator, tally: _Tally
    ) -> None:
        """It learns from all states, not only from those with a choice: it is asked about any."""
        pictures = torch.cat([state.pictures for state in run.states])
        targets = np.concatenate([row[state.episode] for row, state in zip(returns, run.states, strict=True)])
        wanted = torch.from_numpy(targets / self._value_scale).float()
        for _ in range(self.config.update.critic_epochs):
            order = torch.from_numpy(random.permutation(len(wanted)))
            for part in torch.split(order, self.config.update.critic_minibatch):
                values = self.networks["critic"](pictures[part])[:, 0]
                loss = (wanted[part] - values).square().sum()
                loss.backward()
                tally.add_values(len(part), float(loss.detach()))
                self._step("critic", len(part))

    def _usual_return(self) -> float:
        """The size of returns under shortest job first, which the critic's output is a multiple of."""
        grid = Grid(self.grid_config, self.jobs)
        run = roll_out(grid, Watched(ShortestJobFirst()))
        returns = returns_to_go(run.rewards, run.clock, self.config.update.discount)
        return max(float(np.abs(returns).mean()), 1.0)

    # Gradients.

    def _add_gradients(self, steps: list[Steps], advantages: NDArray[np.float64], tally: _Tally) -> None:
        """Of the policy's part of the loss, from all choices; the advantages are those of all episodes, [S, N]."""
        asked = [row[step.episode] for step, row in zip(steps, advantages, strict=True)]
        if self.config.update.normalise and any(row.size for row in asked):
            spread = max(float(np.concatenate(asked).std()), 1e-9)
            asked = [row / spread for row in asked]
        for step, advantage in zip(steps, asked, strict=True):
            self._add_gradient(step, advantage, tally)

    def _add_gradient(self, step: Steps, advantage: NDArray[np.float64], tally: _Tally) -> None:
        """Of the policy's part of the loss, summed over samples."""
        if not step.episode.size:
            return
        scores = log_probabilities(self.networks["actor"], step.pictures, step.allowed)
        chosen = scores.gather(1, step.action[:, None])[:, 0]
        entropy = -(scores.exp() * scores).sum()
        loss = -(chosen * torch.from_numpy(advantage).float()).sum() - self.config.update.entropy * entropy
        loss.backward()  # type: ignore[no-untyped-call]
        tally.add_samples(step.episode.size, float(entropy.detach()), advantage)

    def _step(self, name: str, count: int) -> float:
        """Follow the mean gradient of so many samples; the gradient's norm."""
        network, optimiser = self.networks[name], self.optimisers[name]
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.grad /= count
        norm = _gradient_norm(network)
        optimiser.step()
        optimiser.zero_grad()
        return norm

    def _set_rate(self, iteration: int) -> float:
        """The optimisers' learning rates for an iteration; that of the actor."""
        update = self.config.update
        decay: float = (update.final_learning_rate / update.learning_rate) ** (
            iteration / self.config.iterations
        )
        rates = {"actor": update.learning_rate * decay, "critic": update.critic_learning_rate * decay}
        for name, optimiser in self.optimisers.items():
            for group in optimiser.param_groups:
                group["lr"] = rates[name]
        return rates["actor"]

    def _draw(self, seed: int) -> JobSets:
        return self.config.jobs.draw(self.grid_config, self.config.episodes.sets, seed)

    def _choices_of(self, imitation: ImitationSection) -> Steps:
        """What a heuristic chose wherever there was a choice."""
        seed = IMITATION_SEED + self.config.seed
        grid = Grid(self.grid_config, self.config.jobs.draw(self.grid_config, imitation.sets, seed))
        watched = Watched(make_heuristic(imitation.heuristic), self.config.episodes.mask)
        seen = roll_out(grid, watched).steps
        masks = [step.allowed for step in seen if step.allowed is not None]
        return Steps(
            np.concatenate([step.episode for step in seen]),
            torch.cat([step.pictures for step in seen]),
            torch.cat(masks) if masks else None,
            torch.cat([step.action for step in seen]),
        )

    def _log_probabilities(self, samples: Steps, part: Tensor) -> Tensor:
        allowed = None if samples.allowed is None else samples.allowed[part]
        return log_probabilities(self.networks["actor"], samples.pictures[part], allowed)


def _sizes(config: DeepRMConfig) -> str:
    """All that a network's sizes follow from, for people."""
    grid = config.grid.build()
    rows, columns = grid.picture_shape
    layers = ", ".join(f"{name} {value}" for name, value in config.network.model_dump().items())
    return f"pictures of {rows} x {columns} and {grid.num_actions} actions ({layers})"


def _optimiser(kind: str, network: nn.Module, rate: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(network.parameters(), lr=rate)
    # DeepRM adds 1e-9 inside the root, PyTorch adds its epsilon outside.
    return torch.optim.RMSprop(network.parameters(), lr=rate, alpha=0.9, eps=1e-9**0.5)


def _gradient_norm(network: nn.Module) -> float:
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    norm = float(
        torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
    )
    if not np.isfinite(norm):
        raise NotFiniteError("the gradient is not finite")
    return norm


class _Tally:
    """What an iteration measures as it goes."""

    def __init__(self) -> None:
        self.pending = 0  # samples since the last gradient step
        self._samples = self._steps = self._states = 0
        self._critic_loss = 0.0
        self._entropy = self._squares = self._norms = 0.0
        self._returns: list[NDArray[np.float64]] = []
        self._records: list[GridRecord] = []

    def add_samples(self, count: int, entropy: float, advantage: NDArray[np.float64]) -> None:
        self.pending += count
        self._samples += count
        self._entropy += entropy
        self._squares += float(np.square(advantage).sum())

    def add_values(self, count: int, loss: float) -> None:
        self._states += count
        self._critic_loss += loss

    def add_episodes(self, rewards: NDArray[np.float64], record: GridRecord, per_set: int) -> None:
        self._returns.append(rewards.sum(axis=0).reshape(-1, per_set))
        self._records.append(record)

    def end_step(self, norm: float) -> None:
        self.pending = 0
        self._steps += 1
        self._norms += norm

    def metrics(self) -> dict[str, float]:
        samples = max(self._samples, 1)
        returns = np.concatenate(self._returns)
        metrics = {
            "return": float(returns.mean()),
            "return_best": float(returns.max(axis=1).mean()),
            "slowdown": _mean(record.slowdown() for record in self._records),
            "completion": _mean(record.completion for record in self._records),
            "unfinished": float(sum(record.unfinished.sum() for record in self._records)),
            "samples": float(self._samples),
            "steps": float(self._steps),
            "entropy": self._entropy / samples,
            "advantage_std": (self._squares / samples) ** 0.5,
            "gradient_norm": self._norms / max(self._steps, 1),
        }
        if self._states:
            metrics["critic_loss"] = self._critic_loss / self._states
        # Where no job was booked, some are no numbers.
        return {name: value for name, value in metrics.items() if np.isfinite(value)}


def _mean(values: Iterator[NDArray[np.float64]]) -> float:
    """Over all jobs that were booked."""
    flat = np.concatenate([array[np.isfinite(array)] for array in values])
    return float(flat.mean()) if flat.size else float("nan")
