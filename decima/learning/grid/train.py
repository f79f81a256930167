"""Training on DeepRM's grid: REINFORCE as in DeepRM, and advantage actor-critic (A2C) as in A2cScheduler.

The loop around an iteration, with validation and checkpoints, is ``decima.learning.loop``.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.evaluation.grid import TRAINING_SEED, evaluate, heuristics_for, make_grid_scheduler
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.evaluation.metrics import compare_metrics
from decima.learning import metrics
from decima.learning.cluster.clone import clone_epochs
from decima.learning.cluster.reinforce import policy_gradient
from decima.learning.display import training_progress
from decima.learning.grid.config import RECIPES, DeepRMConfig
from decima.learning.grid.rollout import (
    BASELINES,
    GridEpisodes,
    n_step_returns,
    returns_to_go,
    roll_out,
    values_at,
)
from decima.learning.loop import TrainingLoop, take_step
from decima.learning.metrics import IterationReport, TrainingResult, Validation
from decima.policy.grid import (
    CLONING,
    VALIDATED,
    GridActor,
    GridView,
    build_actor,
    build_network,
    load_network,
    log_probabilities,
    save_network,
)
from decima.policy.grid_config import read_about
from decima.schedulers.grid import GridScheduler, ShortestJobFirst
from decima.settings import Progress, TrainingError, read_settings
from simulator.grid.grid import Grid
from workloads.arrivals import RandomStream, random_stream
from workloads.errors import PolicyFileError
from workloads.grid_jobs import JobSets

__all__ = ["VALIDATION_SEED", "GridTraining", "train_on_grid"]

#: Offsets of the seeds of validation sets and of sets for behaviour cloning, like ``TRAINING_SEED``.
VALIDATION_SEED, CLONING_SEED = 2_000_000, 3_000_000
#: Distance between the seeds of fresh sets of consecutive iterations.
FRESH = 10_000_000


class GridTraining(TrainingLoop[DeepRMConfig]):
    """Training run on DeepRM's grid, see ``TrainingLoop``.

    Results are means on the validation sets by measure, see ``decima.evaluation.metrics.GRID_METRICS``.

    Raises:
        WorkloadError: the jobs cannot be drawn, or do not fit the grid.
        ConfigError: the grid is not possible.
        TrainingError: there are no jobs, or see ``TrainingLoop``.
    """

    METRICS: Mapping[str, str] = metrics.GRID_METRICS
    NAME: str = "deeprm"

    def _build(self) -> None:
        config, update = self.config, self.config.update
        self._grid = config.grid
        self._jobs = self._draw(config.episodes.sets, TRAINING_SEED)
        torch.manual_seed(config.seed)
        networks: dict[str, nn.Module] = {"actor": build_actor(config.policy)}
        self._value_scale = 1.0
        if update.algorithm == "a2c":
            networks["critic"] = build_network(self._grid, 1, config.network)
            self._value_scale = self._usual_return()
        self.networks = nn.ModuleDict(networks).to(self._device)
        rates = self._rates(0)
        self.optimisers = {
            name: _optimiser(update.optimiser, network, rates[name])
            for name, network in self.networks.items()
        }
        self._actor = self.kept = self.networks["actor"]
        Grid(self._grid, self._jobs)  # refuses jobs that do not fit
        self._validation_sets = self._draw(config.validation.sets, VALIDATION_SEED)
        for name, jobs in (("training", self._jobs), ("validation", self._validation_sets)):
            if not jobs.num_jobs.any():
                raise TrainingError(f"the {name} sets have no jobs: more sets, steps or load are needed")

    def _draw(self, sets: int, seed: int) -> JobSets:
        return self.config.jobs.draw(self._grid, sets, seed + self.config.seed)

    def _rates(self, iteration: int) -> dict[str, float]:
        """Return the learning rates of an iteration by optimiser."""
        update, progress = self.config.update, iteration / self.config.iterations
        decay: float = (update.final_learning_rate / update.learning_rate) ** progress
        return {"actor": update.learning_rate * decay, "critic": update.critic_learning_rate * decay}

    # An iteration.

    def learn(self, iteration: int) -> dict[str, float]:
        """Run the episodes of an iteration, pass by pass, and update the networks; see ``TrainingLoop.learn``."""
        episodes, rates, begun_s = self.config.episodes, self._rates(iteration), self.cpu_s
        for name, optimiser in self.optimisers.items():
            optimiser.param_groups[0]["lr"] = rates[name]
        jobs = self._jobs
        if episodes.fresh:
            jobs = self._draw(episodes.sets, TRAINING_SEED + FRESH * (iteration + 1))
        random = random_stream(self.config.seed, RandomStream.POLICY, iteration)
        sums, pending = defaultdict[str, float](float), 0  # pending: samples since the last gradient step
        returns, records = [], []
        for first in range(0, len(jobs), episodes.at_once):
            run = self._roll_out(jobs[first : first + episodes.at_once], random)
            returns.append(run.rewards.sum(axis=0))
            records.append(run.record)
            pending += self._learn_from(run, random, sums)
            last = first + episodes.at_once >= len(jobs)
            if pending and (last or self.config.update.step == "group"):
                sums["norms"] += take_step(self._actor, self.optimisers["actor"], count=pending)
                sums["steps"] += 1
                pending = 0
        by_set, samples = np.concatenate(returns).reshape(-1, episodes.per_set), max(sums["samples"], 1)
        metrics = {
            "return": float(by_set.mean()),
            "return_best": float(by_set.max(axis=1).mean()),
            "slowdown": _mean(record.slowdown() for record in records),
            "completion": _mean(record.completion for record in records),
            "unfinished": float(sum(record.unfinished.sum() for record in records)),
            "samples": sums["samples"],
            "steps": sums["steps"],
            "entropy": sums["entropy"] / samples,
            "advantage_std": (sums["squares"] / samples) ** 0.5,
            "gradient_norm": sums["norms"] / max(sums["steps"], 1),
            "critic_loss": sums["critic_loss"] / sums["states"] if sums["states"] else math.nan,
            "learning_rate": rates["actor"],
            "iteration_cpu_s": self.cpu_s - begun_s,
        }
        # Without booked jobs, or without a critic, some metrics are not finite.
        return {name: value for name, value in metrics.items() if math.isfinite(value)}

    def _roll_out(self, sets: JobSets, random: np.random.Generator) -> GridEpisodes:
        """Run the episodes of some job sets in lock-step."""
        grid = Grid(self._grid, sets[np.repeat(np.arange(len(sets)), self.config.episodes.per_set)])
        actor = self._scheduler(random)
        return roll_out(grid, actor.decide, actor.mask, keep_states="critic" in self.networks)

    def _scheduler(self, random: np.random.Generator) -> GridActor:
        """Return the policy as a scheduler; episodes run on the CPU."""
        return GridActor(copy.deepcopy(self._actor).cpu(), random, mask=self.config.episodes.mask)

    def _learn_from(self, run: GridEpisodes, random: np.random.Generator, sums: dict[str, float]) -> int:
        """Accumulate the policy gradient of the episodes of a pass, and fit the critic; return the number of samples.

        The advantage is the return (DeepRM, section 3.3), or with a critic the n-step return minus the value; in both
        cases minus the baseline. Metrics are added to ``sums``.
        """
        update, per_set = self.config.update, self.config.episodes.per_set
        if update.algorithm == "a2c":
            values = self._values(run)
            returns = n_step_returns(run.rewards, run.clock, values, update.td_steps, update.discount)
            advantages = returns - values[:-1]
        else:
            returns = advantages = returns_to_go(run.rewards, run.clock, update.discount)
        advantages = advantages - BASELINES[update.baseline](advantages, run.clock, per_set)
        gains = values_at(advantages, run.choices)
        count = sum(gain.size for gain in gains)
        if update.normalise and count:
            spread = max(float(np.concatenate(gains).std()), 1e-9)
            gains = [gain / spread for gain in gains]
        for view, action, gain in zip(run.choices, values_at(run.actions, run.choices), gains, strict=True):
            if gain.size:
                _, entropy = policy_gradient(*_evaluate(self._actor, view, action), gain, update.entropy)
                sums["entropy"] += entropy
                sums["squares"] += float(np.square(gain).sum())
        sums["samples"] += count
        if update.algorithm == "a2c":
            self._fit_critic(run, returns, random, sums)
        return count

    # The critic of A2cScheduler.

    def _values(self, run: GridEpisodes) -> NDArray[np.float64]:
        """Return the critic's value of each state, float64 [S + 1, N]; 0 after the end of an episode."""
        values, critic = np.zeros(run.clock.shape), self.networks["critic"]
        with torch.no_grad():
            for row, view in zip(values, run.states, strict=False):
                pictures = torch.from_numpy(view.pictures).to(self._device)
                row[view.episode] = critic(pictures)[:, 0].double().cpu().numpy()
        return values * self._value_scale

    def _fit_critic(
        self,
        run: GridEpisodes,
        returns: NDArray[np.float64],
        random: np.random.Generator,
        sums: dict[str, float],
    ) -> None:
        """Fit the critic to the returns of all states, by gradient steps on the squared error."""
        update, critic, optimiser = self.config.update, self.networks["critic"], self.optimisers["critic"]
        pictures = torch.from_numpy(GridView.concatenate(run.states).pictures)
        targets = torch.from_numpy(np.concatenate(values_at(returns, run.states)) / self._value_scale).float()
        for _ in range(update.critic_epochs):
            total = 0.0
            for part in map(torch.from_numpy, _parts(random, len(targets), update.critic_minibatch)):
                values = critic(pictures[part].to(self._device))[:, 0]
                loss = (targets[part].to(self._device) - values).square().sum()
                loss.backward()
                total += float(loss.detach())
                take_step(critic, optimiser, count=len(part))
            sums["states"] += len(targets)
            sums["critic_loss"] += total

    def _usual_return(self) -> float:
        """Return the mean absolute return of shortest job first, the unit of the critic's output."""
        heuristic = ShortestJobFirst()
        run = roll_out(Grid(self._grid, self._jobs), lambda grid, view: heuristic(grid))
        returns = returns_to_go(run.rewards, run.clock, self.config.update.discount)
        return max(float(np.abs(returns).mean()), 1.0)

    # Before the first iteration.

    def _start_from(self, start: str) -> Mapping[str, Any]:
        path = Path(start)
        network, config = load_network(path)
        here, there = self.config.policy.sizes, config.sizes
        if here != there:
            raise PolicyFileError(f"{path}: a network for {there}; expected {here}")
        self._actor.load_state_dict(network.state_dict())
        return read_about(path)

    def _run_heuristics(self) -> dict[str, Any]:
        phase = "heuristics on the validation sets"
        heuristics, found = heuristics_for(self._grid, self._jobs), dict[str, Any]()
        for name, heuristic in heuristics.items():
            self._progress(phase, len(found), len(heuristics))
            found[name] = self._means(heuristic)
        self._progress(phase, len(found), len(heuristics))
        return found

    def _clone(self, epochs_done: int) -> Iterator[dict[str, float]]:
        cloning = self.config.behaviour_cloning
        assert cloning is not None
        grid = Grid(self._grid, self._draw(cloning.sets, CLONING_SEED))
        heuristic = make_grid_scheduler(cloning.heuristic)
        phase = f"sets of jobs, booked by {cloning.heuristic} to clone"
        run = roll_out(
            grid,
            lambda grid, view: heuristic(grid),
            self.config.episodes.mask,
            on_step=partial(self._progress, phase),
        )
        choices = GridView.concatenate(run.choices)
        actions = np.concatenate(values_at(run.actions, run.choices))
        random = random_stream(self.config.seed, RandomStream.POLICY, CLONING)
        yield from clone_epochs(
            lambda part: _evaluate(self._actor, choices.select(part), actions[part]),
            self._actor,
            self._cloning_optimiser(),
            lambda: _parts(random, actions.size, cloning.minibatch) if actions.size else [],
            [cloning.learning_rate] * cloning.epochs,
            epochs_done,
            self._progress,
        )

    # Validation and the policy file.

    def _validate(self) -> Validation:
        random = random_stream(self.config.seed, RandomStream.POLICY, VALIDATED)
        means = self._means(self._scheduler(random))
        objective = self._objective(means)
        best = min(map(self._objective, self._reference.values()))
        measured = {f"validation_{name}": value for name, value in means.items()}
        return Validation(objective, abs(best), (best - objective) / abs(best), means, measured)

    def _means(self, scheduler: GridScheduler) -> dict[str, float]:
        """Run a scheduler on the validation sets; return the means of ``decima.evaluation.metrics.GRID_METRICS``."""
        runs = evaluate(self._grid, self._validation_sets, {self.NAME: scheduler})
        row = compare_metrics(runs, [self.NAME], None, GRID_METRICS)[self.NAME]
        return {name: each.mean.mean for name, each in row.items()}

    def _objective(self, means: Mapping[str, float]) -> float:
        """Return the value to minimise."""
        return means[self.config.grid.objective]

    def _describe(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "set": f"{self.config.validation.sets} validation sets, means over their jobs; times are steps",
            "objective": self.config.grid.objective,
            "against": "the best heuristic",
            "shown": ["slowdown", "completion", "waiting"],
            "results": results,
        }

    def _write(self, path: Path, network: nn.Module, about: Mapping[str, Any]) -> None:
        save_network(path, network, self.config.policy, about)


