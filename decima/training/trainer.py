"""Training: episodes, advantages, updates, validation and checkpoints, until a policy is as good as it gets.

What an iteration does follows from the settings and its number, so that a run that was killed and goes on from its last
checkpoint ends, on a CPU, with the very bits of one that was not; nor does the number of processes matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.agent.files import save_policy
from decima.agent.threads import one_thread
from decima.outputs import atomic_path, make_folder, uninterrupted
from decima.training.card import policy_card
from decima.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from decima.training.config import TrainingConfig, TrainingError
from decima.training.curriculum import validation_seeds
from decima.training.learner import Learner
from decima.training.metrics import MetricsLog
from decima.training.rollout import NotFiniteError
from decima.training.simulation import Simulation, policy_of, weights_of
from decima.training.validation import Outcome, Reference, fair_ms

__all__ = ["CHECKPOINT", "CONFIG", "POLICY", "IterationReport", "Trainer", "TrainingResult"]

CHECKPOINT, CONFIG, POLICY, CARD = "checkpoint.pt", "config.yaml", "policy.npz", "policy.md"
#: Settings that a run may be gone on with although they differ: how long it is, and how it is watched over.
MAY_CHANGE = ("iterations", "checkpoint_every")


@dataclass(frozen=True, eq=False)
class IterationReport:
    """One iteration.

    Attributes:
        iteration: iterations that are over.
        iterations: how many there will be.
        metrics: see ``decima.training.metrics.METRICS``.
        improvement: of the best policy so far over the tuned weighted fair.
    """

    iteration: int
    iterations: int
    metrics: Mapping[str, float]
    improvement: float


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


class Trainer:
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
        OutputError: the folder cannot be written.
    """

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
        self.config = config
        self.out = Path(out)
        self.processes = processes
        self.command = command
        if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
            raise TrainingError(f"there is no device {device} here")
        self._settings = config.settings()
        make_folder(self.out)
        path = self.out / CHECKPOINT
        if path.exists() and not resume:
            raise TrainingError(f"{self.out}: holds a training run already; --resume goes on with it")
        self._learner = Learner(config, self._settings, device)
        self._reference: Reference | None = None
        self._best: _Best | None = None
        self._curve: list[list[float]] = []
        self._cpu_s = 0.0  # before this trainer took over
        # Where the run stands after its last whole iteration, whatever has become of the above since.
        self._checkpoint: Checkpoint | None = None
        if path.exists():
            self._restore(path)

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
        say = on_phase or (lambda words: None)
        with atomic_path(self.out / CONFIG) as path:
            path.write_text(self.config.to_yaml(), encoding="utf-8")
        start = -1 if self._checkpoint is None else self._checkpoint.iteration
        interrupted = False
        with one_thread(), MetricsLog(self.out, start) as log:
            try:
                with Simulation(self._settings, self._learner.policy.config, self.processes) as simulation:
                    for metrics in self._iterations(simulation, start, say):
                        with uninterrupted():
                            self._finish(metrics, simulation, log)
                        if on_iteration is not None:
                            on_iteration(self._report(metrics))
            except KeyboardInterrupt:
                if self._checkpoint is None:
                    raise
                interrupted = True
            except NotFiniteError as error:
                done = 0 if self._checkpoint is None else self._checkpoint.iteration
                raise TrainingError(f"iteration {done + 1}: {error}; {self._kept()}") from None
            finally:
                if self._checkpoint is not None:
                    with uninterrupted():
                        self._save(self._checkpoint)
        assert self._checkpoint is not None
        return self._result(self._checkpoint, interrupted)

    # Iterations.

    def _iterations(
        self, simulation: Simulation, start: int, say: Callable[[str], None]
    ) -> Iterator[dict[str, float]]:
        """What was measured in each iteration from ``start`` on; -1 stands for what comes before the first."""
        config = self.config
        if start < 0:
            say("classic schedulers on the validation sequences")
            self._reference = simulation.reference(validation_seeds(config))
            if config.imitation is not None:
                say(f"imitation of {config.imitation.scheduler}")
                self._learner.imitate(config.imitation)
            yield {"iteration": 0, **self._validate(simulation, 0)}
        say("training")
        for iteration in range(max(start, 0), config.iterations):
            done = iteration + 1
            metrics = {"iteration": done, **self._learner.learn(simulation, iteration)}
            if done % config.validation.every == 0 or done == config.iterations:
                metrics |= self._validate(simulation, done)
            yield metrics

    def _validate(self, simulation: Simulation, iteration: int) -> dict[str, float]:
        """Judge the policy and keep it if it is the best; what was measured."""
        assert self._reference is not None
        outcome = simulation.judge(self._learner.average, validation_seeds(self.config))
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

    def _finish(self, metrics: dict[str, float], simulation: Simulation, log: MetricsLog) -> None:
        """An iteration is over: from here on, it is what the run goes on from."""
        assert self._best is not None
        assert self._reference is not None
        cpu_s = self._cpu_s + self._learner.cpu_s + simulation.cpu_s
        metrics |= {"best_improvement": self._best.improvement, "cpu_s": cpu_s}
        log.write(metrics)
        iteration = int(metrics["iteration"])
        self._checkpoint = Checkpoint(
            config=self.config,
            iteration=iteration,
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
            cpu_s=cpu_s,
        )
        if iteration % self.config.checkpoint_every == 0 or self._best.iteration == iteration:
            self._save(self._checkpoint)

    # What is kept.

    def _restore(self, path: Path) -> None:
        checkpoint = load_checkpoint(path)
        old, new = checkpoint.config.model_dump(mode="json"), self.config.model_dump(mode="json")
        if place := _difference(old, new):
            may_change = " and ".join(MAY_CHANGE)
            raise TrainingError(f"{path}: is of a run with another {place}; only {may_change} may change")
        if checkpoint.iteration > self.config.iterations:
            raise TrainingError(
                f"{path}: {checkpoint.iteration} iterations are over, more than the "
                f"{self.config.iterations} asked for"
            )
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

    def _save(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint and the best policy."""
        save_checkpoint(self.out / CHECKPOINT, checkpoint)
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

    def _kept(self) -> str:
        if self._checkpoint is None:
            return "nothing was learned yet"
        return f"{self.out / CHECKPOINT} keeps iteration {self._checkpoint.iteration}"

    def _report(self, metrics: Mapping[str, float]) -> IterationReport:
        return IterationReport(
            int(metrics["iteration"]), self.config.iterations, metrics, metrics["best_improvement"]
        )

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


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> str:
    """The first key, dotted, that is not the same in both and may not differ; empty if there is none."""
    for name in new:
        key, one, other = f"{path}{name}", old.get(name), new[name]
        if one == other or key in MAY_CHANGE:
            continue
        return (
            _difference(one, other, f"{key}.") if isinstance(one, dict) and isinstance(other, dict) else key
        )
    return ""
