"""Training: episodes, advantages, updates, validation and checkpoints, until a policy is as good as it gets.

What an iteration does follows from the settings and its number, so that a run that was killed and goes on from its last
checkpoint ends, on a CPU, with the very bits of one that was not; nor does the number of processes matter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning.cluster.card import policy_card
from decima.learning.cluster.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from decima.learning.cluster.config import TrainingConfig, TrainingError
from decima.learning.cluster.curriculum import validation_seeds
from decima.learning.cluster.learner import Learner
from decima.learning.cluster.metrics import METRICS
from decima.learning.cluster.simulation import Simulation, policy_of, weights_of
from decima.learning.cluster.validation import Outcome, Reference, fair_ms
from decima.learning.loop import (
    CARD,
    CHECKPOINT,
    CONFIG,
    POLICY,
    IterationReport,
    TrainingLoop,
    check_same_run,
)
from decima.outputs import atomic_path
from decima.policy.files import save_policy
from decima.policy.shipped import SHIPPED

__all__ = ["CHECKPOINT", "CONFIG", "POLICY", "IterationReport", "Trainer", "TrainingResult"]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What came of a training run.

    Attributes:
        config: its settings.
        iteration: iterations that are over; fewer than asked for after Ctrl-C.
        policy_file: the best policy.
        best_iteration: when it was found.
        improvement: over the tuned weighted fair, on the validation sequences.
        results: mean JCT (or makespan, if that is rewarded) of each validation sequence by scheduler, float64 [n], ms;
            the best policy is ``decima``.
        interrupted: whether Ctrl-C ended it.
        cpu_s: CPU time over all processes, s.
    """

    config: TrainingConfig
    iteration: int
    policy_file: Path
    best_iteration: int
    improvement: float
    results: Mapping[str, NDArray[np.float64]]
    interrupted: bool
    cpu_s: float


