"""Experiments: schedulers that meet the same job sequence and the same task noise.

An experiment is one seed. Every scheduler asked for runs the seed's sequence once; the two tuned ones run
``weighted-fair:ALPHA`` with an alpha of the sweep -2, -1.9, .., 2 (Decima, section 7.1):

* ``weighted-fair`` uses the alpha that was best, by average JCT, over separate *training* sequences.
* ``tuned-weighted-fair`` uses the alpha that turns out best on the very sequence it is judged on. That is the
  paper's strongest baseline; it has hindsight that no scheduler could have.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from decima.policy.shipped import default_policy
from decima.registry import LEARNED, make_scheduler
from simulator import ClusterConfig, EpisodeRecord, run_episode
from workloads import JobSequence, Workload, batch_arrivals, poisson_arrivals
from workloads.errors import DecimaError

__all__ = [
    "ALPHAS",
    "HINDSIGHT",
    "PAPER_SCHEDULERS",
    "TUNED_ONCE",
    "CompareError",
    "Experiment",
    "ExperimentSettings",
    "Run",
    "run_experiment",
    "sweep_alphas",
]

#: The alphas that the two tuned schedulers choose from.
ALPHAS: tuple[float, ...] = tuple(tenths / 10 for tenths in range(-20, 21))
TUNED_ONCE = "weighted-fair"
HINDSIGHT = "tuned-weighted-fair"
#: The classic schedulers that the Decima paper compares with and this project has.
PAPER_SCHEDULERS = ("fifo", "sjf-cp", "fair", "naive-weighted-fair", TUNED_ONCE, HINDSIGHT)
#: Training seeds start here above the experiments' seeds; fewer experiments keep the two apart.
TRAINING_OFFSET = 1_000_000


class CompareError(DecimaError, ValueError):
    """A comparison that cannot be made. The message is one line."""


@dataclass(frozen=True, eq=False)
class ExperimentSettings:
    """What is compared, on what.

    Args:
        workload: profiles to draw jobs from, or an exact sequence. An exact sequence is replayed as it is,
            with the task noise of each experiment's seed; ``arrivals``, ``interval_ms`` and ``num_jobs`` then
            have no meaning.
        cluster: the cluster; its episodes must end when all jobs are complete.
        schedulers: names for ``decima.schedulers.make_scheduler``, or one of the two tuned ones above. Plain
            ``decima`` follows ``policy``.
        arrivals: all jobs at time 0, or a Poisson process.
        interval_ms: mean time between Poisson arrivals, ms.
        num_jobs: jobs in each sequence.
        num_experiments: seeds ``seed``, ``seed + 1``, .. that the schedulers are compared on.
        num_training: sequences that ``weighted-fair`` is tuned on; their seeds begin at ``seed + 1,000,000``.
        seed: the first seed.
        policy: name or file of the policy that ``decima`` follows; by default the one that ships and was trained on
            what is most like these experiments.

    Raises:
        CompareError: a number out of range, no schedulers, or one of them twice.
        SchedulerError: an unknown scheduler.
        WorkloadError: no jobs can be drawn.
    """

    workload: Workload
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    schedulers: tuple[str, ...] = PAPER_SCHEDULERS
    arrivals: Literal["batch", "poisson"] = "batch"
    interval_ms: float = 25_000.0
    num_jobs: int = 20
    num_experiments: int = 20
    num_training: int = 6
    seed: int = 0
    policy: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedulers", tuple(self.schedulers))
        if self.arrivals not in ("batch", "poisson"):
            raise CompareError(f"arrivals must be 'batch' or 'poisson', got {self.arrivals!r}")
        if not 1 <= self.num_experiments <= TRAINING_OFFSET:
            raise CompareError(f"between 1 and {TRAINING_OFFSET} experiments, got {self.num_experiments}")
        if self.num_training < 1:
            raise CompareError(f"tuning needs at least one training sequence, got {self.num_training}")
        if not math.isinf(self.cluster.max_time_ms):
            raise CompareError("schedulers are compared on complete episodes, leave max_time_ms infinite")
        self._check_schedulers()
        self.sequence(self.seed)

    @property
    def seeds(self) -> range:
        """The experiments' seeds."""
        return range(self.seed, self.seed + self.num_experiments)

    @property
    def training_seeds(self) -> range:
        """The seeds to tune ``weighted-fair`` on; empty where it does not take part."""
        first = self.seed + TRAINING_OFFSET
        return range(first, first + self.num_training if TUNED_ONCE in self.schedulers else first)

    def sequence(self, seed: int) -> JobSequence:
        """The jobs of one seed."""
        return self.draw(seed, self.interval_ms)

    def draw(self, seed: int, interval_ms: float) -> JobSequence:
        """The jobs of one seed, if they arrive as far apart."""
        if self.workload.sequence is not None:
            return replace(self.workload.sequence, seed=seed)
        if self.arrivals == "poisson":
            return poisson_arrivals(self.workload.profiles, self.num_jobs, interval_ms, seed)
        return batch_arrivals(self.workload.profiles, self.num_jobs, seed)

    @property
    def learned_policy(self) -> str:
        """Name or file of the policy that ``decima`` follows."""
        return self.policy or default_policy(self.workload, self.arrivals)

    def spec(self, scheduler: str) -> str:
        """One of the schedulers as ``make_scheduler`` wants it."""
        return f"{LEARNED}:{self.learned_policy}" if scheduler == LEARNED else scheduler

    def _check_schedulers(self) -> None:
        if not self.schedulers:
            raise CompareError("name at least one scheduler")
        for place, name in enumerate(self.schedulers):
            if name in self.schedulers[:place]:
                raise CompareError(f"the scheduler {name} is named twice")
            if name not in (TUNED_ONCE, HINDSIGHT):
                make_scheduler(self.spec(name), self.seed)


