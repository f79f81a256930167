"""What a Spark cluster's own jobs, at the times when they really came, would have taken under other schedulers.

The jobs of event logs run again in the simulator: under what Spark does by itself, and under what it could do. Nobody
knows how long they take exactly, so all of it is simulated many times: each time with other task noise, and with the
durations of each query changed by as much as predictions of the logs' own runs were off (``held_out``). All schedulers
meet the same draws, so that what is uncertain for all of them alike does not blur how they compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.fit import misfits
from decima.evaluation.run import run_scheduler
from decima.outputs import json_text
from decima.registry import LEARNED, policy_named
from decima.studies.held_out import HeldOut
from decima.studies.spark_schedulers import SPARKS_OWN, TRAINING_SEEDS, WEIGHTED_FAIR, as_simulated, tuned
from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence, RandomStream, random_stream
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave
from workloads.scaling import scaled
from workloads.spark.application import SparkApplication
from workloads.spark.importing import SparkImport, median_startup_ms

__all__ = ["SCHEDULERS", "Range", "WhatIf", "cluster_of_logs", "simulate_what_if"]

#: Shown name -> scheduler; others are compared with the better of Spark's own.
SCHEDULERS = {**SPARKS_OWN, **WEIGHTED_FAIR, "priced-srpt": "priced-srpt", LEARNED: LEARNED}
#: Draws that weighted fair sharing is tuned on.
TRAINING = 3
#: Seconds that an executor takes to start where no log tells.
USUAL_STARTUP_MS = 2000.0
#: The middle of the draws that a range holds, percent.
MIDDLE = 95.0


class Range(NamedTuple):
    """A mean over draws, and where 95 % of them lie."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: ArrayLike) -> Range:
        """Of at least one value."""
        drawn = np.asarray(values, dtype=np.float64)
        low, high = np.percentile(drawn, (50 - MIDDLE / 2, 50 + MIDDLE / 2))
        return Range(float(drawn.mean()), float(low), float(high))


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What came out.

    Attributes:
        cluster: on which the jobs ran again.
        jobs: a row for each job in order of arrival, columns ``query`` (str), ``arrival_ms`` and ``measured_ms``
            (float64, from its start to its end in the log; NaN if it did not end).
        jct_ms: scheduler -> float64 [draws, jobs].
        held_out: how far predictions of the logs' own runs were off.
        setting: of weighted fair sharing.
        misfits: what here lies outside of the training of decima's policy.
    """

    cluster: ClusterConfig
    jobs: pd.DataFrame
    jct_ms: Mapping[str, NDArray[np.float64]]
    held_out: HeldOut
    setting: str
    misfits: Sequence[str]

    @property
    def sparks_own(self) -> str:
        """The better of Spark's own schedulers."""
        return min(
            (name for name in self.jct_ms if name in SPARKS_OWN), key=lambda name: self.mean_jct_ms(name).mean
        )

    def mean_jct_ms(self, scheduler: str) -> Range:
        """Average job completion time, ms."""
        return Range.of(self.jct_ms[scheduler].mean(axis=1))

    def change(self, scheduler: str, other: str | None = None) -> Range:
        """By what fraction its average job completion time differs from another's, by default Spark's own."""
        base = self.jct_ms[other or self.sparks_own].mean(axis=1)
        return Range.of(self.jct_ms[scheduler].mean(axis=1) / base - 1)

    def by_query(self) -> pd.DataFrame:
        """A row for each query, indexed by its name, those with most time in them first.

        Columns: ``jobs`` (int64), ``measured_s``, and the mean JCT under each scheduler, float64, s.
        """
        table = self.jobs.assign(**{name: jct.mean(axis=0) for name, jct in self.jct_ms.items()})
        groups = table.groupby("query")
        means = groups[["measured_ms", *self.jct_ms]].mean() / 1000
        result = means.rename(columns={"measured_ms": "measured_s"}).assign(jobs=groups.size())
        total = result["jobs"] * result[self.sparks_own]
        return result.loc[total.sort_values(ascending=False).index, ["jobs", "measured_s", *self.jct_ms]]

    def to_json(self, **extra: Any) -> str:
        """All of it as JSON, seconds; ``extra`` is added as it is."""
        error, bias = self.held_out.error, self.held_out.bias
        content = {
            **extra,
            "executors": self.cluster.num_executors,
            "moving_delay_s": self.cluster.moving_delay_ms / 1000,
            "draws": len(next(iter(self.jct_ms.values()))),
            "held_out": {
                "runs": len(self.held_out.runs),
                "error": error.mean,
                "bias": bias.mean,
            },
            "sparks_own": self.sparks_own,
            "weighted_fair": self.setting,
            "outside_training": list(self.misfits),
            "schedulers": {
                name: {
                    "avg_jct_s": self.mean_jct_ms(name).mean / 1000,
                    "avg_jct_range_s": [value / 1000 for value in self.mean_jct_ms(name)[1:]],
                    "change": self.change(name).mean,
                    "change_range": list(self.change(name)[1:]),
                }
                for name in self.jct_ms
            },
            "jobs": [
                {
                    "query": query,
                    "arrival_s": arrival_ms / 1000,
                    "measured_s": measured_ms / 1000,
                    "predicted_s": {
                        name: float(jct[:, job].mean()) / 1000 for name, jct in self.jct_ms.items()
                    },
                }
                for job, (query, arrival_ms, measured_ms) in enumerate(
                    zip(*(self.jobs[name].tolist() for name in self.jobs), strict=True)
                )
            ],
        }
        return json_text(content)


