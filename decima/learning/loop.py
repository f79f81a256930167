"""The training loop: behaviour cloning, iterations, validation, checkpoints, and the files of a training run.

An iteration is a function of the settings, its number and the state before. So a run that was killed and resumed gives
the same results as an uninterrupted run, bit for bit on a CPU. Subclasses define networks and iteration.
"""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import torch
from torch import nn

from decima.learning.card import BEFORE, policy_card, previous_trainings
from decima.learning.checkpoint import (
    Best,
    Checkpoint,
    copy_state,
    copy_weights,
    load_weights,
    save_checkpoint,
)
from decima.learning.metrics import (
    METRICS_FILE,
    TENSORBOARD,
    IterationReport,
    TrainingResult,
    Validation,
    WriteMetrics,
    metrics_log,
)
from decima.outputs import (
    LOCK,
    atomic_path,
    folder_lock,
    make_folder,
    missing_paths,
    remove_paths,
    uninterrupted,
)
from decima.policy.file_format import POLICY
from decima.policy.threads import keep_memory, one_thread
from decima.settings import TRAINING, DivergedError, Progress, TrainingError, silent
from decima.workers.in_order import map_in_order
from decima.workers.pool import Workers, check_workers, make_workers
from workloads.errors import NotFiniteError

if TYPE_CHECKING:
    from decima.settings import RunConfig

__all__ = [
    "CARD", "CHECKPOINT", "CONFIG", "POLICY", "TrainingLoop", "check_device", "check_resumable", "take_step",
]  # fmt: skip

CHECKPOINT, CONFIG, CARD = "checkpoint.pt", "config.yaml", "policy.md"
#: Name of the optimiser of behaviour cloning, which is dropped after the last epoch.
CLONING = "cloning"

Config = TypeVar("Config", bound="RunConfig")
Item = TypeVar("Item")
Result = TypeVar("Result")


