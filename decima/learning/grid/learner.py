"""What learns on grids: REINFORCE as DeepRM has it, and advantage actor-critic as A2cScheduler has it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.evaluation.grid import TRAINING_SEED
from decima.learning import learner
from decima.learning.baselines import ActionBaseline, NoBaseline, SequenceBaseline
from decima.learning.grid.rollout import Episodes, Watched, roll_out
from decima.learning.grid.simulation import Simulation
from decima.learning.progress import Tell, silent
from decima.learning.returns import n_step_returns, returns_to_go
from decima.learning.updates import add_policy_gradient, fit_values, take_step
from decima.policy.errors import PolicyFileError
from decima.policy.grid.files import load_network
from decima.policy.grid.scheduler import CLONING, Steps, log_probabilities
from decima.schedulers.grid import ShortestJobFirst, make_heuristic
from simulator.grid.grid import Grid
from workloads.arrivals import RandomStream, random_stream

if TYPE_CHECKING:
    from pathlib import Path

    from decima.learning.grid.config import CloningSection, DeepRMConfig
    from simulator.grid.record import GridRecord
    from workloads.grid_jobs import JobSets

__all__ = ["VALIDATION_SEED", "Learner"]

#: Added to a run's seed for its jobs, as ``TRAINING_SEED`` is.
VALIDATION_SEED, CLONING_SEED = 2_000_000, 3_000_000
#: Between the seeds of the fresh sets of two iterations.
FRESH = 10_000_000

BASELINES: dict[str, SequenceBaseline | ActionBaseline | NoBaseline] = {
    "time": SequenceBaseline(),
    "action": ActionBaseline(),
    "none": NoBaseline(),
}


class Learner(learner.Learner):
    """An actor, and perhaps a critic, that get better iteration by iteration.

    Args:
        config: the settings.
        device: where updates are computed.

    Attributes:
        jobs: the training sets.

    Raises:
        WorkloadError: the jobs cannot be drawn, or do not fit the grid.
    """

    def __init__(self, config: DeepRMConfig, device: str = "cpu") -> None:
        self.config = config
        self._device = device
        self.grid_config = config.grid.build()
        self.jobs = self._draw(TRAINING_SEED + config.seed)
        torch.manual_seed(config.seed)
        networks = {"actor": config.policy.build()}
        self._value_scale = 1.0
        if config.update.algorithm == "a2c":
            networks["critic"] = config.network.build(self.grid_config, 1)
            self._value_scale = self._usual_return()
        for network in networks.values():
            network.to(device)
        optimisers = {
            name: _optimiser(config.update.optimiser, network, self._rates(0)[name])
            for name, network in networks.items()
        }
        super().__init__(networks, optimisers, networks["actor"])
        Grid(self.grid_config, self.jobs)  # refuses jobs that do not fit

    def learn(self, iteration: int, simulation: Simulation | None = None) -> dict[str, float]:
        """Run an iteration's episodes and follow their advantages.

        Args:
            iteration: from 0.
            simulation: runs the episodes; this process does if it is omitted.

        Returns:
            What was measured, by the names of ``metrics.METRICS``.

        Raises:
            NotFiniteError: a probability or gradient is no number.
            WorkerError: workers died.
        """
        simulation = simulation or Simulation(self.config)
        begun, elsewhere_s = time.process_time(), simulation.cpu_s - simulation.own_s
        episodes, rates = self.config.episodes, self._rates(iteration)
        for name, optimiser in self.optimisers.items():
            optimiser.param_groups[0]["lr"] = rates[name]
        jobs = (
            self._draw(TRAINING_SEED + self.config.seed + FRESH * (iteration + 1))
            if episodes.fresh
            else self.jobs
        )
        random = random_stream(self.config.seed, RandomStream.POLICY, iteration)
        tally = _Tally()
        for first in range(0, len(jobs), episodes.at_once):
            sets = jobs[first : first + episodes.at_once]
            run = simulation.roll_out(self.networks["actor"], sets, iteration, first, random)
            self._learn_from(run, random, tally)
            last = first + episodes.at_once >= len(jobs)
            if tally.pending and (last or self.config.update.step == "group"):
                tally.end_step(
                    take_step(self.networks["actor"], self.optimisers["actor"], count=tally.pending)
                )
        # What others did counts too, and what this process did for it is in both.
        cpu_s = time.process_time() - begun + simulation.cpu_s - simulation.own_s - elsewhere_s
        self.cpu_s += cpu_s
        return {**tally.metrics(), "learning_rate": rates["actor"], "iteration_cpu_s": cpu_s}

    def begin_with(self, path: Path) -> None:
        """Take the actor's weights from a policy file.

        Raises:
            PolicyFileError: the file holds no network, or one of other sizes.
        """
        network, config = load_network(path)
        here, there = self.config.policy.sizes, config.sizes
        if here != there:
            raise PolicyFileError(f"{path}: a network for {there}; expected {here}")
        self.networks["actor"].load_state_dict(network.state_dict())

    def clone(
        self, cloning: CloningSection, epochs_done: int = 0, tell: Tell = silent
    ) -> Iterator[dict[str, float]]:
        """Learn the choices of a heuristic.

        Returns:
            Measured values of each epoch that is left, see ``clone_epochs``.

        Raises:
            NotFiniteError: a gradient is not finite.
        """
        begun = time.process_time()
        actor, samples = self.networks["actor"], self._choices_of(cloning, tell)
        self.cpu_s += time.process_time() - begun
        random = random_stream(self.config.seed, RandomStream.POLICY, CLONING)
        count = len(samples.action)

        def evaluate(part: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            allowed = None if samples.allowed is None else samples.allowed[part]
            return _evaluate(actor, samples.pictures[part], allowed, samples.action[part])

        yield from self.clone_epochs(
            evaluate,
            (_parts(random, count, cloning.minibatch) if count else [] for _ in itertools.count()),
            [cloning.learning_rate] * cloning.epochs,
            epochs_done,
            tell,
        )

    def _learn_from(self, run: Episodes, random: np.random.Generator, tally: _Tally) -> None:
        """Add up the gradient of a few sets' episodes; a critic follows its own.

        Without a critic an advantage is what follows (DeepRM, section 3.3); with one, how much better the next few
        actions do than the critic expects. Of either the baseline is subtracted.
        """
        update, per_set = self.config.update, self.config.episodes.per_set
        if update.algorithm == "a2c":
            values = self._values(run)
            returns = n_step_returns(run.rewards, run.clock, values, update.td_steps, update.discount)
            advantages = returns - values[:-1]
        else:
            returns = advantages = returns_to_go(run.rewards, run.clock, update.discount)
        advantages = advantages - BASELINES[update.baseline].lockstep(advantages, run.clock, per_set)
        self._add_gradients(run.steps, advantages, tally)
        if update.algorithm == "a2c":
            self._teach_critic(run, returns, random, tally)
        tally.add_episodes(run.rewards, run.record, per_set)

    def _add_gradients(self, steps: list[Steps], advantages: NDArray[np.float64], tally: _Tally) -> None:
        """Of the policy's part of the loss, from all choices; the advantages are those of all episodes, [S, N]."""
        asked = [row[step.episode] for step, row in zip(steps, advantages, strict=True)]
        if self.config.update.normalise and any(row.size for row in asked):
            spread = max(float(np.concatenate(asked).std()), 1e-9)
            asked = [row / spread for row in asked]
        for step, advantage in zip(steps, asked, strict=True):
            if advantage.size:
                seen = _evaluate(self.networks["actor"], step.pictures, step.allowed, step.action)
                _, entropy = add_policy_gradient(*seen, advantage, self.config.update.entropy)
                tally.add_samples(entropy, advantage)

    # The critic, as A2cScheduler has it.

    def _values(self, run: Episodes) -> NDArray[np.float64]:
        """What the critic expects after each state, float64 [S + 1, N]; 0 after the end."""
        values, critic = np.zeros(run.clock.shape), self.networks["critic"]
        with torch.no_grad():
            for row, state in zip(values, run.states, strict=False):
                row[state.episode] = critic(state.pictures.to(self._device))[:, 0].double().cpu().numpy()
        return values * self._value_scale

    def _teach_critic(
        self, run: Episodes, returns: NDArray[np.float64], random: np.random.Generator, tally: _Tally
    ) -> None:
        """It learns from all states, not only from those with a choice: it is asked about any."""
        update = self.config.update
        pictures = torch.cat([state.pictures for state in run.states])
        targets = np.concatenate([row[state.episode] for row, state in zip(returns, run.states, strict=True)])
        for _ in range(update.critic_epochs):
            loss = fit_values(
                pictures,
                torch.from_numpy(targets / self._value_scale).float(),
                self.networks["critic"],
                self.optimisers["critic"],
                _parts(random, len(targets), update.critic_minibatch),
            )
            tally.add_values(len(targets), loss)

    def _usual_return(self) -> float:
        """The size of returns under shortest job first, which the critic's output is a multiple of."""
        grid = Grid(self.grid_config, self.jobs)
        run = roll_out(grid, Watched(ShortestJobFirst()))
        returns = returns_to_go(run.rewards, run.clock, self.config.update.discount)
        return max(float(np.abs(returns).mean()), 1.0)

    def _rates(self, iteration: int) -> dict[str, float]:
        """The optimisers' learning rates for an iteration."""
        update = self.config.update
        decay: float = (update.final_learning_rate / update.learning_rate) ** (
            iteration / self.config.iterations
        )
        return {"actor": update.learning_rate * decay, "critic": update.critic_learning_rate * decay}

    def _draw(self, seed: int) -> JobSets:
        return self.config.jobs.draw(self.grid_config, self.config.episodes.sets, seed)

    def _choices_of(self, cloning: CloningSection, tell: Tell = silent) -> Steps:
        """What a heuristic chose wherever there was a choice."""
        seed = CLONING_SEED + self.config.seed
        grid = Grid(self.grid_config, self.config.jobs.draw(self.grid_config, cloning.sets, seed))
        watched = Watched(make_heuristic(cloning.heuristic), self.config.episodes.mask)
        phase = partial(tell, f"sets of jobs, booked by {cloning.heuristic} to clone")
        seen = roll_out(grid, watched, on_step=phase).steps
        masks = [step.allowed for step in seen if step.allowed is not None]
        return Steps(
            np.concatenate([step.episode for step in seen]),
            torch.cat([step.pictures for step in seen]),
            torch.cat(masks) if masks else None,
            torch.cat([step.action for step in seen]),
        )


