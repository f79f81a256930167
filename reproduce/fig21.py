"""Decima, Figure 21: Decima against the best order of jobs, on batches of simplified jobs.

Appendix "Optimality of Decima" of the paper: moves are free and all tasks of a stage take equally long, so that only
the order of the jobs matters. The best order found by a search is better than shortest job first along the critical
path, which is better than tuned weighted fair sharing; Decima is 9 % below the best order. One training, 28 minutes,
and an hour of search.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import decima
from decima.schedulers.order_search import OrderSearch, search_orders
from reproduce.common import Result, change, plot_means, train
from workloads import Workload, simplified, write_workload

#: Candidate exponents of weighted fair sharing. The best one of these jobs is below the paper's range, -2 to 2.
ALPHAS = [tenths / 10 for tenths in range(-40, 21)]
TUNED, BEST = "tuned-weighted-fair", "best order"


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    jobs: int = 10,
    orders: int = 1000,
    seeds: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Search the best order of the jobs of each batch, train a policy, and compare.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        jobs: Jobs in a batch.
        orders: Most orders that the search of a batch runs, for each of two ways to serve them.
        seeds: Number of batches.
        seed: Seed of the first batch.
        policies: Folder of the trained policy, and of the workload file with the simplified jobs.
        training: Setting of the training that differs from the recipe, such as iterations=20.
        workers: Processes.
    """
    file = policies / "simplified.json.gz"
    policies.mkdir(parents=True, exist_ok=True)
    write_workload(file, Workload(tuple(map(simplified, decima.open_workload(workload).profiles))))
    size = [f"cluster.executors={executors}", f"workload.jobs={jobs}", "cluster.moving_delay=0"]
    policy = train(policies / "simplified", "batch", [*size, *training], str(file), workers)
    setting = decima.make_conditions(
        workload=file, executors=executors, jobs=jobs, moving_delay=0.0, seeds=seeds, seed=seed
    )
    schedulers = {name: name for name in ("fifo", "sjf-cp", "fair", TUNED, "srpt")}
    comparison = decima.Comparison(setting, {**schedulers, "decima": policy}, alphas=ALPHAS)
    comparison.run(workers)
    searches = {
        seed: [
            search_orders(setting.sequence(seed), executors, ahead=ahead, max_evaluations=orders)
            for ahead in (True, False)
        ]
        for seed in setting.seeds
    }
    best_ms = {seed: min(search.mean_jct_ms for search in pair) for seed, pair in searches.items()}
    comparison.add(BEST, {seed: mean_ms / 1000 for seed, mean_ms in best_ms.items()})
    table = decima.summary_table(comparison.runs, TUNED)
    values = {"decima vs best order": change(comparison.runs, "decima", BEST), **searched(searches, best_ms)}
    return Result({"batches": table}, {"fig21": plot_means(table)}, values)


def searched(searches: dict[int, list[OrderSearch]], best_ms: dict[int, float]) -> dict[str, str]:
    """Return how far the best orders found are from the best ones, by lower bounds of the search."""
    lowest_ms = pd.Series(
        {seed: min(search.lower_bound_ms for search in pair) for seed, pair in searches.items()}
    )
    gaps = (1 - lowest_ms / pd.Series(best_ms)).clip(lower=0)
    count = np.mean([sum(search.num_evaluated for search in pair) for pair in searches.values()])
    return {
        "orders run for a batch": f"{count:.0f}",
        "batches with a proven best order": f"{(gaps == 0).sum()} of {len(gaps)}",
        "most that an order could be better": f"{gaps.max():.1%}",
        "mean that an order could be better": f"{gaps.mean():.1%}",
    }
