"""Chen, Xu and Wu, Figure 3: a network for two machines, whose actions are pairs of a visible job and a machine.

The paper (arXiv 1711.07440, 2017) says that it is better than shortest job first and Packer; it has pictures only.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from decima.show.grid_report import plot_bars
from reproduce.common import Result
from reproduce.grid import FORMATS, claim, compare, compare_by, means, train, training_text


def run(
    *,
    load: float = 70.0,
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train the network, and compare it with heuristics on unseen job sets; 8 minutes of CPU time.

    Args:
        load: Load of both machines in percent.
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained network; a complete training in it is not repeated.
        training: Setting of the training that differs from the recipe, such as iterations=20.
    """
    settings = [f"jobs.load={load / 100!r}", "grid.machines=2", *training]
    trained = train(policies / "cnn-fig3", "cnn", settings)
    runs = compare(trained.config, {"cnn": trained.policy_file}, sets=sets, seed=seed)
    metrics = ["slowdown", "completion"]
    claims = [claim("On two machines it is better than SJF and Packer.", runs, "cnn", ["sjf", "packer"])]
    return Result(
        {"means": means(runs, metrics), "claims": pd.DataFrame(claims)},
        {"cnn-fig3": plot_bars(compare_by(runs), metrics)},
        {"training": training_text({"cnn": trained})},
        FORMATS,
    )