@dataclass(frozen=True, eq=False)
class Run:
    """One scheduler on one sequence.

    Attributes:
        jct_ms: float64 [num_jobs], ms.
        makespan_ms: last completion - first arrival, ms.
        utilisation: busy executor time over executors x makespan.
        alpha: the alpha that a tuned scheduler ran with.
    """

    jct_ms: NDArray[np.float64]
    makespan_ms: float
    utilisation: float
    alpha: float | None = None


@dataclass(frozen=True, eq=False)
class Experiment:
    """One seed.

    Attributes:
        seed: of the sequence and its noise.
        runs: by scheduler, as named in the settings.
        records: the whole episodes by scheduler, if they were asked for.
    """

    seed: int
    runs: Mapping[str, Run]
    records: Mapping[str, EpisodeRecord] | None = None


def run_experiment(
    settings: ExperimentSettings, seed: int, alpha: float | None, *, keep_records: bool = False
) -> Experiment:
    """Run all schedulers on the sequence of ``seed``; no alpha runs twice.

    Args:
        settings: what to run.
        seed: names the sequence and its noise.
        alpha: what ``weighted-fair`` uses, if it takes part.
        keep_records: whether the result carries the episodes.

    Raises:
        CompareError: a scheduler failed; names it, the seed and the reason.
    """
    sequence = settings.sequence(seed)
    fixed = {
        name: _weighted_fair(alpha) if name == TUNED_ONCE else settings.spec(name)
        for name in settings.schedulers
    }
    fixed.pop(HINDSIGHT, None)
    records = {name: _run(settings, sequence, spec) for name, spec in fixed.items()}
    alphas = {TUNED_ONCE: alpha}
    if HINDSIGHT in settings.schedulers:
        known = {spec: records[name] for name, spec in fixed.items()}
        alphas[HINDSIGHT], records[HINDSIGHT] = _best_alpha(settings, sequence, known)
    runs = {
        name: Run(
            records[name].jct_ms, records[name].makespan_ms, records[name].utilisation, alphas.get(name)
        )
        for name in settings.schedulers
    }
    return Experiment(seed, runs, records if keep_records else None)


def sweep_alphas(settings: ExperimentSettings, seed: int) -> NDArray[np.float64]:
    """Average JCT of ``weighted-fair`` with each of ``ALPHAS`` on one seed's sequence, float64 [41], ms."""
    sequence = settings.sequence(seed)
    return np.array([_run(settings, sequence, _weighted_fair(alpha)).mean_jct_ms for alpha in ALPHAS])


def _best_alpha(
    settings: ExperimentSettings, sequence: JobSequence, known: Mapping[str, EpisodeRecord]
) -> tuple[float, EpisodeRecord]:
    """The alpha with the lowest average JCT; the lowest alpha on a tie."""
    candidates = (
        (alpha, known.get(spec) or _run(settings, sequence, spec))
        for alpha, spec in zip(ALPHAS, map(_weighted_fair, ALPHAS), strict=True)
    )
    return min(candidates, key=lambda candidate: candidate[1].mean_jct_ms)


def _weighted_fair(alpha: float | None) -> str:
    return f"weighted-fair:{alpha:g}"


def _run(settings: ExperimentSettings, sequence: JobSequence, spec: str) -> EpisodeRecord:
    """One episode; whatever a scheduler may raise becomes one line that says which scheduler it was."""
    try:
        return run_episode(settings.cluster, sequence, make_scheduler(spec, sequence.seed))
    except DecimaError as error:
        raise CompareError(f"{spec} on seed {sequence.seed}: {error}") from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        raise CompareError(f"{spec} on seed {sequence.seed}: {reason}") from error
