"""Table of the jobs of a comparison, one row per job and scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from decima.evaluation.conditions import Conditions
from decima.evaluation.run import EpisodeResult
from simulator.cluster.deadlines import deadlines_ms

__all__ = ["job_table"]


def job_table(
    conditions: Conditions, schedulers: list[str], results: Sequence[tuple[str, int, EpisodeResult]]
) -> pd.DataFrame:
    """Return the measured values of jobs; for the columns see ``Comparison.measured_jobs``.

    Args:
        conditions: cluster and jobs.
        schedulers: names, the categories of the column ``scheduler``.
        results: scheduler, seed and result of each episode, in the order of the rows; empty for an empty table.
    """
    if not results:
        return pd.DataFrame()
    names, seeds, episodes = zip(*results, strict=True)
    sequences = {seed: conditions.sequence(seed) for seed in dict.fromkeys(seeds)}
    settings, sizes = [episode.setting for episode in episodes], [episode.jct_ms.size for episode in episodes]
    jct_ms = np.concatenate([episode.jct_ms for episode in episodes])
    table = pd.DataFrame(
        {
            "scheduler": pd.Categorical(names, schedulers).repeat(sizes),
            "setting": pd.Categorical(settings).repeat(sizes),
            "seed": np.repeat(seeds, sizes),
            "job": np.concatenate([np.arange(size) for size in sizes]),
            "query": pd.Categorical([profile.name for seed in seeds for profile in sequences[seed].profiles]),
            "arrival_s": np.concatenate([sequences[seed].arrival_ms for seed in seeds]) / 1000,
            "jct_s": jct_ms / 1000,
        }
    )
    if any(sequence.attributes for sequence in sequences.values()):
        deadline_ms = {
            seed: deadlines_ms(sequence, conditions.cluster_of(seed)) for seed, sequence in sequences.items()
        }
        tenants = [job.tenant for seed in seeds for job in sequences[seed].attributes]
        table["weight"] = np.concatenate([sequences[seed].weight for seed in seeds])
        table["tenant"] = pd.Categorical(tenants)
        table["deadline_s"] = np.concatenate([deadline_ms[seed] for seed in seeds]) / 1000
        late_s = (table["arrival_s"] + table["jct_s"] - table["deadline_s"]).clip(lower=0.0)
        table["tardiness_s"] = late_s.where(np.isfinite(table["deadline_s"]))
    return table
