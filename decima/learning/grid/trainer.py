"""Training on grids: iterations, validation and checkpoints, until a network is as good as it gets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from decima.evaluation.grid import MEASURES, Evaluation, evaluate, heuristics_for
from decima.learning.grid.card import network_card
from decima.learning.grid.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from decima.learning.grid.config import DeepRMConfig
from decima.learning.grid.learner import VALIDATION_SEED, Learner
from decima.learning.grid.metrics import METRICS
from decima.learning.grid.rollout import VALIDATED, Actor
from decima.learning.loop import CARD, POLICY, IterationReport, TrainingLoop, check_same_run
from decima.outputs import atomic_path
from decima.policy.grid.files import save_network
from decima.settings import TrainingError
from workloads import RandomStream, random_stream

__all__ = ["DeepRMResult", "DeepRMTrainer"]


@dataclass(frozen=True, eq=False)
class DeepRMResult:
    """What came of a training run.

    Attributes:
        config: its settings.
        iteration: iterations that are over; fewer than asked for after Ctrl-C.
        policy_file: the best network.
        best_iteration: when it was found.
        improvement: over the best heuristic, on the validation sets.
        results: means on the validation sets by scheduler and measure; the best network is ``deeprm``.
        interrupted: whether Ctrl-C ended it.
        cpu_s: CPU time, s.
    """

    config: DeepRMConfig
    iteration: int
    policy_file: Path
    best_iteration: int
    improvement: float
    results: Mapping[str, Mapping[str, float]]
    interrupted: bool
    cpu_s: float


class DeepRMTrainer(TrainingLoop):
    """One training run and its folder, as that of ``decima.learning.cluster.trainer.Trainer``.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint; from the beginning if the run was killed before the first one.
        command: the command line, kept in the policy file.

    Raises:
        TrainingError: the folder holds a training run already, or its checkpoint is damaged or of other settings.
        WorkloadError: the jobs cannot be drawn, or do not fit the grid.
        ConfigError: there is no such grid.
        PolicyFileError: the network to begin with cannot be read, or is of other sizes.
        OutputError: the folder cannot be written.
    """

    METRICS = METRICS

    def __init__(self, config: DeepRMConfig, out: Path, *, resume: bool = False, command: str = "") -> None:
        super().__init__(config, out, resume, command)
        self.config = config
        self._learner = Learner(config)
        self._sets = config.jobs.draw(
            self._learner.grid_config, config.validation.sets, VALIDATION_SEED + config.seed
        )
        for name, jobs in (("training", self._learner.jobs), ("validation", self._sets)):
            if not jobs.num_jobs.any():
                raise TrainingError(f"the {name} sets have no jobs: more sets, steps or load are needed")
        self._best: _Best | None = None
        self._curve: list[list[float]] = []
        self._cpu_s = 0.0
        self._checkpoint: Checkpoint | None = None
        if self._resumes:
            self._restore(self._checkpoint_file)
        elif config.start is not None:
            self._learner.begin_with(config.start)

    def run(
        self,
        on_iteration: Callable[[IterationReport], None] | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> DeepRMResult:
        """Train to the end, or until Ctrl-C; once. See ``decima.learning.cluster.trainer.Trainer.run``."""
        interrupted = self._run(on_iteration, on_phase)
        checkpoint = self._checkpoint
        assert checkpoint is not None
        return DeepRMResult(
            config=self.config,
            iteration=checkpoint.iteration,
            policy_file=self.out / POLICY,
            best_iteration=checkpoint.best_iteration,
            improvement=checkpoint.best_improvement,
            results=self._results(checkpoint),
            interrupted=interrupted,
            cpu_s=checkpoint.cpu_s,
        )

    def _iterations(self, say: Callable[[str], None]) -> Generator[dict[str, float], None, None]:
        say("heuristics on the validation sets")
        _ = self._heuristics
        yield from super()._iterations(say)

    def _begin(self, say: Callable[[str], None]) -> None:
        if self.config.imitation is not None:
            say(f"imitation of {self.config.imitation.heuristic}")
            self._learner.imitate(self.config.imitation)

    def _learn(self, iteration: int) -> dict[str, float]:
        return self._learner.learn(iteration)

    @cached_property
    def _heuristics(self) -> dict[str, Evaluation]:
        """On the validation sets, by name."""
        config = self._learner.grid_config
        return evaluate(config, self._sets, heuristics_for(config, self._learner.jobs))

    def _cpu_so_far(self) -> float:
        return self._cpu_s + self._learner.cpu_s

    def _validate(self, iteration: int) -> dict[str, float]:
        config = self._learner.grid_config
        random = random_stream(self.config.seed, RandomStream.POLICY, VALIDATED)
        actor = Actor(self._learner.networks["actor"], random, mask=self.config.episodes.mask)
        evaluation = evaluate(config, self._sets, {"deeprm": actor})["deeprm"]
        objective = evaluation.objective(config.objective)
        reference = min(each.objective(config.objective) for each in self._heuristics.values())
        improvement = (reference - objective) / abs(reference)
        if self._best is None or improvement > self._best.improvement:
            weights = copy.deepcopy(self._learner.networks["actor"].state_dict())
            self._best = _Best(weights, iteration, _means(evaluation), improvement)
        self._curve = [*self._curve, [float(iteration), objective, improvement]]
        measures = {f"validation_{name}": value for name, value in _means(evaluation).items()}
        return {**measures, "improvement": improvement}

    def _keep(self, metrics: Mapping[str, float]) -> None:
        assert self._best is not None
        self._checkpoint = Checkpoint(
            config=self.config,
            iteration=int(metrics["iteration"]),
            networks=copy.deepcopy(self._learner.networks.state_dict()),
            optimisers={
                name: copy.deepcopy(optimiser.state_dict())
                for name, optimiser in self._learner.optimisers.items()
            },
            best_actor=self._best.weights,
            best_iteration=self._best.iteration,
            best_measures=self._best.measures,
            best_improvement=self._best.improvement,
            curve=self._curve,
            cpu_s=metrics["cpu_s"],
        )

    def _save(self) -> None:
        checkpoint = self._checkpoint
        assert checkpoint is not None
        save_checkpoint(self._checkpoint_file, checkpoint)
        best = copy.deepcopy(self._learner.networks["actor"])
        best.load_state_dict(checkpoint.best_actor)
        about = self._about(checkpoint)
        save_network(self.out / POLICY, best, self.config, about)
        with atomic_path(self.out / CARD) as path:
            card = network_card(self.out.resolve().name, self.config.model_dump(mode="json"), about)
            path.write_text(card, encoding="utf-8")

    def _restore(self, path: Path) -> None:
        checkpoint = load_checkpoint(path)
        old, new = checkpoint.config.model_dump(mode="json"), self.config.model_dump(mode="json")
        check_same_run(path, old, new, checkpoint.iteration)
        try:
            self._learner.networks["actor"].load_state_dict(checkpoint.best_actor)  # would it fit?
            self._learner.networks.load_state_dict(checkpoint.networks)
            for name, optimiser in self._learner.optimisers.items():
                optimiser.load_state_dict(checkpoint.optimisers[name])
                _check_shapes(optimiser)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise TrainingError(f"{path}: does not fit its own settings: {reason:.200}") from None
        self._best = _Best(
            checkpoint.best_actor,
            checkpoint.best_iteration,
            checkpoint.best_measures,
            checkpoint.best_improvement,
        )
        self._curve = checkpoint.curve
        self._cpu_s = checkpoint.cpu_s
        checkpoint.config = self.config
        self._checkpoint = checkpoint

    def _about(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What the policy file says of itself."""
        return {
            "command": self.command,
            "seed": self.config.seed,
            "iteration": checkpoint.best_iteration,
            "iterations_trained": checkpoint.iteration,
            "training_cpu_s": round(checkpoint.cpu_s, 1),
            "validation": {
                "objective": self.config.grid.objective,
                "sets": self.config.validation.sets,
                "improvement_over_best_heuristic": checkpoint.best_improvement,
                "results": self._results(checkpoint),
            },
            "curve": {"columns": ["iteration", "validation", "improvement"], "rows": checkpoint.curve},
        }

    def _results(self, checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
        heuristics = {name: _means(evaluation) for name, evaluation in self._heuristics.items()}
        return {**heuristics, "deeprm": checkpoint.best_measures}


@dataclass(frozen=True, eq=False)
class _Best:
    """The best actor so far: its weights, when it was found, and how it did."""

    weights: dict[str, torch.Tensor]
    iteration: int
    measures: dict[str, float]
    improvement: float


def _check_shapes(optimiser: torch.optim.Optimizer) -> None:
    """Raise unless what an optimiser knows of a weight has its shape; counts have none."""
    for weight, state in optimiser.state.items():
        if any(value.shape not in (weight.shape, torch.Size()) for value in state.values()):
            raise ValueError("the optimiser's state has another shape than the weights")


def _means(evaluation: Evaluation) -> dict[str, float]:
    return {name: evaluation.mean(name) for name in MEASURES}
