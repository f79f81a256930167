"""Decima, Figure 22: the cost of not knowing task durations, on batches of 20 jobs.

Appendix of the paper: without durations Decima is worse than with them, and still better than the best heuristic; it
knows jobs by their DAGs and numbers of tasks. One training, half an hour.
"""

from __future__ import annotations

import json
from pathlib import Path

import decima
from decima.policy.presets import PROFILED_POLICY
from reproduce.common import Result, plot_means, train

#: Input features of the policy that depend on task durations.
DURATIONS = ["mean_task_ms", "unclaimed_work_ms", "remaining_work_ms", "job_work_ms"]
DURATIONS += ["lasting_executors", "thrifty_executors", "fast_executors"]
SCHEDULERS = ["fair", "tuned-weighted-fair", "decima"]


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    jobs: int = 20,
    seeds: int = 50,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Train a policy without durations, and compare it with the shipped policy of the same recipe.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        jobs: Jobs in a batch.
        seeds: Number of batches.
        seed: Seed of the first batch.
        policies: Folder of the trained policy; a complete training in it is not repeated.
        training: Setting of the training that differs from the recipe, such as iterations=20.
        workers: Processes.
    """
    settings = [
        f"cluster.executors={executors}", f"workload.jobs={jobs}", "policy.preset=profiled", *training
    ]  # fmt: skip
    for kind in ("stage_features", "job_features"):
        features = [
            feature.model_dump(mode="json")
            for feature in getattr(PROFILED_POLICY, kind)
            if feature.name not in DURATIONS
        ]
        settings.append(f"policy.overrides.{kind}={json.dumps(features)}")
    blind = train(policies / "batch-no-durations", "batch", settings, workload, workers)
    runs = decima.compare(
        {**{name: name for name in SCHEDULERS}, "without durations": blind},
        workload=workload,
        executors=executors,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
        workers=workers,
    )
    table = decima.summary_table(runs, against="tuned-weighted-fair")
    return Result({"batches": table}, {"fig22": plot_means(table)})