def cluster_of_logs(
    applications: Sequence[SparkApplication],
    executors: int | None = None,
    moving_delay_ms: float | None = None,
) -> ClusterConfig:
    """The cluster that the applications ran on.

    Args:
        applications: of one cluster.
        executors: task slots; by default the most that were there at a time.
        moving_delay_ms: what it takes to give a slot to another job, ms. By default nothing where one application ran
            all jobs; else the median of what executors took to start.

    Raises:
        CompareError: the logs tell of no executor.
    """
    count = executors or _most_slots(applications)
    if count == 0:
        raise CompareError("the logs tell of no executor: --executors says how many there were")
    delay_ms = moving_delay_ms
    if delay_ms is None:
        startup_ms = median_startup_ms(applications)
        usual_ms = USUAL_STARTUP_MS if math.isnan(startup_ms) else startup_ms
        delay_ms = 0.0 if len(applications) == 1 else usual_ms
    if delay_ms == 0:
        return ClusterConfig(count, moving_delay_ms=0.0, warmup_delay_ms=0.0)
    return ClusterConfig(count, moving_delay_ms=delay_ms)


def _most_slots(applications: Sequence[SparkApplication]) -> int:
    changes = []
    for app in applications:
        for each in app.executors:
            begins = each.registered_ms if math.isfinite(each.registered_ms) else app.start_ms
            ends = each.removed_ms if math.isfinite(each.removed_ms) else app.end_ms
            changes.append((begins, each.slots))
            if math.isfinite(ends):
                changes.append((ends, -each.slots))
    held = most = 0
    for _, change in sorted(changes):  # who leaves goes before who comes at the same moment
        held += change
        most = max(most, held)
    return most


def simulate_what_if(
    imported: SparkImport,
    held_out: HeldOut,
    cluster: ClusterConfig,
    schedulers: Mapping[str, str] = SCHEDULERS,
    num_draws: int = 20,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> WhatIf:
    """Run the jobs of event logs again.

    Args:
        imported: the logs, with arrivals.
        held_out: how far predictions of their runs were off.
        cluster: which they run on.
        schedulers: shown name -> scheduler; one of Spark's own at least.
        num_draws: simulations of each, at least 1.
        seed: of the first one.
        tell: told how many simulations are done, and of how many.

    Raises:
        CompareError: the workload lacks arrivals, a scheduler fails, or none is Spark's own.
    """
    sequence = imported.workload.sequence
    if sequence is None:
        raise CompareError("the logs were imported without arrivals")
    if not set(schedulers) & set(SPARKS_OWN):
        raise CompareError(f"one of the schedulers must be {' or '.join(SPARKS_OWN)}")
    if cluster.moving_delay_ms == 0:
        sequence = replace(sequence, profiles=tuple(map(_on_warm_executors, sequence.profiles)))
    errors = (held_out.runs["measured_ms"] / held_out.runs["predicted_ms"]).to_numpy(dtype=np.float64)
    total, done = num_draws * len(schedulers), 0
    training = (_drawn(sequence, errors, TRAINING_SEEDS + draw) for draw in range(TRAINING))
    specs, setting = tuned(schedulers, cluster, training)
    jct_ms = {name: np.empty((num_draws, len(sequence))) for name in specs}
    for draw in range(num_draws):
        jobs = _drawn(sequence, errors, seed + draw)
        for name, spec in specs.items():
            simulated, of_simulator = as_simulated(cluster, name, spec)
            jct_ms[name][draw] = run_scheduler(simulated, jobs, of_simulator).jct_ms
            done += 1
            tell(done, total)
    conditions = Conditions(imported.workload, cluster, num_experiments=1)
    policies = [policy for spec in specs.values() if (policy := policy_named(spec)) is not None]
    outside = [text for policy in policies for text in misfits(policy, conditions)]
    return WhatIf(cluster, _as_measured(imported), jct_ms, held_out, setting, outside)


@cache
def _on_warm_executors(profile: JobProfile) -> JobProfile:
    """The same job where executors need no new JVM for it: none of its tasks is a fresh executor's, if others ran."""
    return replace(profile, stages=tuple(map(_warm, profile.stages)))


def _warm(stage: StageProfile) -> StageProfile:
    first, rest = (stage.durations.table(wave) for wave in (Wave.FIRST, Wave.REST))
    if not any(len(durations) for table in (first, rest) for durations in table.values()):
        return stage
    known = ({level: each.tolist() for level, each in table.items()} for table in (first, rest))
    return replace(stage, durations=TaskDurations.from_tables({}, *known, mean_ms=stage.durations.mean_ms))


def _drawn(sequence: JobSequence, errors: NDArray[np.float64], seed: int) -> JobSequence:
    """The jobs as they may have been: each query slower or faster than the model by an error that was seen."""
    if not len(errors):
        return replace(sequence, seed=seed)
    random = random_stream(seed, RandomStream.MODEL_ERRORS)
    changed: dict[JobProfile, JobProfile] = {}
    for profile in sequence.profiles:
        if profile not in changed:
            changed[profile] = scaled(profile, durations=float(random.choice(errors)))
    return replace(sequence, profiles=tuple(changed[profile] for profile in sequence.profiles), seed=seed)


def _as_measured(imported: SparkImport) -> pd.DataFrame:
    """The jobs in the order of the sequence."""
    sequence = imported.workload.sequence
    assert sequence is not None
    names = [profile.name for profile in sequence.profiles]
    return pd.DataFrame(
        {"query": names, "arrival_ms": sequence.arrival_ms, "measured_ms": imported.measured_ms}
    )