def _evaluate(
    actor: nn.Module, pictures: Tensor, allowed: Tensor | None, action: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of actions, float [n]."""
    device = next(actor.parameters()).device
    scores = log_probabilities(actor, pictures.to(device), None if allowed is None else allowed.to(device))
    return scores.gather(1, action.to(device)[:, None])[:, 0], -(scores.exp() * scores).sum(dim=1)


def _parts(random: np.random.Generator, count: int, size: int) -> list[NDArray[np.int64]]:
    """Shuffled numbers in parts of that size; the last may be smaller."""
    return np.split(random.permutation(count), range(size, count, size))


def _optimiser(kind: str, network: nn.Module, rate: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(network.parameters(), lr=rate)
    # DeepRM adds 1e-9 inside the root, PyTorch adds its epsilon outside.
    return torch.optim.RMSprop(network.parameters(), lr=rate, alpha=0.9, eps=1e-9**0.5)


class _Tally:
    """What an iteration measures as it goes."""

    def __init__(self) -> None:
        self.pending = 0  # samples since the last gradient step
        self._samples = self._steps = self._states = 0
        self._critic_loss = 0.0
        self._entropy = self._squares = self._norms = 0.0
        self._returns: list[NDArray[np.float64]] = []
        self._records: list[GridRecord] = []

    def add_samples(self, entropy: float, advantage: NDArray[np.float64]) -> None:
        self.pending += advantage.size
        self._samples += advantage.size
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
