"""Training on grids: what the loop does there. Who runs the episodes does not show."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decima.evaluation.grid import MEASURES, Evaluation, evaluate, heuristics_for
from decima.learning.grid.learner import VALIDATION_SEED, Learner
from decima.learning.grid.metrics import METRICS
from decima.learning.grid.simulation import Simulation
from decima.learning.learner import check_device
from decima.learning.loop import TrainingLoop, Validation
from decima.policy.grid.files import read_about, save_network
from decima.policy.grid.scheduler import VALIDATED, Actor
from decima.settings import TrainingError
from decima.workers.pool import check_workers
from workloads.arrivals import RandomStream, random_stream
from workloads.grid_jobs import JobSets

if TYPE_CHECKING:
    from torch import nn

    from decima.learning.grid.config import DeepRMConfig

__all__ = ["DeepRMTrainer"]


class DeepRMTrainer(TrainingLoop["DeepRMConfig"]):
    """One training run and its folder, see ``TrainingLoop``.

    Results are the means on the validation sets by measure, see ``decima.evaluation.grid.MEASURES``.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint.
        device: where updates are computed, ``cpu`` or ``cuda``; episodes are always run on CPUs.
        workers: who runs episodes, see ``check_workers``.
        command: the command line, kept in the policy file.

    Raises:
        TrainingError: the folder holds a training run already, its checkpoint is damaged or of other settings, there
            is no such device, or several workers but no ``episodes.lockstep``.
        WorkerError: there are no such workers.
        WorkloadError: the jobs cannot be drawn, or do not fit the grid.
        ConfigError: there is no such grid.
        PolicyFileError: the network to begin with cannot be read, or is of other sizes.
        OutputError: the folder cannot be written.
    """

    METRICS = METRICS
    NAME = "deeprm"
    _learner: Learner
    _sets: JobSets
    _simulation: Simulation

    def __init__(
        self,
        config: DeepRMConfig,
        out: str | Path,
        *,
        resume: bool = False,
        device: str = "cpu",
        workers: int | str = 1,
        command: str = "",
    ) -> None:
        self._device, self._workers = check_device(device), check_workers(workers)
        if self._workers != 1 and config.episodes.lockstep is None:
            raise TrainingError(
                "episodes.lockstep: expected a number, such as 5, for several workers: without it all sets run together"
            )
        super().__init__(config, out, resume, command)

    def _make_learner(self) -> Learner:
        config, learner = self.config, Learner(self.config, self._device)
        seed = VALIDATION_SEED + config.seed
        self._sets = config.jobs.draw(learner.grid_config, config.validation.sets, seed)
        for name, jobs in (("training", learner.jobs), ("validation", self._sets)):
            if not jobs.num_jobs.any():
                raise TrainingError(f"the {name} sets have no jobs: more sets, steps or load are needed")
        return learner

    def _begin_with(self, start: str) -> Mapping[str, Any]:
        self._learner.begin_with(Path(start))
        return read_about(Path(start))

    def _iterations(self) -> Generator[dict[str, float], None, None]:
        with Simulation(self.config, self._workers) as self._simulation:
            yield from super()._iterations()

    def _run_heuristics(self) -> dict[str, Any]:
        grid = self._learner.grid_config
        heuristics, found = heuristics_for(grid, self._learner.jobs), dict[str, Any]()
        for name, heuristic in heuristics.items():
            self._tell("heuristics on the validation sets", len(found), len(heuristics))
            found[name] = _means(evaluate(grid, self._sets, {name: heuristic})[name])
        self._tell("heuristics on the validation sets", len(found), len(heuristics))
        return found

    def _clone(self, epochs_done: int) -> Iterator[dict[str, float]]:
        assert self.config.behaviour_cloning is not None
        return self._learner.clone(self.config.behaviour_cloning, epochs_done, self._tell)

    def _learn(self, iteration: int) -> dict[str, float]:
        return self._learner.learn(iteration, self._simulation)

    def _validate(self) -> Validation:
        random = random_stream(self.config.seed, RandomStream.POLICY, VALIDATED)
        network = copy.deepcopy(self._learner.networks["actor"]).cpu()
        actor = Actor(network, random, mask=self.config.episodes.mask)
        means = _means(evaluate(self._learner.grid_config, self._sets, {self.NAME: actor})[self.NAME])
        objective = self._objective(means)
        best = min(map(self._objective, self._reference.values()))
        measured = {f"validation_{name}": value for name, value in means.items()}
        return Validation(objective, abs(best), (best - objective) / abs(best), means, measured)

    def _objective(self, means: Mapping[str, float]) -> float:
        """What is to be small: what is rewarded, utilisation with its sign changed."""
        value = means[self.config.grid.objective]
        return -value if self.config.grid.objective == "utilisation" else value

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


def _means(evaluation: Evaluation) -> dict[str, float]:
    return {name: evaluation.mean(name) for name in MEASURES}
