"""Jobs of queries that never ran: a network that has not seen the queries, against the best rule.

Queries are divided into folds. For each fold, a network learns from the jobs of the other folds, in batches by the
recipe ``batch``, then in streams by the recipe ``search``, and a forest is fitted to the same jobs. Then jobs of the
fold arrive, and the forest predicts the times of their stages for all schedulers. In the last rows of a table,
schedulers know the mean task times exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import decima
from decima.evaluation.metrics import ci95
from reproduce.common import Result, batches_and_streams, pick, train
from simulator.cluster.config import ClusterConfig
from simulator.cluster.estimator_file import write_estimator
from simulator.cluster.known import known_profile
from simulator.cluster.predictor import predictor_of, template_keys, templates
from workloads import JobProfile, write_workload
from workloads.errors import WorkloadError

RULE, NETWORK = "srpt-tuned", "network"
#: Intervals between the jobs of the streams in training, relative to those in the comparison.
INTERVALS = (1.0, 1.3)


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    batch_jobs: int = 20,
    stream_jobs: int = 80,
    interval: float = 5.0,
    folds: int = 3,
    restarts: int = 4,
    iterations: int | None = None,
    search_iterations: int = 40,
    seeds: int = 20,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    workers: int = 1,
) -> Result:
    """Train networks for each fold, and compare them with the rule on batches and on streams of the fold's queries.

    Args:
        workload: Jobs: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Number of executors.
        batch_jobs: Number of jobs in a batch.
        stream_jobs: Number of jobs in a stream.
        interval: Mean seconds between the jobs of a stream.
        folds: Number of folds of the queries.
        restarts: Number of trainings that begin for each fold; the best of them continues.
        iterations: Iterations of a training in batches; by default those of the recipe.
        search_iterations: Iterations of the search in streams that follows.
        seeds: Number of batches and of streams.
        seed: Seed of the first batch and stream.
        policies: Folder of the trained policies; complete trainings in it are not repeated.
        workers: Number of processes.
    """
    jobs = decima.open_workload(workload)
    fold = folds_of(jobs.profiles, folds)
    cluster = [f"cluster.executors={executors}"]
    in_batches = [*cluster, f"restarts.seeds={restarts}"]
    in_batches += [] if iterations is None else [f"iterations={iterations}"]
    in_streams = [
        *cluster,
        f"iterations={search_iterations}",
        f"workload.interval={[factor * interval for factor in INTERVALS]}",
    ]
    arrivals = batches_and_streams(batch_jobs, stream_jobs, interval)
    parts, minutes, queries = [], [], []
    folder = policies / "unseen"
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(folds):
        mine, others = folder / f"fold-{index}.json.gz", folder / f"others-{index}.json.gz"
        unseen, seen = pick(jobs.profiles, fold == index), pick(jobs.profiles, fold != index)
        queries.append(", ".join(dict.fromkeys(job.name.rpartition("-")[0] for job in unseen)))
        write_workload(mine, replace(jobs, name=f"fold {index}", profiles=unseen))
        write_workload(others, replace(jobs, name=f"all but fold {index}", profiles=seen))
        estimator = folder / f"estimator-{index}.npz"
        fit_estimator(estimator, seen, executors)
        first, second = folder / f"training-{index}", folder / f"search-{index}"
        network = train(first, "batch", in_batches, str(others), workers)
        start = f"start={network.removeprefix('decima:')}"
        networks = {
            "batches": network,
            "streams": train(second, "search", [*in_streams, start], str(others), workers),
        }
        minutes.append([cpu_minutes(first), cpu_minutes(second)])
        knowledge = {"forest": {"unknown": 1.0, "estimator": str(estimator)}, "exact": {}}
        for known, (name, setting) in product(knowledge, arrivals.items()):
            runs = decima.compare(
                {RULE: RULE, NETWORK: networks[name]},
                workload=str(mine),
                executors=executors,
                seeds=seeds,
                seed=seed,
                workers=workers,
                knowledge=knowledge[known],
                **setting,
            )
            parts.append(runs.assign(arrivals=name, known=known, fold=index))
    runs = pd.concat(parts)
    tables = {name: table(group) for name, group in runs.groupby("arrivals", sort=False)}
    tables["folds"] = pd.DataFrame({"fold": range(folds), "queries": queries})
    batch_minutes, search_minutes = np.mean(minutes, axis=0)
    values = {"minutes of a training": f"{batch_minutes:.0f}", "minutes of a search": f"{search_minutes:.0f}"}
    return Result(tables, values=values, formats={"fold": "", f"vs {RULE}": "+.1%"})


def folds_of(profiles: Sequence[JobProfile], folds: int) -> NDArray[np.int64]:
    """Divide the queries into folds at random; return the fold of each job, int64 [profiles].

    All sizes of a query are in one fold.

    Raises:
        WorkloadError: there are fewer queries than folds.
    """
    query = np.array(templates([template_keys(profile)[:1] for profile in profiles]))
    count = int(query.max()) + 1
    if count < folds:
        raise WorkloadError(f"{count} queries: expected at least {folds}, one for each fold")
    parts = np.array_split(np.random.default_rng(0).permutation(count), folds)
    fold: NDArray[np.int64] = np.argmax([np.isin(query, part) for part in parts], axis=0)
    return fold


def cpu_minutes(folder: Path) -> float:
    """Return the CPU time of a training, minutes."""
    return float(pd.read_json(folder / "metrics.jsonl", lines=True)["cpu_s"].iloc[-1]) / 60


def fit_estimator(path: Path, profiles: Sequence[JobProfile], executors: int) -> None:
    """Fit a forest to the task times of jobs on a number of executors, and write it to a file.

    Raises:
        WorkloadError: the jobs are too few.
    """
    cluster = ClusterConfig(executors)
    predictor = predictor_of(
        tuple(known_profile(profile, cluster) for profile in profiles), also_dag_only=True
    )
    if predictor is None:
        raise WorkloadError(f"{len(profiles)} jobs of a fold's other queries: too few to fit an estimator to")
    write_estimator(path, predictor)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean JCTs of rule and network, and their relative difference, paired by sequence.

    There is a row for each fold and kind of knowledge, and one over all folds.
    """
    rows = []
    for known, group in runs.groupby("known", sort=False):
        for fold, own in [*group.groupby("fold"), ("all", group)]:
            jct_s = own.pivot_table("mean_jct_s", ["fold", "seed"], "scheduler")
            difference = decima.paired_change(jct_s[NETWORK], jct_s[RULE])
            rows.append(
                {
                    "task times": known,
                    "fold": str(fold),
                    RULE: jct_s[RULE].mean(),
                    NETWORK: jct_s[NETWORK].mean(),
                    f"vs {RULE}": difference.mean,
                    ci95(f"vs {RULE}"): difference.half_width,
                }
            )
    return pd.DataFrame(rows)
