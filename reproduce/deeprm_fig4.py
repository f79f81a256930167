"""DeepRM, Figure 4: mean slowdown of jobs against the load, with one network trained at each load.

Section 4.2 of the paper, which has pictures only: shortest job first (SJF) performs better than Packer, Tetris*
combines the advantages of both, and DeepRM is comparable to and often better than all heuristics, mainly at high loads.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import decima
from decima.show.grid_report import best_scheduler, plot_by_load
from reproduce.common import Result
from reproduce.grid import HEURISTIC_NAMES, TUNED, claim, compare, compare_by, load_name, train, training_text


def run(
    *,
    load: tuple[float, ...] = (10, 30, 50, 70, 90, 110, 130, 150, 170, 184.5),
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train a network at each load, and compare it with heuristics on unseen job sets; 72 minutes of CPU time.

    Args:
        load: Load in percent; 184.5 is the highest that a job in every step gives.
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained networks; complete trainings in it are not repeated.
        training: Setting of all trainings that differs from the recipe, such as iterations=20.
    """
    trainings, parts = {}, []
    for share in (percent / 100 for percent in load):
        settings = [f"jobs.load={share!r}", *training]
        trained = train(policies / f"deeprm-{100 * share:g}", "deeprm", settings)
        trainings[load_name(share)] = trained
        networks = {"deeprm": trained.policy_file}
        parts.append(compare(trained.config, networks, sets=sets, seed=seed, name=load_name(share)))
    runs = pd.concat(parts, ignore_index=True)
    compared = compare_by(runs)
    best = [name for name, row in compared.items() if best_scheduler(row, "slowdown") == "deeprm"]
    claims = [
        claim("SJF performs better than Packer.", runs, "sjf", ["packer"]),
        claim("Tetris* outperforms both by combining their advantages.", runs, TUNED, ["sjf", "packer"]),
        {
            "paper": "DeepRM is comparable to and often better than all heuristics.",
            "here": f"the best at {len(best)} of {len(compared)} loads: {', '.join(best) or 'none'}",
            "holds": "yes" if 2 * len(best) > len(compared) else "no",
        },
    ]
    high = runs[runs["condition"].isin([load_name(percent / 100) for percent in load if percent > 100])]
    if not high.empty:
        claims.append(claim("DeepRM beats Tetris* at higher loads.", high, "deeprm", [TUNED]))
    names = [*HEURISTIC_NAMES, "deeprm"]
    means = decima.summary_table(runs, metrics=["slowdown"], by=["condition"])
    table = means.pivot_table(["slowdown", "slowdown_ci95"], "condition", "scheduler").loc[list(compared)]
    columns = {f"{name}{part}": table[f"slowdown{part}", name] for name in names for part in ("", "_ci95")}
    slowdowns = pd.DataFrame(columns).rename_axis("load").reset_index()
    picture = plot_by_load(
        {percent / 100: compared[load_name(percent / 100)] for percent in load}, "slowdown"
    )
    return Result(
        {"slowdown": slowdowns, "claims": pd.DataFrame(claims)},
        {"deeprm-fig4": picture},
        {"training": training_text(trainings)},
        dict.fromkeys(names, ".2f"),
    )
