"""Random restarts: trainings with different seeds run the first iterations, and the best one continues.

This is one round of successive halving (Jamieson and Talwalkar, 2016, "Non-stochastic best arm identification and
hyperparameter optimization").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decima.learning.loop import CHECKPOINT
from decima.learning.metrics import METRICS_FILE
from decima.learning.metrics_file import read_metrics
from decima.learning.resume import load_checkpoint
from decima.settings import SEEDS, TRAINING, DivergedError, Progress

if TYPE_CHECKING:
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

    A restart that diverges is out.

    Args:
        make: makes a training from settings, folder and command; it continues a training that is there already.

    Returns:
        Metrics of the iterations of the best one.

    Raises:
        DivergedError: all restarts diverge.
        KeyboardInterrupt: Ctrl-C; the restarts keep their checkpoints.
    """
    config, restarts = training.config, training.config.restarts
    assert restarts is not None
    until = iterations_of(restarts, config.iterations)

    def show(number: int, phase: str, done: int, total: int) -> None:
        if phase == TRAINING:
            phase, total = f"training {number} of {restarts.seeds}", until
        progress(phase, done, total)

    reference: dict[str, Any] | None = None
    improvements: dict[Path, float] = {}
    cpu_s = 0.0
    for number, seed in enumerate(seeds_of(restarts, config.seed), 1):
        folder = training.out / RESTARTS / str(number - 1)
        own = config.model_copy(update={"seed": seed, "restarts": None})
        command = training.command and f"{training.command} --set restarts=null --set seed={seed}"
        restart = make(own, folder, command=command)
        try:
            result = restart.run(on_progress=partial(show, number), until=until, reference=reference)
        except DivergedError:
            if number == restarts.seeds and not improvements:
                raise
        else:
            if result.interrupted:
                raise KeyboardInterrupt
            improvements[folder] = result.improvement
            # All have the same validation sequences.
            reference = load_checkpoint(folder / CHECKPOINT).reference
        cpu_s += restart.cpu_s
    best = max(improvements, key=improvements.__getitem__)
    checkpoint = load_checkpoint(best / CHECKPOINT)
    training.restore(checkpoint.learner)
    training.continue_from(replace(checkpoint, config=config.model_dump(mode="json"), cpu_s=cpu_s))
    return read_metrics(best / METRICS_FILE)
