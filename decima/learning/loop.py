"""A training run and its folder: iterations, what is written of them, and what remains when a run is cut off.

What an iteration does follows from the settings and its number, so that a run that was killed and goes on from its last
checkpoint ends, on a CPU, with the very bits of one that was not. What is learned, and how, is the subclass's affair.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from decima.learning.card import BEFORE, policy_card, trainings_told
from decima.learning.checkpoint import Best, Checkpoint, load_checkpoint, save_checkpoint
from decima.learning.learner import Learner, copy_weights, load_weights
from decima.learning.metrics import MetricsLog
from decima.learning.progress import TRAINING, Tell, silent
from decima.outputs import atomic_path, make_folder, uninterrupted
from decima.policy.errors import NotFiniteError
from decima.policy.threads import one_thread
from decima.settings import DivergedError, TrainingError
from workloads.reading import read_bytes

if TYPE_CHECKING:
    from decima.learning.config import RunConfig

__all__ = [
    "CARD",
    "CHECKPOINT",
    "CONFIG",
    "POLICY",
    "IterationReport",
    "TrainingLoop",
    "TrainingResult",
    "Validation",
]

CHECKPOINT, CONFIG, POLICY, CARD = "checkpoint.pt", "config.yaml", "policy.npz", "policy.md"
#: Settings that a run may be gone on with although they differ: how long it is, and how it is watched over.
MAY_CHANGE = ("iterations", "checkpoint_every")

Config = TypeVar("Config", bound="RunConfig")


@dataclass(frozen=True, eq=False)
class IterationReport:
    """One iteration, or one epoch of behaviour cloning before the first iteration.

    Attributes:
        iteration: completed iterations; below 0, minus the epochs of behaviour cloning that are left.
        iterations: number of iterations of the whole training.
        metrics: measured values, by name.
        improvement: of the best policy so far over the reference scheduler; NaN before iteration 0.
    """

    iteration: int
    iterations: int
    metrics: Mapping[str, float]
    improvement: float


@dataclass(frozen=True, eq=False)
class Validation:
    """How a policy did on the validation set.

    Attributes:
        objective: what is to be small.
        reference: objective of the scheduler that the policy is compared with.
        improvement: over that scheduler.
        result: beside those of the heuristics; plain numbers, in lists or by name.
        metrics: measured values, by name.
    """

    objective: float
    reference: float
    improvement: float
    result: Any
    metrics: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class TrainingResult(Generic[Config]):
    """What came of a training run.

    Attributes:
        config: its settings.
        iteration: iterations that are over; fewer than asked for after Ctrl-C.
        policy_file: the best policy.
        best_iteration: when it was found.
        improvement: over whom it is compared with, on the validation set.
        results: on the validation set, by scheduler; the best policy is the last.
        interrupted: whether Ctrl-C ended it.
        cpu_s: CPU time over all processes, s.
    """

    config: Config
    iteration: int
    policy_file: Path
    best_iteration: int
    improvement: float
    results: Mapping[str, Any]
    interrupted: bool
    cpu_s: float


class TrainingLoop(ABC, Generic[Config]):
    """A run and its folder.

    The folder gets ``config.yaml`` (all settings), ``metrics.jsonl`` and ``tensorboard/``, ``checkpoint.pt``, and
    ``policy.npz``, the policy that was best on the validation set, with a card, ``policy.md``.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint; from the beginning if the run was killed before the first one.
            Only the number of iterations and of those between checkpoints may differ from that run's settings. More
            iterations stretch whatever decays over the training, from the checkpoint on.
        command: the command line, kept in the policy file; of a run that goes on, behind that which it was begun with,
            unless the settings are the same.

    Raises:
        TrainingError: the folder holds a training run already, or its checkpoint is damaged or of other settings.
        OutputError: the folder cannot be written.
    """

    #: Name -> what it is.
    METRICS: Mapping[str, str]
    #: The policy's name beside the classic schedulers.
    NAME: str

    def __init__(self, config: Config, out: str | Path, resume: bool, command: str) -> None:
        self.config = config
        self.out = Path(out)
        self.command = command
        make_folder(self.out)
        if resume:
            self.command = self._command_so_far()
        self._checkpoint_file = self.out / CHECKPOINT
        is_there = self._checkpoint_file.exists() or self._checkpoint_file.is_symlink()
        if is_there and not resume:
            raise TrainingError(f"{self.out}: holds a training run already; --resume goes on with it")
        self._learner = self._make_learner()
        self._reference: dict[str, Any] = {}
        self._best: Best | None = None
        self._curve: list[list[float]] = []
        self._cpu_before_s = 0.0  # before this run was gone on with
        self._before: list[dict[str, Any]] = []  # the trainings that made the policy it began with
        self._tell: Tell = silent
        # Where the run stands after its last whole iteration, whatever has become of all else since.
        self._checkpoint: Checkpoint | None = None
        if is_there:
            self._restore(self._checkpoint_file)
        elif config.start is not None:
            self._before = trainings_told(self._begin_with(config.start))

    # What a subclass adds.

    @abstractmethod
    def _make_learner(self) -> Learner:
        """What learns; the first thing that is asked for."""

    @abstractmethod
    def _begin_with(self, start: str) -> Mapping[str, Any]:
        """Take the weights of another policy; what its file says about it."""

    @abstractmethod
    def _run_heuristics(self) -> dict[str, Any]:
        """Run the heuristics on the validation set; results by name."""

    @abstractmethod
    def _clone(self, epochs_done: int) -> Iterator[dict[str, float]]:
        """Learn the choices of a heuristic; measured values of each epoch that is left."""

    @abstractmethod
    def _learn(self, iteration: int) -> dict[str, float]:
        """Do one iteration, numbered from 0; what was measured."""

    @abstractmethod
    def _validate(self) -> Validation:
        """Judge the policy."""

    @abstractmethod
    def _describe(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """What a card says of results: ``set``, ``objective``, ``against``, ``shown``, ``results``."""

    @abstractmethod
    def _write(self, path: Path, network: Any, about: Mapping[str, Any]) -> None:
        """Write a policy file of a network like ``Learner.kept``."""

    def _about(self) -> dict[str, Any]:
        """What else a policy file says; plain values by name."""
        return {}

    def _cpu_s(self) -> float:
        """CPU time so far, s."""
        return self._learner.cpu_s

    # A run.

    @property
    def iteration(self) -> float:
        """Completed iterations of the last checkpoint.

        Below 0, minus the epochs of behaviour cloning that are left; minus infinity without a checkpoint.
        """
        return -math.inf if self._checkpoint is None else self._checkpoint.iteration

    def run(
        self, on_iteration: Callable[[IterationReport], None] | None = None, on_progress: Tell = silent
    ) -> TrainingResult[Config]:
        """Train to the end, or until Ctrl-C; once. To go on, make another that resumes.

        Args:
            on_iteration: called for the initial policy, after each epoch of behaviour cloning and each iteration.
            on_progress: called in every phase with its name, how much of it is done, and how much there is.

        Raises:
            KeyboardInterrupt: Ctrl-C before the first iteration; the checkpoint keeps what was done, if there is one.
            DivergedError: a loss, gradient or probability is not finite; the last good checkpoint is kept.
            WorkerError: a worker process died.
        """
        interrupted, self._tell = False, on_progress
        with atomic_path(self.out / CONFIG) as path:
            path.write_text(f"{self._comment()}{self.config.to_yaml()}", encoding="utf-8")
        with one_thread(), MetricsLog(self.out, self.iteration, self.METRICS) as log:
            try:
                with closing(self._iterations()) as iterations:
                    for metrics in iterations:
                        with uninterrupted():
                            self._finish(metrics, log)
                        if on_iteration is not None:
                            on_iteration(self._report(metrics))
            except KeyboardInterrupt:
                if self.iteration < 0:
                    raise
                interrupted = True
            except NotFiniteError as error:
                where = f"iteration {self.iteration + 1}" if self.iteration >= 0 else "before iteration 1"
                raise DivergedError(f"{where}: {error}; {self._kept()}") from None
            finally:
                if self._checkpoint is not None:
                    with uninterrupted():
                        self._save(self._checkpoint)
        assert self._checkpoint is not None
        best = self._checkpoint.best
        assert best is not None
        return TrainingResult(
            config=self.config,
            iteration=self._checkpoint.iteration,
            policy_file=self.out / POLICY,
            best_iteration=best.iteration,
            improvement=best.improvement,
            results=best.results,
            interrupted=interrupted,
            cpu_s=self._checkpoint.cpu_s,
        )

    def _iterations(self) -> Generator[dict[str, float], None, None]:
        """Measured values of each iteration that is not over, and of each epoch of behaviour cloning before them."""
        cloning, last = self.config.behaviour_cloning, self.config.iterations
        epochs = 0 if cloning is None else cloning.epochs
        if self._checkpoint is None:
            self._reference = self._run_heuristics()
            yield self._measured(-epochs, {})
        done = int(self.iteration)
        if done < 0:
            for metrics in self._clone(epochs + done):
                done += 1
                yield self._measured(done, metrics)
        self._tell(TRAINING, done, last)
        for iteration in range(done, last):
            done = iteration + 1
            is_validated = done % self.config.validation.every == 0 or done == last
            metrics = self._measured(done, self._learn(iteration), is_validated)
            yield metrics
            self._tell(TRAINING, done, last)

    def _measured(
        self, iteration: int, metrics: Mapping[str, float], is_validated: bool = True
    ) -> dict[str, float]:
        """Add to the values of an iteration those of validation and the CPU time."""
        judged = self._judge(iteration) if is_validated else {}
        return {
            "iteration": iteration,
            **metrics,
            **judged,
            "cpu_s": self._cpu_before_s + self._cpu_s(),
        }

    def _judge(self, iteration: int) -> dict[str, float]:
        """Validate the policy, and keep it if it is the best; one that is still being cloned is not kept."""
        found = self._validate()
        if iteration >= 0:
            if self._best is None or found.improvement > self._best.improvement:
                results = {**self._reference, self.NAME: found.result}
                self._best = Best(iteration, found.improvement, copy_weights(self._learner.kept), results)
            self._curve = [*self._curve, [float(iteration), found.objective, found.improvement]]
        return {
            **found.metrics,
            "validation_reference": found.reference,
            "improvement": found.improvement,
        }

    def _finish(self, metrics: dict[str, float], log: MetricsLog) -> None:
        iteration = int(metrics["iteration"])
        if self._best is not None:
            metrics["best_improvement"] = self._best.improvement
        log.write(metrics)
        self._checkpoint = Checkpoint(
            config=self.config.model_dump(mode="json"),
            iteration=iteration,
            learner=self._learner.state(),
            reference=self._reference,
            best=self._best,
            curve=self._curve,
            cpu_s=metrics["cpu_s"],
            before=self._before,
        )
        is_best = self._best is None or self._best.iteration == iteration
        if iteration % self.config.checkpoint_every == 0 or is_best:
            self._save(self._checkpoint)

    def _report(self, metrics: Mapping[str, float]) -> IterationReport:
        return IterationReport(
            int(metrics["iteration"]),
            self.config.iterations,
            metrics,
            metrics.get("best_improvement", math.nan),
        )

    # What is kept.

    def _comment(self) -> str:
        """The first line of ``config.yaml``: the command, so that a run that goes on knows what it was begun with."""
        return f"# {' '.join(self.command.split())}\n"

    def _command_so_far(self) -> str:
        """What the run was begun with; and behind it this command, if that asks for something else."""
        try:
            text = read_bytes(self.out / CONFIG).decode()
        except (OSError, UnicodeDecodeError):
            return self.command
        first, _, settings = text.partition("\n")
        before = first.removeprefix("# ")
        if before == first or not before:
            return self.command
        return before if settings == self.config.to_yaml() else f"{before} && {self.command}"

    def _kept(self) -> str:
        if self._checkpoint is None:
            return "nothing was learned yet"
        if self.iteration < 0:
            return f"{self._checkpoint_file} keeps what was cloned, {-self.iteration} epochs are left"
        return f"{self._checkpoint_file} keeps iteration {self.iteration}"

    def _save(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(self._checkpoint_file, checkpoint)
        best = checkpoint.best
        if best is None:
            return
        about = {
            "command": self.command,
            "seed": self.config.seed,
            "config": checkpoint.config,
            **self._about(),
            "iteration": best.iteration,
            "iterations_trained": checkpoint.iteration,
            "training_cpu_s": round(checkpoint.cpu_s, 1),
            **({BEFORE: checkpoint.before} if checkpoint.before else {}),
            "validation": {**self._describe(best.results), "improvement": best.improvement},
            "curve": {"columns": ["iteration", "validation", "improvement"], "rows": checkpoint.curve},
        }
        network = copy.deepcopy(self._learner.kept)
        network.load_state_dict(best.weights)
        self._write(self.out / POLICY, network, about)
        with atomic_path(self.out / CARD) as path:
            path.write_text(policy_card(self.out.resolve().name, about), encoding="utf-8")

    def _restore(self, path: Path) -> None:
        checkpoint = load_checkpoint(path)
        config = self.config.model_dump(mode="json")
        _check_same_run(path, checkpoint.config, config, checkpoint.iteration)
        try:
            cloning = self.config.behaviour_cloning
            if -checkpoint.iteration > (0 if cloning is None else cloning.epochs):
                raise ValueError(f"{-checkpoint.iteration} epochs of behaviour cloning are left")
            with warnings.catch_warnings(action="ignore"):  # PyTorch's, of tensors that make no sense
                if checkpoint.best is not None:
                    load_weights(self._learner.kept, checkpoint.best.weights)  # would they fit?
                self._learner.restore(checkpoint.learner)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise TrainingError(f"{path}: does not fit its own settings: {reason:.200}") from None
        self._reference, self._best = checkpoint.reference, checkpoint.best
        self._curve, self._cpu_before_s = checkpoint.curve, checkpoint.cpu_s
        self._before = checkpoint.before
        self._checkpoint = replace(checkpoint, config=config)


def _check_same_run(path: Path, old: Mapping[str, Any], new: Mapping[str, Any], iteration: int) -> None:
    """Refuse to go on with a run of other settings, or one that has gone further than is asked for."""
    if place := _difference(old, new):
        may_change = " and ".join(MAY_CHANGE)
        raise TrainingError(f"{path}: is of a run with another {place}; only {may_change} may change")
    if iteration > new["iterations"]:
        raise TrainingError(
            f"{path}: {iteration} iterations are over, more than the {new['iterations']} asked for"
        )


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> str:
    """The first key, dotted, that is not the same in both and may not differ; empty if there is none."""
    for name in {**new, **old}:
        key, one, other = f"{path}{name}", old.get(name), new.get(name)
        if one == other or key in MAY_CHANGE:
            continue
        return (
            _difference(one, other, f"{key}.") if isinstance(one, dict) and isinstance(other, dict) else key
        )
    return ""