class TrainingLoop(ABC, Generic[Config]):
    """Base class of training runs.

    The run's folder receives ``config.yaml`` (all settings), ``metrics.jsonl``, ``tensorboard/``, ``checkpoint.pt``,
    ``policy.npz`` (the best policy on the validation set) and ``policy.md`` (its card).

    Args:
        out: folder of the run.
        resume: whether to continue from the checkpoint in the folder, or start if there is none yet, as unattended
            programs need it. Only the settings ``iterations`` and ``checkpoint_every`` may differ from those of the
            checkpoint. More iterations stretch schedules, such as that of the learning rate, from the checkpoint on.
        device: device of the updates, ``cpu``, ``cuda`` or ``cuda:N``; episodes always run on CPUs.
        workers: workers that run episodes, see ``check_workers``; they do not change the results.
        command: command line, saved in the policy file; that of a resumed run is appended if its settings differ.

    Attributes:
        networks: networks that are trained, by name; behaviour cloning trains the first one.
        kept: network that is validated and saved.

    Raises:
        TrainingError: the folder contains a training run already, its checkpoint is damaged or has other settings,
            or the device does not exist.
        WorkerError: the workers are not available.
        PolicyFileError: the initial policy cannot be read, or has other features or sizes.
        OutputError: the folder cannot be written to, or another training writes into it.

    A training that cannot start leaves no new files and folders.
    """

    #: Possible metrics, name -> meaning.
    METRICS: Mapping[str, str]
    #: Name of the policy among the schedulers of results.
    NAME: str

    config: Config
    out: Path
    command: str
    networks: nn.ModuleDict
    optimisers: dict[str, torch.optim.Optimizer]
    kept: nn.Module

    def __init__(
        self,
        config: Config,
        out: str | Path,
        *,
        resume: bool = False,
        device: str = "cpu",
        workers: int | str = 1,
        command: str = "",
    ) -> None:
        self._device, self._num_workers = check_device(device), check_workers(workers)
        self.config, self.out, self.command = config, Path(out), command
        self._checkpoint_file = self.out / CHECKPOINT
        self._until = config.iterations
        self._reference: dict[str, Any] = {}
        self._best: Best | None = None
        self._curve: list[list[float]] = []
        self._cpu_before_s = 0.0  # CPU time before the run was resumed
        self._begun_s, self._elsewhere_s = time.process_time(), 0.0
        self._before: list[dict[str, Any]] = []  # trainings of the initial policy
        self._progress: Progress = silent
        self._workers: Workers
        self._checkpoint: Checkpoint | None = None  # after the last completed iteration
        self._new_paths = missing_paths(self.out, LOCK)
        make_folder(self.out)
        with folder_lock(self.out):
            try:
                self._prepare(resume)
            except BaseException:
                remove_paths(self._new_paths)
                raise

    def _prepare(self, resume: bool) -> None:
        """Build the networks, and restore the checkpoint or load the initial policy."""
        if resume:
            from decima.learning.resume import command_so_far

            self.command = command_so_far(self)
        self._checkpoint_changed_ns = self._checkpoint_time_ns()
        exists = self._checkpoint_changed_ns is not None or self._checkpoint_file.is_symlink()
        if exists and not resume:
            raise TrainingError(f"{self.out}: contains a training run already; --resume continues it")
        self._build()
        if exists:
            self._restore(self._checkpoint_file)
        elif self.config.start is not None:
            self._before = previous_trainings(self._start_from(self.config.start))

    # Methods that subclasses define.

    @abstractmethod
    def _build(self) -> None:
        """Set ``networks``, ``optimisers`` and ``kept``; called by the constructor."""

    @abstractmethod
    def _start_from(self, start: str) -> Mapping[str, Any]:
        """Load the weights of an initial policy (warm start); return the information about its training."""

    @abstractmethod
    def _run_heuristics(self) -> dict[str, Any]:
        """Run the heuristics on the validation set; return results by scheduler."""

    @abstractmethod
    def _clone(self, epochs_done: int) -> Iterator[dict[str, float]]:
        """Run behaviour cloning of a heuristic; yield the metrics of each remaining epoch."""

    @abstractmethod
    def learn(self, iteration: int) -> dict[str, float]:
        """Run the episodes of an iteration (0, 1, ..), and update the networks. Call it inside ``started``.

        Returns:
            Metrics by name, see ``METRICS``.

        Raises:
            NotFiniteError: a probability, a loss or its gradient is not finite.
            WorkerError: a worker process died.
        """

    @abstractmethod
    def _validate(self) -> Validation:
        """Run the policy on the validation set."""

    @abstractmethod
    def _describe(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return the card's description of results: ``set``, ``objective``, ``against``, ``shown``, ``results``."""

    @abstractmethod
    def _write(self, path: Path, network: Any, about: Mapping[str, Any]) -> None:
        """Write a policy file of a network with the structure of ``kept``."""

    def _about(self) -> dict[str, Any]:
        """Return further information for the policy file."""
        return {}

    def _shared(self) -> Any:
        """Return the data that workers need for all work items."""
        return None

    def _begin(self) -> Iterable[dict[str, float]]:
        """Continue from other trainings if the settings say so, see ``continue_from``; return their metrics."""
        return ()

    def state(self) -> dict[str, Any]:
        """Return a copy of the state for checkpoints, on the CPU."""
        return {
            "networks": copy_weights(self.networks),
            "optimisers": {
                name: copy_state(optimiser.state_dict()) for name, optimiser in self.optimisers.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state`` returned.

        Raises:
            AttributeError, KeyError, RuntimeError, TypeError, ValueError: the state is damaged or of another training.
        """
        load_weights(self.networks, state["networks"])
        if CLONING in state["optimisers"]:
            self._cloning_optimiser()
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])
            for weight, of_weight in optimiser.state.items():
                if any(value.shape not in (weight.shape, torch.Size()) for value in of_weight.values()):
                    raise ValueError("the optimiser's state has another shape than the weights")

    # Methods for subclasses.

    def _map(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        progress: Callable[[int, int], None] = lambda done, total: None,
        sizes: Iterable[int] | None = None,
    ) -> list[Result]:
        """Run work items in the workers, see ``map_in_order``, and count their CPU time."""
        results, elsewhere_s = map_in_order(self._workers, function, items, progress, sizes)
        self._elsewhere_s += elsewhere_s
        return results

    def _cloning_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of behaviour cloning; create it if needed."""
        first = next(iter(self.networks.values()))
        return self.optimisers.setdefault(CLONING, torch.optim.Adam(first.parameters()))

    @property
    def cpu_s(self) -> float:
        """CPU time since the training began, over all processes, s."""
        return self._cpu_before_s + time.process_time() - self._begun_s + self._elsewhere_s

    # A run.

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Start the workers, which ``learn`` needs, and stop them at the end of the block."""
        with make_workers(self._shared(), self._num_workers) as self._workers:
            yield self

    @property
    def iteration(self) -> float:
        """Number of completed iterations.

        During behaviour cloning minus the number of remaining epochs; minus infinity before the first validation.
        """
        return -math.inf if self._checkpoint is None else self._checkpoint.iteration

    def run(
        self,
        on_iteration: Callable[[IterationReport], None] | None = None,
        on_progress: Progress = silent,
        until: int | None = None,
        reference: Mapping[str, Any] | None = None,
    ) -> TrainingResult[Config]:
        """Train until the last iteration, or until Ctrl-C. Call it once; to continue, create an object with ``resume``.

        Args:
            on_iteration: called for the initial policy, and after each epoch of behaviour cloning and each iteration.
            on_progress: progress callback of all phases.
            until: iteration after which to stop, by default the last one; schedules do not depend on it.
            reference: results of the heuristics on the validation set if they are known, as in ``Checkpoint``.

        Raises:
            KeyboardInterrupt: Ctrl-C before iteration 0 is validated; finished epochs are in the checkpoint.
            DivergedError: a loss, gradient or probability is not finite; the last checkpoint is kept.
            OutputError: another training writes into the folder.
            TrainingError: another training has written into the folder since this object was created.
            WorkerError: a worker process died.

        After an error before the first checkpoint, new files and folders are removed.
        """
        with folder_lock(self.out):
            if self._checkpoint_time_ns() != self._checkpoint_changed_ns:
                raise TrainingError(f"{self.out}: another training has written into this folder meanwhile")
            self._until = self.config.iterations if until is None else until
            self._reference = self._reference or dict(reference or {})
            new_paths = self._new_paths + missing_paths(self.out, CONFIG, METRICS_FILE, TENSORBOARD)
            try:
                return self._run(on_iteration, on_progress)
            except Exception:
                if self._checkpoint is None:
                    remove_paths(new_paths, (TENSORBOARD,))
                raise

    def _run(
        self, on_iteration: Callable[[IterationReport], None] | None, on_progress: Progress
    ) -> TrainingResult[Config]:
        """Train in the locked folder, see ``run``."""
        interrupted, self._progress = False, on_progress
        self._begun_s = time.process_time()
        with atomic_path(self.out / CONFIG) as path:
            comment = f"# {' '.join(self.command.split())}"
            path.write_text(f"{comment}\n{self.config.to_yaml()}", encoding="utf-8")
        keep_memory()
        with one_thread(), metrics_log(self.out, self.iteration, self.METRICS) as log:
            try:
                with closing(self._iterations()) as iterations:
                    for metrics in iterations:
                        with uninterrupted():
                            self._finish(metrics, log)
                        if on_iteration is not None:
                            best_so_far = metrics.get("best_improvement", math.nan)
                            iteration, last = int(metrics["iteration"]), self.config.iterations
                            on_iteration(IterationReport(iteration, last, metrics, best_so_far))
            except KeyboardInterrupt:
                if self.iteration < 0:
                    raise
                interrupted = True
            except NotFiniteError as error:
                where = f"iteration {self.iteration + 1}" if self.iteration >= 0 else "before iteration 1"
                raise DivergedError(f"{where}: {error}; {self._kept_text()}") from None
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
        """Yield the metrics of each remaining epoch of behaviour cloning and each remaining iteration."""
        cloning, last = self.config.behaviour_cloning, self._until
        epochs = 0 if cloning is None else cloning.epochs
        if self._checkpoint is None:
            yield from self._begin()
        with self.started():
            if self._checkpoint is None:
                self._reference = self._reference or self._run_heuristics()
                yield self._measured(-epochs, {})
            done = int(self.iteration)
            if done < 0:
                for metrics in self._clone(epochs + done):
                    done += 1
                    if done == 0:
                        del self.optimisers[CLONING]
                    yield self._measured(done, metrics)
            self._progress(TRAINING, done, self.config.iterations)
            for iteration in range(done, last):
                done = iteration + 1
                yield self._measured(done, self.learn(iteration), self._is_validated(done))
                self._progress(TRAINING, done, self.config.iterations)

    def _is_validated(self, iteration: int) -> bool:
        return iteration % self.config.validation.every == 0 or iteration == self._until

    def _measured(
        self, iteration: int, metrics: Mapping[str, float], is_validated: bool = True
    ) -> dict[str, float]:
        """Validate if due, and return all metrics; keep the policy if it is the best, except during cloning."""
        judged: dict[str, float] = {}
        if is_validated:
            validation = self._validate()
            if iteration >= 0:
                if self._best is None or validation.improvement > self._best.improvement:
                    results = {**self._reference, self.NAME: validation.result}
                    self._best = Best(iteration, validation.improvement, copy_weights(self.kept), results)
                self._curve = [*self._curve, [float(iteration), validation.objective, validation.improvement]]
            judged = {
                **validation.metrics,
                "validation_reference": validation.reference,
                "improvement": validation.improvement,
            }
        return {"iteration": iteration, **metrics, **judged, "cpu_s": self.cpu_s}

    def _finish(self, metrics: dict[str, float], log: WriteMetrics) -> None:
        """Log an iteration, and save a checkpoint if one is due or the policy is the best so far."""
        iteration = int(metrics["iteration"])
        if self._best is not None:
            metrics.setdefault("best_improvement", self._best.improvement)
        log(metrics)
        if iteration <= self.iteration:  # of ``_begin``, after which there is a checkpoint
            return
        self._checkpoint = Checkpoint(
            config=self.config.model_dump(mode="json"),
            iteration=iteration,
            learner=self.state(),
            reference=self._reference,
            best=self._best,
            curve=self._curve,
            cpu_s=metrics["cpu_s"],
            before=self._before,
        )
        is_best = self._best is None or self._best.iteration == iteration
        if iteration % self.config.checkpoint_every == 0 or is_best:
            self._save(self._checkpoint)

    # Files.

    def _checkpoint_time_ns(self) -> int | None:
        """Return the time of the checkpoint's last change, ns; None without a checkpoint."""
        try:
            return self._checkpoint_file.stat().st_mtime_ns
        except OSError:
            return None

    def _kept_text(self) -> str:
        if self._checkpoint is None:
            return "there is no checkpoint yet"
        if self.iteration < 0:
            return f"{self._checkpoint_file} keeps behaviour cloning, with {-self.iteration} epochs left"
        return f"{self._checkpoint_file} keeps iteration {self.iteration}"

    def _save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, and the best policy with its card."""
        save_checkpoint(self._checkpoint_file, checkpoint)
        best = checkpoint.best
        if best is None:
            return
        about = self.about_best(checkpoint, best) | self._about()
        network = copy.deepcopy(self.kept)
        network.load_state_dict(best.weights)
        self._write(self.out / POLICY, network, about)
        with atomic_path(self.out / CARD) as path:
            path.write_text(policy_card(self.out.resolve().name, about), encoding="utf-8")

    def about_best(self, checkpoint: Checkpoint, best: Best) -> dict[str, Any]:
        """Describe the training and results of the best policy, for the policy file and its card."""
        return {
            "command": self.command,
            "seed": self.config.seed,
            "config": checkpoint.config,
            "iteration": best.iteration,
            "iterations_trained": checkpoint.iteration,
            "training_cpu_s": round(checkpoint.cpu_s, 1),
            **({BEFORE: checkpoint.before} if checkpoint.before else {}),
            "validation": {**self._describe(best.results), "improvement": best.improvement},
            "curve": {"columns": ["iteration", "validation", "improvement"], "rows": checkpoint.curve},
        }

    def _restore(self, path: Path) -> None:
        """Restore the checkpoint of a run that is resumed."""
        from decima.learning.resume import restore

        self.continue_from(restore(self, path))

    def continue_from(self, checkpoint: Checkpoint) -> None:
        """Continue with the results of a checkpoint, after ``restore`` of its learner."""
        self._checkpoint = checkpoint
        self._reference, self._best = checkpoint.reference, checkpoint.best
        self._curve, self._cpu_before_s = checkpoint.curve, checkpoint.cpu_s
        self._before = checkpoint.before
        self._begun_s, self._elsewhere_s = time.process_time(), 0.0


def take_step(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: float = 0.0,
    *,
    max_gradient_norm: float = math.inf,
    count: int = 1,
) -> float:
    """Take an optimiser step with the accumulated gradient, after gradient clipping, and reset the gradient.

    Args:
        loss: value of the loss, to check that it is finite.
        max_gradient_norm: norm to which a larger gradient is clipped.
        count: divisor of the gradient.

    Returns:
        Norm of the gradient before clipping.

    Raises:
        NotFiniteError: the loss or its gradient is not finite.
    """
    for parameter in network.parameters() if count != 1 else ():
        if parameter.grad is not None:
            parameter.grad /= count
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), max_gradient_norm))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NotFiniteError(f"the loss is {loss}, the norm of its gradient {norm}")
    optimiser.step()
    optimiser.zero_grad()
    return norm


def check_resumable(folder: Path) -> None:
    """Check that a folder contains a training run, which may have been killed before its first checkpoint.

    Raises:
        TrainingError: it contains none; the name of the folder may be misspelt.
    """
    if not any((folder / name).exists() or (folder / name).is_symlink() for name in (CHECKPOINT, CONFIG)):
        raise TrainingError(f"{folder}: contains no training run to resume")


def check_device(name: str) -> str:
    """Check the name of a device for updates (``cpu``, ``cuda`` or ``cuda:N``), and return it.

    Raises:
        TrainingError: the device does not exist.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name not in ("cpu", *(("cuda",) if gpus else ()), *(f"cuda:{index}" for index in range(gpus))):
        raise TrainingError(f"there is no device {name} here")
    return name
