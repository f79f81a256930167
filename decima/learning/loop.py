"""A training run and its folder: iterations, what is written of them, and what remains when a run is cut off.

What is learned, and how, is the subclass's affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from decima.learning.cluster.config import TrainingError
from decima.learning.cluster.metrics import MetricsLog
from decima.learning.cluster.rollout import NotFiniteError
from decima.outputs import atomic_path, make_folder, uninterrupted
from decima.policy.threads import one_thread

__all__ = ["CARD", "CHECKPOINT", "CONFIG", "POLICY", "IterationReport", "TrainingLoop", "check_same_run"]

CHECKPOINT, CONFIG, POLICY, CARD = "checkpoint.pt", "config.yaml", "policy.npz", "policy.md"
#: Settings that a run may be gone on with although they differ: how long it is, and how it is watched over.
MAY_CHANGE = ("iterations", "checkpoint_every")


class Validation(Protocol):
    """What the loop asks of the settings of validation."""

    @property
    def every(self) -> int:
        """Iterations from one validation to the next."""


class RunConfig(Protocol):
    """What the loop asks of the settings."""

    @property
    def iterations(self) -> int:
        """How many there will be."""

    @property
    def checkpoint_every(self) -> int:
        """Iterations from one checkpoint to the next."""

    @property
    def validation(self) -> Validation:
        """When the policy is judged."""

    def to_yaml(self) -> str:
        """All settings."""


class Kept(Protocol):
    """What the loop asks of a checkpoint."""

    @property
    def iteration(self) -> int:
        """Iterations that are over."""


class Best(Protocol):
    """What the loop asks of the best policy so far."""

    @property
    def iteration(self) -> int:
        """When it was found."""

    @property
    def improvement(self) -> float:
        """Over the heuristic that it is measured by."""


@dataclass(frozen=True, eq=False)
class IterationReport:
    """One iteration.

    Attributes:
        iteration: iterations that are over.
        iterations: how many there will be.
        metrics: what was measured, by name.
        improvement: of the best policy so far over the heuristic that it is measured by.
    """

    iteration: int
    iterations: int
    metrics: Mapping[str, float]
    improvement: float


class TrainingLoop(ABC):
    """A run and its folder, which gets ``config.yaml``, ``metrics.jsonl``, ``tensorboard/`` and what ``_save`` writes.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint; from the beginning if the run was killed before the first one.
        command: the command line, kept in the policy file.

    Raises:
        TrainingError: the folder holds a training run already.
        OutputError: the folder cannot be written.
    """

    #: Name -> what it is.
    METRICS: Mapping[str, str]

    def __init__(self, config: RunConfig, out: Path, resume: bool, command: str) -> None:
        self.out = Path(out)
        self.command = command
        self._run_config = config
        make_folder(self.out)
        self._checkpoint_file = self.out / CHECKPOINT
        self._resumes = self._checkpoint_file.exists()
        if self._resumes and not resume:
            raise TrainingError(f"{self.out}: holds a training run already; --resume goes on with it")
        self._best: Best | None = None
        # Where the run stands after its last whole iteration, whatever has become of all else since.
        self._checkpoint: Kept | None = None

    @property
    def iteration(self) -> int:
        """Iterations that are over, as far as they are kept; -1 if nothing is."""
        return -1 if self._checkpoint is None else self._checkpoint.iteration

    @abstractmethod
    def _begin(self, say: Callable[[str], None]) -> None:
        """What comes before the first iteration of a new run."""

    @abstractmethod
    def _learn(self, iteration: int) -> dict[str, float]:
        """Do one iteration, numbered from 0; what was measured."""

    @abstractmethod
    def _validate(self, iteration: int) -> dict[str, float]:
        """Judge the policy and keep it in ``_best`` if it is that; what was measured."""

    @abstractmethod
    def _cpu_so_far(self) -> float:
        """CPU time since the training began, s."""

    @abstractmethod
    def _keep(self, metrics: Mapping[str, float]) -> None:
        """An iteration is over: ``_checkpoint`` becomes what the run goes on from."""

    @abstractmethod
    def _save(self) -> None:
        """Write what was kept last, and the best policy."""

    def _iterations(self, say: Callable[[str], None]) -> Generator[dict[str, float], None, None]:
        """What was measured in each iteration that is not over; first, in a new run, that numbered 0."""
        start, last = self.iteration, self._run_config.iterations
        if start < 0:
            self._begin(say)
            yield {"iteration": 0, **self._validate(0), "cpu_s": self._cpu_so_far()}
        say("training")
        for iteration in range(max(start, 0), last):
            done = iteration + 1
            metrics = {"iteration": done, **self._learn(iteration)}
            if done % self._run_config.validation.every == 0 or done == last:
                metrics |= self._validate(done)
            yield metrics | {"cpu_s": self._cpu_so_far()}

    def _run(
        self, on_iteration: Callable[[IterationReport], None] | None, on_phase: Callable[[str], None] | None
    ) -> bool:
        """Train to the end, or until Ctrl-C, once; returns whether that struck.

        Raises:
            TrainingError: a loss, gradient or probability is not finite; the last good checkpoint is kept.
        """
        say = on_phase or (lambda words: None)
        with atomic_path(self.out / CONFIG) as path:
            path.write_text(self._run_config.to_yaml(), encoding="utf-8")
        with one_thread(), MetricsLog(self.out, self.iteration, self.METRICS) as log:
            try:
                with closing(self._iterations(say)) as iterations:
                    for metrics in iterations:
                        with uninterrupted():
                            self._finish(metrics, log)
                        if on_iteration is not None:
                            on_iteration(self._report(metrics))
            except KeyboardInterrupt:
                if self.iteration < 0:
                    raise
                return True
            except NotFiniteError as error:
                raise TrainingError(
                    f"iteration {max(self.iteration, 0) + 1}: {error}; {self._kept()}"
                ) from None
            finally:
                if self.iteration >= 0:
                    with uninterrupted():
                        self._save()
        return False

    def _finish(self, metrics: dict[str, float], log: MetricsLog) -> None:
        assert self._best is not None
        iteration = int(metrics["iteration"])
        metrics["best_improvement"] = self._best.improvement
        log.write(metrics)
        self._keep(metrics)
        if iteration % self._run_config.checkpoint_every == 0 or self._best.iteration == iteration:
            self._save()

    def _kept(self) -> str:
        if self.iteration < 0:
            return "nothing was learned yet"
        return f"{self._checkpoint_file} keeps iteration {self.iteration}"

    def _report(self, metrics: Mapping[str, float]) -> IterationReport:
        return IterationReport(
            int(metrics["iteration"]), self._run_config.iterations, metrics, metrics["best_improvement"]
        )


def check_same_run(path: Path, old: Mapping[str, Any], new: Mapping[str, Any], iteration: int) -> None:
    """Refuse to go on with a run that had other settings.

    Args:
        path: its checkpoint.
        old: its settings.
        new: those of now.
        iteration: that it has reached.

    Raises:
        TrainingError: a setting differs that may not, or it has gone further than is asked for.
    """
    if place := _difference(old, new):
        may_change = " and ".join(MAY_CHANGE)
        raise TrainingError(f"{path}: is of a run with another {place}; only {may_change} may change")
    if iteration > new["iterations"]:
        raise TrainingError(
            f"{path}: {iteration} iterations are over, more than the {new['iterations']} asked for"
        )


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