class Trainer(TrainingLoop):
    """One training run and its folder.

    The folder gets ``config.yaml`` (all settings), ``metrics.jsonl`` and ``tensorboard/``, ``checkpoint.pt``, and
    ``policy.npz``, the policy that was best on the validation sequences, with a card, ``policy.md``.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint; from the beginning if the run was killed before the first one.
            Only the number of iterations and of those between checkpoints may differ from that run's settings. More
            iterations stretch whatever decays over the training, from the checkpoint on.
        device: where updates are computed, ``cpu`` or ``cuda``; episodes are always run on CPUs.
        processes: how many run episodes.
        command: the command line, kept in the policy file.

    Raises:
        TrainingError: the folder holds a training run already, its checkpoint is damaged or of other settings,
            or there is no such device.
        WorkloadError: the workload cannot be read.
        PolicyFileError: the policy to begin with cannot be read, or has other features or sizes.
        OutputError: the folder cannot be written.
    """

    METRICS = METRICS

    def __init__(
        self,
        config: TrainingConfig,
        out: Path,
        *,
        resume: bool = False,
        device: str = "cpu",
        processes: int = 1,
        command: str = "",
    ) -> None:
        super().__init__(config, out, resume, command)
        self.config = config
        self.processes = processes
        if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
            raise TrainingError(f"there is no device {device} here")
        self._settings = config.settings()
        self._learner = Learner(config, self._settings, device)
        self._simulation: Simulation
        self._reference: Reference | None = None
        self._best: _Best | None = None
        self._curve: list[list[float]] = []
        self._cpu_s = 0.0  # before this trainer took over
        self._checkpoint: Checkpoint | None = None
        if self._resumes:
            self._restore(self._checkpoint_file)
        elif config.start is not None:
            self._learner.begin_with(SHIPPED.get(config.start, Path(config.start)))

    def run(
        self,
        on_iteration: Callable[[IterationReport], None] | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> TrainingResult:
        """Train to the end, or until Ctrl-C; once. To go on, make another trainer that resumes.

        Args:
            on_iteration: called after each iteration; the first time for the policy before training.
            on_phase: told in a few words what begins.

        Raises:
            TrainingError: a loss, gradient or probability is not finite; the last good checkpoint is kept.
            WorkerError: a worker process died.
        """
        interrupted = self._run(on_iteration, on_phase)
        assert self._checkpoint is not None
        return self._result(self._checkpoint, interrupted)

    # Iterations.

    def _iterations(self, say: Callable[[str], None]) -> Generator[dict[str, float], None, None]:
        with Simulation(self._settings, self._learner.policy.config, self.processes) as self._simulation:
            yield from super()._iterations(say)

    def _begin(self, say: Callable[[str], None]) -> None:
        say("classic schedulers on the validation sequences")
        self._reference = self._simulation.reference(validation_seeds(self.config))
        if self.config.imitation is not None:
            say(f"imitation of {self.config.imitation.scheduler}")
            self._learner.imitate(self.config.imitation)

    def _learn(self, iteration: int) -> dict[str, float]:
        return self._learner.learn(self._simulation, iteration)

    def _cpu_so_far(self) -> float:
        return self._cpu_s + self._learner.cpu_s + self._simulation.cpu_s

    def _validate(self, iteration: int) -> dict[str, float]:
        assert self._reference is not None
        outcome = self._simulation.judge(self._learner.average, validation_seeds(self.config))
        objective = outcome.objective(self._settings)
        improvement = self._reference.improvement(objective)
        if self._best is None or improvement > self._best.improvement:
            self._best = _Best(weights_of(self._learner.average), iteration, outcome, improvement)
        self._curve = [*self._curve, [float(iteration), float(objective.mean()) / 1000, improvement]]
        return {
            "validation_jct_s": float(outcome.jct_ms.mean()) / 1000,
            "validation_makespan_s": float(outcome.makespan_ms.mean()) / 1000,
            "improvement": improvement,
        }

    def _keep(self, metrics: Mapping[str, float]) -> None:
        assert self._best is not None
        assert self._reference is not None
        self._checkpoint = Checkpoint(
            config=self.config,
            iteration=int(metrics["iteration"]),
            policy=weights_of(self._learner.policy),
            average=weights_of(self._learner.average),
            optimiser=self._learner.optimiser_state(),
            reference=torch.from_numpy(self._reference.table),
            best_policy=self._best.weights,
            best_iteration=self._best.iteration,
            best_outcome=torch.from_numpy(np.array(self._best.outcome)),
            best_improvement=self._best.improvement,
            **self._learner.advantages.state(),
            curve=self._curve,
            cpu_s=metrics["cpu_s"],
        )

    # What is kept.

    def _restore(self, path: Path) -> None:
        checkpoint = load_checkpoint(path)
        old, new = checkpoint.config.model_dump(mode="json"), self.config.model_dump(mode="json")
        check_same_run(path, old, new, checkpoint.iteration)
        if fair_ms(self._settings, validation_seeds(self.config)[0]) != checkpoint.reference[0, 0]:
            raise TrainingError(
                f"{path}: is of a run on another workload: fair does not do there what it does now"
            )
        self._learner.policy.load_state_dict(checkpoint.policy)
        self._learner.average.load_state_dict(checkpoint.average)
        self._learner.optimiser.load_state_dict(checkpoint.optimiser)
        self._learner.advantages.restore({"window": checkpoint.window, "critic": checkpoint.critic})
        self._reference = Reference.of(checkpoint.reference.numpy())
        self._best = _Best(
            checkpoint.best_policy,
            checkpoint.best_iteration,
            Outcome(*checkpoint.best_outcome.numpy()),
            checkpoint.best_improvement,
        )
        self._curve = checkpoint.curve
        self._cpu_s = checkpoint.cpu_s
        self._checkpoint = replace(checkpoint, config=self.config)

    def _save(self) -> None:
        checkpoint = self._checkpoint
        assert checkpoint is not None
        save_checkpoint(self._checkpoint_file, checkpoint)
        best = policy_of(self._learner.policy.config, checkpoint.best_policy)
        about = self._about(checkpoint)
        save_policy(self.out / POLICY, best, about)
        with atomic_path(self.out / CARD) as path:
            path.write_text(policy_card(self.out.resolve().name, about), encoding="utf-8")

    def _about(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What the policy file says of itself."""
        return {
            "command": self.command,
            "seed": self.config.seed,
            "config": self.config.model_dump(mode="json"),
            "iteration": checkpoint.best_iteration,
            "iterations_trained": checkpoint.iteration,
            "training_cpu_s": round(checkpoint.cpu_s, 1),
            "validation": {
                "objective": f"mean {self.config.cluster.reward}, s",
                "sequences": self.config.validation.sequences,
                "improvement_over_tuned_weighted_fair": checkpoint.best_improvement,
                "results": {
                    name: float(values.mean()) / 1000 for name, values in self._compared(checkpoint).items()
                },
            },
            "curve": {"columns": ["iteration", "validation, s", "improvement"], "rows": checkpoint.curve},
        }

    def _compared(self, checkpoint: Checkpoint) -> dict[str, NDArray[np.float64]]:
        """What the reward asks to be short, by scheduler, float64 [n], ms."""
        outcome = Outcome(*checkpoint.best_outcome.numpy())
        reference = Reference.of(checkpoint.reference.numpy())
        return {**reference.results(), "decima": outcome.objective(self._settings)}

    def _result(self, checkpoint: Checkpoint, interrupted: bool) -> TrainingResult:
        return TrainingResult(
            config=self.config,
            iteration=checkpoint.iteration,
            policy_file=self.out / POLICY,
            best_iteration=checkpoint.best_iteration,
            improvement=checkpoint.best_improvement,
            results=self._compared(checkpoint),
            interrupted=interrupted,
            cpu_s=checkpoint.cpu_s,
        )


@dataclass(frozen=True, eq=False)
class _Best:
    """The best policy so far: its weights, when it was found, and how it did."""

    weights: dict[str, torch.Tensor]
    iteration: int
    outcome: Outcome
    improvement: float
