"""Random restarts: trainings with different seeds run the first iterations, and the best one continues.

This is one round of successive halving (Jamieson and Talwalkar, 2016, "Non-stochastic best arm identification and
hyperparameter optimization").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from decima.learning.loop import CHECKPOINT
from decima.learning.metrics import METRICS_FILE
from decima.learning.metrics_file import read_metrics
from decima.learning.resume import load_checkpoint
from decima.settings import SEEDS, TRAINING, Progress

if TYPE_CHECKING:
    from decima.learning.checkpoint import Checkpoint
    from decima.learning.cluster.sections import RestartsSection
    from decima.learning.cluster.train import ClusterTraining

__all__ = ["begin", "iterations_of", "seeds_of"]

#: Name of the folder of the restarts.
RESTARTS = "restarts"


def iterations_of(restarts: RestartsSection, iterations: int) -> int:
    """Return the number of iterations of each restart, at least 1, from that of the whole training."""
    return max(1, round(restarts.share * iterations))


def seeds_of(restarts: RestartsSection, seed: int) -> list[int]:
    """Return the seeds of the restarts, evenly spaced among all seeds; the first is ``seed``."""
    return [(seed + index * (SEEDS // restarts.seeds)) % SEEDS for index in range(restarts.seeds)]


def begin(
    training: ClusterTraining, make: Callable[..., ClusterTraining], progress: Progress
) -> list[dict[str, float]]:
    """Run the restarts of a training, each in its own folder, and continue the training from the best one.

    Args:
        make: makes a training from settings, folder and command; it continues a training that is there already.

    Returns:
        Metrics of the iterations of the best one.

    Raises:
        KeyboardInterrupt: Ctrl-C; the restarts keep their checkpoints.
    """
    config, restarts = training.config, training.config.restarts
    assert restarts is not None
    until = iterations_of(restarts, config.iterations)

    def show(number: int, phase: str, done: int, total: int) -> None:
        if phase == TRAINING:
            phase, total = f"training {number} of {restarts.seeds}", until
        progress(phase, done, total)

    checkpoints: list[Checkpoint] = []
    folders = [training.out / RESTARTS / str(index) for index in range(restarts.seeds)]
    for number, (folder, seed) in enumerate(zip(folders, seeds_of(restarts, config.seed), strict=True), 1):
        own = config.model_copy(update={"seed": seed, "restarts": None})
        command = training.command and f"{training.command} --set restarts=null --set seed={seed}"
        # All have the same validation sequences.
        reference = checkpoints[0].reference if checkpoints else None
        restart = make(own, folder, command=command)
        if restart.run(on_progress=partial(show, number), until=until, reference=reference).interrupted:
            raise KeyboardInterrupt
        checkpoints.append(load_checkpoint(folder / CHECKPOINT))
    improvements = [-inf if each.best is None else each.best.improvement for each in checkpoints]
    best = improvements.index(max(improvements))
    training.restore(checkpoints[best].learner)
    cpu_s = sum(each.cpu_s for each in checkpoints)
    training.continue_from(replace(checkpoints[best], config=config.model_dump(mode="json"), cpu_s=cpu_s))
    return read_metrics(folders[best] / METRICS_FILE)