def _evaluate(actor: nn.Module, view: GridView, action: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy of the choices in a view, float [n] each, with gradients."""
    device = next(actor.parameters()).device
    allowed = None if view.allowed is None else torch.from_numpy(view.allowed).to(device)
    scores = log_probabilities(actor, torch.from_numpy(view.pictures).to(device), allowed)
    chosen = torch.from_numpy(action).to(device)
    return scores.gather(1, chosen[:, None])[:, 0], -(scores.exp() * scores).sum(dim=1)


def _parts(random: np.random.Generator, count: int, size: int) -> list[NDArray[np.int64]]:
    """Shuffle ``count`` indices, and split them into minibatches of a size; the last may be smaller."""
    return np.split(random.permutation(count), range(size, count, size))


def _optimiser(kind: str, network: nn.Module, rate: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(network.parameters(), lr=rate)
    # DeepRM adds 1e-9 inside the square root, PyTorch adds epsilon outside.
    return torch.optim.RMSprop(network.parameters(), lr=rate, alpha=0.9, eps=1e-9**0.5)


def _mean(values: Iterator[NDArray[np.float64]]) -> float:
    """Return the mean over all booked jobs; NaN without any."""
    flat = np.concatenate([array[np.isfinite(array)] for array in values])
    return float(flat.mean()) if flat.size else float("nan")


def train_on_grid(
    config: DeepRMConfig | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    device: str = "cpu",
    command: str = "",
    on_iteration: Callable[[IterationReport], None] | None = None,
    on_progress: Progress | None = None,
) -> TrainingResult[DeepRMConfig]:
    """Train a policy on DeepRM's grid, as ``decima deeprm train`` does.

    Args:
        config: settings, name of a recipe (``deeprm``, ``cnn`` or ``a2c``), or path of a YAML file.
        out: folder of the run, see ``TrainingLoop``.
        overrides: texts that replace settings of a recipe or file, such as ``"jobs.load=0.7"``.

    Other arguments are those of ``TrainingLoop`` and its method ``run``; without ``on_progress``, progress is shown on
    stderr.

    Raises:
        TrainingError: the settings are malformed; or see ``GridTraining``.
        Exception: see ``GridTraining`` and ``TrainingLoop.run``.

    Examples:
        >>> from decima.learning import train_on_grid
        >>> result = train_on_grid("deeprm", "my-deeprm", overrides=["jobs.load=0.7"])  # doctest: +SKIP
        >>> result.policy_file  # doctest: +SKIP
        PosixPath('my-deeprm/policy.npz')
    """
    if not isinstance(config, DeepRMConfig):
        config = read_settings(DeepRMConfig, RECIPES, config, overrides)
    elif overrides:
        raise TrainingError("overrides need the name of a recipe or a file as config")
    training = GridTraining(config, out, resume=resume, device=device, command=command)
    if on_progress is not None:
        return training.run(on_iteration, on_progress)
    with training_progress("the best heuristic", _describe, on_iteration) as callbacks:
        return training.run(*callbacks)


def _describe(metrics: Mapping[str, float]) -> Sequence[str]:
    parts = []
    if "slowdown" in metrics:
        parts.append(f"training slowdown {metrics['slowdown']:.2f}, entropy {metrics['entropy']:.2f}")
    if "improvement" in metrics:
        parts.append(
            f"validation slowdown {metrics['validation_slowdown']:.2f}, "
            f"completion {metrics['validation_completion']:.1f} steps"
        )
    return parts
