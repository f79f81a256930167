"""DeepRM, Figure 5: networks trained for slowdown and for completion time, at a load of 130 %.

Section 4.2 of the paper, which has pictures only: Tetris* outperforms the other heuristics, and DeepRM is the best on
each objective when it is trained for it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from decima.show.grid_report import plot_bars
from reproduce.common import Result
from reproduce.grid import FORMATS, TUNED, claim, compare, compare_by, means, train, training_text

HEURISTICS = ("sjf", "packer", TUNED)
#: Metric -> network trained for it.
NETWORKS = {"slowdown": "deeprm, for slowdown", "completion": "deeprm, for completion"}


def run(
    *,
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train both networks, and compare them with heuristics on unseen job sets; 14 minutes of CPU time.

    The training for completion time begins with the other network: from random weights, the same number of iterations
    does not find the small gain of withholding long jobs.

    Args:
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained networks; complete trainings in it are not repeated.
        training: Setting of both trainings that differs from the recipe, such as iterations=20.
    """
    settings = ["jobs.load=1.3", *training]
    slowdown = train(policies / "deeprm-130", "deeprm", settings)
    other = [f"start={slowdown.policy_file}", "grid.objective=completion", "update.learning_rate=0.002"]
    completion = train(policies / "deeprm-130-completion", "deeprm", [*settings, *other])
    trainings = dict(zip(NETWORKS.values(), (slowdown, completion), strict=True))
    networks = {name: trained.policy_file for name, trained in trainings.items()}
    runs = compare(slowdown.config, networks, HEURISTICS, sets=sets, seed=seed)
    claims = [claim("Tetris* outperforms the other heuristics on slowdown.", runs, TUNED, ["sjf", "packer"])]
    for metric, name in NETWORKS.items():
        other_schedulers = [scheduler for scheduler in (*HEURISTICS, *networks) if scheduler != name]
        claims.append(
            claim(
                f"DeepRM is the best on {metric} when trained for it.", runs, name, other_schedulers, metric
            )
        )
    metrics = list(NETWORKS)
    return Result(
        {"means": means(runs, metrics), "claims": pd.DataFrame(claims)},
        {"deeprm-fig5": plot_bars(compare_by(runs), metrics)},
        {"training": training_text(trainings)},
        FORMATS,
    )
