"""Whether a policy that only watched should take charge: criteria, and what its gain would have been.

The jobs of the log are simulated again at their real arrival times, with their measured task durations: in Spark's own
order, which shows how far the simulation is from the measured times, and under the policy. The time of a job includes
the time that its driver plans before the first stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from decima.evaluation.conditions import CompareError
from decima.evaluation.episodes import run_scheduler
from decima.schedulers.spark import SparkFair, SparkFifo
from decima.service.replay import Replayed
from simulator.cluster.config import SPARK, ClusterConfig, Knowledge
from simulator.cluster.episode import run_episode
from workloads.arrivals import trace_arrivals

__all__ = ["Criterion", "Readiness", "assess"]

#: Minimum number of answers with decisions.
MIN_DECISIONS = 1_000
#: Maximum share of late and lost answers.
MOST_MISSED = 0.001
#: Maximum relative difference of the mean JCT in the simulation of Spark's own order from the measured one.
MOST_ERROR = 0.15
#: Minimum reduction of the mean JCT.
MIN_GAIN = 0.05
#: What the policy knows of the jobs: their durations, as with a history, and nothing but what has finished.
KNOWLEDGE = {"known": Knowledge(), "unknown": Knowledge(unknown=1.0, estimator="typical")}


class Criterion(NamedTuple):
    """A condition for taking charge; ``text`` has the figure and its limit."""

    text: str
    is_met: bool


@dataclass(frozen=True)
class Readiness:
    """Criteria of a policy for taking charge. As text: one line with the answer and all figures."""

    criteria: tuple[Criterion, ...]

    @property
    def is_ready(self) -> bool:
        """Whether all criteria are met."""
        return all(criterion.is_met for criterion in self.criteria)

    def __str__(self) -> str:
        """Return the answer and the criteria, those that are not met first."""
        ordered = sorted(self.criteria, key=lambda criterion: criterion.is_met)
        parts = [f"{criterion.text} ({'ok' if criterion.is_met else 'NOT MET'})" for criterion in ordered]
        return f"Ready to take charge? {'Yes' if self.is_ready else 'No'}: {'; '.join(parts)}."


def assess(
    replays: Sequence[Replayed], num_decisions: int, num_failed: int, missed_share: float | None
) -> Readiness | None:
    """Return the readiness of a policy; None if it was not in shadow mode.

    Args:
        replays: drivers of a log.
        num_decisions: number of answers with decisions.
        num_failed: number of questions at which the policy failed.
        missed_share: share of late and lost answers as the drivers count; None if they do not report them.
    """
    shadows = [replay for replay in replays if replay.is_shadow]
    if not shadows:
        return None
    missed = "unknown, as their plugin does not report it" if missed_share is None else f"{missed_share:.2%}"
    return Readiness(
        (
            Criterion(
                f"answers with decisions: {num_decisions}, at least {MIN_DECISIONS}",
                num_decisions >= MIN_DECISIONS,
            ),
            Criterion(
                f"late or lost for the drivers: {missed}, at most {MOST_MISSED:.1%}",
                missed_share is not None and missed_share <= MOST_MISSED,
            ),
            Criterion(f"failures of the policy: {num_failed}, at most 0", not num_failed),
            *_simulated(shadows),
        )
    )


def _simulated(shadows: Sequence[Replayed]) -> tuple[Criterion, Criterion]:
    """Return the criteria on the error of the simulation and on the gain of the policy."""
    measured_ms: list[float] = []
    own_ms: dict[str, list[float]] = {"FIFO": [], "FAIR": []}
    policy_ms: dict[str, list[float]] = {name: [] for name in KNOWLEDGE}
    scheduler = shadows[-1].scheduler
    try:
        for replay in shadows:
            kept, profiles = [], []
            for job, (profile, is_complete) in enumerate(replay.measured_profiles()):
                if is_complete and profile is not None:
                    kept.append(job)
                    profiles.append(profile)
            if not kept:
                continue
            measured_ms.extend(replay.record.jct_ms[kept].tolist())
            planning_ms = replay.planning_ms[kept]
            arrival_ms = replay.record.sequence.arrival_ms[kept] + planning_ms
            order = np.argsort(arrival_ms, kind="stable")
            sequence = trace_arrivals(
                [profiles[job] for job in order], arrival_ms[order] - arrival_ms.min(), 0
            )
            cluster = ClusterConfig(
                replay.record.config.num_executors, moving_delay_ms=0.0, warmup_delay_ms=0.0
            )
            sparks_own = {
                "FIFO": SparkFifo([replay.adaptive[kept[job]] for job in order]),
                "FAIR": SparkFair(),
            }
            for name, rule in sparks_own.items():
                record = run_episode(replace(cluster, semantics=SPARK), sequence, rule)
                own_ms[name].extend((record.jct_ms + planning_ms[order]).tolist())
            for name, knowledge in KNOWLEDGE.items():
                record = run_scheduler(replace(cluster, knowledge=knowledge), sequence, scheduler)
                policy_ms[name].extend((record.jct_ms + planning_ms[order]).tolist())
    except CompareError as failure:
        return Criterion(f"no simulation: {failure}", False), Criterion("gain: unknown", False)
    if not measured_ms:
        return Criterion("no simulation: no job is complete", False), Criterion("gain: unknown", False)
    measured = float(np.mean(measured_ms))
    means = {name: float(np.mean(jct_ms)) for name, jct_ms in own_ms.items()}
    nearest = min(means, key=lambda name: abs(means[name] - measured))
    own = means[nearest]
    error = own / measured - 1
    gains = {name: 1 - float(np.mean(jct_ms)) / own for name, jct_ms in policy_ms.items()}
    return (
        Criterion(
            f"simulated Spark {nearest}, {error:+.1%} from the measured mean JCT of {measured / 1000:.1f} s of "
            f"{len(measured_ms)} jobs, at most {MOST_ERROR:.0%}",
            abs(error) <= MOST_ERROR,
        ),
        Criterion(
            f"mean JCT that {scheduler} would have saved: {gains['known']:.1%} with known task times, "
            f"{gains['unknown']:.1%} without any, at least {MIN_GAIN:.0%}",
            min(gains.values()) >= MIN_GAIN,
        ),
    )
