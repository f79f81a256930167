"""Figures 2 and 3 of Chen, Xu and Wu (arXiv 1711.07440, 2017): changes to DeepRM, and two machines.

What is known of the paper's results here is what its abstract says; its figures are not quoted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from decima.evaluation.grid import HEURISTIC_NAMES
from decima.evaluation.grid_comparison import LEARNED
from decima.learning.metrics import read_metrics
from decima.show.grid_report import load_name, plot_bars
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from decima.studies.grid.compared import Measured, better, compared
from decima.studies.grid.study import GridStudy
from decima.studies.outcome import Outcome

__all__ = ["fig2", "fig3"]

#: alpha, beta, gamma: of jobs on machines, in the visible slots, in the backlog.
Weights = tuple[float, float, float]

#: DeepRM's network on the recipe's grid.
FLAT = {"network__filters": 0, "network__reshape": False}
MEASURES = ("slowdown", "completion")
#: Of all machines.
LOAD = 0.7


def fig2(study: GridStudy, weights: Sequence[Weights]) -> Outcome:
    """Compare a convolution, the reshaped state, and other reward weights, each with DeepRM.

    Args:
        study: size and surroundings.
        weights: reward weights, each tried with DeepRM's own network.
    """
    variants: dict[str, dict[str, Any]] = {
        LEARNED: FLAT,
        "cnn": {"network__reshape": False},
        "cnn, reshaped": {},
    }
    for each in weights:
        alpha, beta, gamma = each
        variants[f"weights {_text(each)}"] = {
            **FLAT,
            "grid__machine_weights": [alpha],
            "grid__queue_weight": beta,
            "grid__backlog_weight": gamma,
        }
    configs = {
        f"cnn-fig2-{name.replace(', ', '-').replace(' ', '-')}": study.config("cnn", **settings)
        for name, settings in variants.items()
    }
    files = study.train(configs)
    networks = dict(zip(variants, files.values(), strict=True))
    learned = next(iter(configs.values()))
    config = study.config("cnn", jobs__load=LOAD)
    results = study.compare({"": study.conditions(config, networks)})
    curves = {name: read_metrics(path.parent / "metrics.jsonl") for name, path in networks.items()}
    return compared(
        "cnn-fig2",
        [Measured(f"Load {load_name(LOAD)}, {config.grid.visible_jobs} visible jobs", results, MEASURES)],
        [
            better(f"{name}: improves on DeepRM.", results, name, [LEARNED])
            for name in variants
            if name != LEARNED
        ],
        [
            "weights A, B, C: of jobs on the machine, in the visible slots and in the backlog in the reward, with "
            "DeepRM's network.",
            f"All learned at loads of {', '.join(map(load_name, learned.jobs.loads(learned.grid.build())))}.",
            "Without a convolution the reshaped state has the same inputs in another order, which makes no difference.",
            "The paper: these changes improve on DeepRM; it gives pictures.",
        ],
        networks,
        {"cnn-fig2": partial(plot_curves, curves)},
        extra={"learning_curves": curves},
    )


def fig3(study: GridStudy) -> Outcome:
    """Compare a network for two machines with heuristics."""
    config = study.config("cnn", jobs__load=LOAD, grid__machines=2)
    networks = {"cnn": study.train({"cnn-fig3": config})["cnn-fig3"]}
    results = study.compare({"": study.conditions(config, networks, HEURISTIC_NAMES)})
    return compared(
        "cnn-fig3",
        [Measured(f"Two machines, load {load_name(LOAD)}", results, MEASURES)],
        [
            better("On two machines it is better than SJF and Packer.", results, "cnn", ["sjf", "packer"]),
        ],
        ["Its actions are pairs of a visible job and a machine. The paper gives pictures."],
        networks,
        {"cnn-fig3": partial(plot_bars, results, MEASURES)},
    )


def plot_curves(curves: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Draw the slowdown on unseen sets over the iterations, a line for each network."""
    figure, axes = new_axes(7, 4)
    for name, look in styles(list(curves)).items():
        judged = [row for row in curves[name] if "validation_slowdown" in row]
        iterations = [row["iteration"] for row in judged]
        axes.plot(iterations, [row["validation_slowdown"] for row in judged], label=name, **look)
    finish_axes(axes, xlabel="Iterations", ylabel="Slowdown on unseen sets", ylim=(0, None))
    legend_beside(axes)
    return figure


def _text(weights: Weights) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)
