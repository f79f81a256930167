"""Chen, Xu and Wu, Figure 2: a convolution, the reshaped state and other reward weights, against DeepRM's network.

The paper (arXiv 1711.07440, 2017) changes DeepRM, and says that each change improves on it; it has pictures only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from decima.learning import read_metrics
from decima.settings import TrainingError
from decima.show.style import count_iterations, draw_curve, finish_axes, legend_beside, new_axes, styles
from reproduce.common import Result
from reproduce.grid import FORMATS, claim, compare, means, train, training_text

#: Settings of the recipe ``cnn`` that give the network of DeepRM: no convolution, and its order of the state.
FLAT = ("network.filters=0", "network.reshape=false")
#: Network -> settings that differ from the recipe.
NETWORKS = {"deeprm": FLAT, "cnn": ("network.reshape=false",), "cnn, reshaped": ()}


def run(
    *,
    weights: tuple[str, ...] = ("1,1,2", "0.5,1,1"),
    load: float = 70.0,
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train each network at loads of 70 to 130 %, and compare them with heuristics; 23 minutes of CPU time.

    Args:
        weights: Weights in the reward of jobs on the machine, in the visible slots and in the backlog, with DeepRM's
            network.
        load: Load of the unseen job sets in percent.
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained networks; complete trainings in it are not repeated.
        training: Setting of all trainings that differs from the recipe, such as iterations=20.
    """
    trainings, curves = {}, {}
    networks = dict(NETWORKS)
    for text in weights:
        if text.count(",") != 2:
            raise TrainingError(f"--weights {text}: expected three numbers, such as 1,1,2")
        machine, queue, backlog = text.split(",")
        reward = (
            f"grid.machine_weights=[{machine}]",
            f"grid.queue_weight={queue}",
            f"grid.backlog_weight={backlog}",
        )
        networks[f"weights {machine}, {queue}, {backlog}"] = (*FLAT, *reward)
    for name, settings in networks.items():
        folder = policies / f"cnn-fig2-{name.replace(', ', '-').replace(' ', '-')}"
        trainings[name] = train(folder, "cnn", [*settings, *training])
        curves[name] = read_metrics(folder / "metrics.jsonl")
    files = {name: trained.policy_file for name, trained in trainings.items()}
    runs = compare(trainings["cnn, reshaped"].config, files, sets=sets, seed=seed, load=load / 100)
    claims = [claim(f"{name}: improves on DeepRM.", runs, name, ["deeprm"]) for name in [*networks][1:]]
    return Result(
        {"means": means(runs, ["slowdown", "completion"]), "claims": pd.DataFrame(claims)},
        {"cnn-fig2": plot(curves)},
        {"training": training_text(trainings)},
        FORMATS,
    )


def plot(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw the slowdown on validation sets over iterations, one line for each network."""
    figure, axes = new_axes(7, 4)
    for name, look in styles(curves).items():
        draw_curve(axes, curves[name], "validation_slowdown", label=name, **look)
    finish_axes(axes, xlabel="Iterations", ylabel="Slowdown on unseen sets", ylim=(0, None))
    count_iterations(axes)
    legend_beside(axes)
    return figure
