"""DeepRM, Figure 6: the learning curve at a load of 70 %.

Section 4.3 of the paper: before training the policy is no better than random; after 200 iterations it is better than
Tetris*; it improves further until it converges, near 1000 iterations. The paper learns from the same 100 job sets in
each iteration, this training from new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from decima.learning import read_metrics
from decima.show import style
from reproduce.common import Result
from reproduce.grid import FORMATS, HEURISTIC_NAMES, TUNED, compare, means, train, training_text

#: Number of iterations after which DeepRM is better than Tetris* in the paper.
PASSES_TETRIS = 200
#: Relative distance to the best value at which a curve counts as converged.
CONVERGED = 0.05
Curve = Sequence[Mapping[str, float]]


def run(
    *,
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train a network for 300 iterations, 9 minutes of CPU time.

    Args:
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained network; a complete training in it is not repeated.
        training: Setting of the training that differs from the recipe, such as iterations=20.
    """
    folder = policies / "deeprm-70-long"
    trained = train(folder, "deeprm", ["jobs.load=0.7", "iterations=300", *training])
    curve = read_metrics(folder / "metrics.jsonl")
    heuristics = {name: float(trained.results[name]["slowdown"]) for name in HEURISTIC_NAMES}
    runs = compare(trained.config, {"deeprm": trained.policy_file}, sets=sets, seed=seed)
    return Result(
        {"means": means(runs, ["slowdown", "completion"]), "claims": pd.DataFrame(claims(curve, heuristics))},
        {"deeprm-fig6": plot(curve, heuristics)},
        {"training": training_text({"deeprm": trained})},
        FORMATS,
    )


def claims(curve: Curve, heuristics: Mapping[str, float]) -> list[dict[str, str]]:
    """Check the claims of the paper with slowdowns on validation sets; a short training cannot decide some of them."""
    slowdown = {
        int(row["iteration"]): row["validation_slowdown"] for row in curve if "validation_slowdown" in row
    }
    last, first, least = max(slowdown), slowdown[min(slowdown)], min(slowdown.values())
    passed = next((name for name, value in slowdown.items() if value < heuristics[TUNED]), None)
    converged = next(name for name, value in slowdown.items() if value <= (1 + CONVERGED) * least)
    is_short = last < PASSES_TETRIS

    def row(paper: str, here: str, holds: bool | None) -> dict[str, str]:
        return {"paper": paper, "here": here, "holds": "?" if holds is None else "yes" if holds else "no"}

    return [
        row(
            "Before training the policy is no better than random.",
            f"slowdown {first:.2f}; random {heuristics['random']:.2f}",
            first >= 0.95 * heuristics["random"],
        ),
        row(
            f"After {PASSES_TETRIS} iterations DeepRM is better than Tetris*.",
            f"{'never' if passed is None else f'after {passed}'} of {last} iterations below Tetris*'s "
            f"{heuristics[TUNED]:.2f}",
            passed <= PASSES_TETRIS if passed is not None else None if is_short else False,
        ),
        row(
            "It improves further until it converges, near 1000 iterations.",
            "it never passed"
            if passed is None
            else f"from {slowdown[passed]:.2f} to {least:.2f}; within {CONVERGED:.0%} of that after {converged}",
            None if is_short else passed is not None and least < (1 - CONVERGED) * slowdown[passed],
        ),
    ]


def plot(curve: Curve, heuristics: Mapping[str, float]) -> Figure:
    """Draw slowdowns on training and validation sets, and the total reward in training, over iterations."""
    figure = style.new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    learned = [row for row in curve if "return" in row]
    deeprm_style = style.styles(["deeprm"])["deeprm"]
    style.draw_curve(left, learned, "slowdown", label="deeprm, training sets", color="0.7")
    style.draw_curve(left, curve, "validation_slowdown", label="deeprm, unseen sets", **deeprm_style)
    for name, look in style.styles(heuristics).items():
        left.axhline(heuristics[name], label=name, **{**look, "linestyle": "--"})
    style.finish_axes(left, xlabel="Iterations", ylabel="Slowdown", ylim=(0, None))
    style.draw_curve(right, learned, "return_best", label="best of each set", color=style.BLUE)
    style.draw_curve(right, learned, "return", label="mean", **deeprm_style)
    style.finish_axes(right, xlabel="Iterations", ylabel="Total reward of an episode")
    right.legend(loc="lower right", **style.LEGEND)
    style.legend_beside(left)
    for axes in (left, right):
        style.count_iterations(axes)
    return figure
