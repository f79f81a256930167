"""Fit of policies to an evaluation setting: shipped policies that fit it, and quantities out of their distribution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from decima.evaluation.conditions import Conditions
from decima.policy.about import read_trained_on
from decima.policy.distribution import Distribution, Spread, format_quantity, summarise
from decima.policy.shipped import KNOWN_BATCHES_ONLY, SHIPPED, specialists
from simulator.cluster.config import ERRORS

__all__ = [
    "TOLERANCES", "Tolerance", "best_fit", "evaluation_setting", "is_similar", "misfits", "out_of_distribution",
]  # fmt: skip

#: A setting's 95 % quantile may be above the training's by this factor times ``Tolerance.up``. Not measured; generous.
TAIL = 4.0
#: Largest ratio of each quantile between similar distributions. Outer quantiles of a few hundred jobs are noisy.
SIMILARITY = Spread(2.5, 1.4, 2.5)
#: A setting's median load may be below the training's 5 % quantile, or above its 95 % quantile, by this factor, since
#: a training may have streams of several loads.
LOAD_RATIO = 1.1
#: Number of jobs that a summary of a setting uses, enough not to depend on a single sequence.
JOBS = 1000


class Tolerance(NamedTuple):
    """How far outside of its training distribution a policy can be trusted, for one quantity.

    Attributes:
        text: format string of messages.
        down: largest factor by which a setting's median may be below the training's 5 % quantile.
        up: largest factor by which a setting's median may be above the training's 95 % quantile.
        inside: values up to this one are inside any training distribution.
    """

    text: str
    down: float
    up: float
    inside: float = 0.0


#: Quantity of a ``Distribution`` -> its tolerances, from measurements of policies that were trained on TPC-H with 50
#: executors, in batches of 20 or in streams. Percentages are mean JCTs relative to the rule ``srpt`` on the same three
#: sequences. Jobs are embedded TPC-H in batches of 20 and streams 4 s apart, unless stated. Up to about +10 % counts as
#: in distribution; a larger loss, and any value far from the measured ones, is out of distribution.
#:
#: - Executors (trained on 50): batches +12 % on 10, +1 % on 25, -4 % on 100, +4 % on 200; +13 % on 250, +36 % on 500,
#:   +52 % on 5. With published profiles 0 % on 10, +3 % on 200.
#: - Classes: the policy trained on four classes has the same gain on one and two, to within 5 %; policies trained on a
#:   single class are out of distribution with more.
#: - Moving delay (trained on 2 s): batches -1 % at 1 s, +8 % at 0.5 s, +26 % at 0.25 s, +53 % at 0; streams +3 % at
#:   1 s, +18 % at 0.5 s, +107 % at 0. Longer ones, up to 8 s, at most +8 % with all four policies of a single class.
#: - Stages: jobs cut down to one, or eight times as many in a row: no loss above 10 %.
#: - Tasks: a sixteenth to eight times as many, -5 to +13 %. The bounds of work follow from tasks and durations.
#: - Durations: a sixteenth to twice as long: no loss above 10 %; four times +6 % in batches, +27 % in streams; eight
#:   times +28 % and +71 %. Longer tasks act like a shorter moving delay, so ``delay_tasks`` has the inverse bounds. In
#:   training the longest tasks are at least three times as long as the median.
#: - Jobs of a batch (trained on 20): one -10 %, five 0 %, 100 +8 %, 200 +18 %, which is still 18 % below fair.
#: - Load: jobs 60 to 1 s apart, loads of 5 to 300 %, -9 to 0 %.
#: - Errors of estimates: not measured; a policy trained with exact knowledge is out of distribution with errors.
#: - Jobs without history: against ``srpt-tuned``, if a forest predicts the jobs, policies trained with exact knowledge
#:   are 1 to 3 % ahead in batches; in streams ``tpch-stream`` is 1 to 2 % ahead, and ``embedded-stream`` level; with
#:   typical task times up to 20 % behind.
#: - Faults (``decima reproduce faults``, trained without any): with executors lost 12 times an hour, 2 % of attempts
#:   failing or 5 % slower by a factor of four, policies keep their gain over fair sharing.
#: - Capacity (trained on a constant one): from 50 to 10 executors and back every 90 s, ``srpt-tuned`` and the
#:   policies of batches and of streams are 17 to 29 % below fair sharing, as with a constant capacity.
#: - Arrivals: policies of batches and of streams are within 3 % of each other on both, so arrivals are not checked.
TOLERANCES = {
    "executors": Tolerance("{} executors", 5, 4),
    "classes": Tolerance("{} classes of executors", math.inf, 1),
    "moving_delay_s": Tolerance("a moving delay of {} s", 2, 8),
    "stages": Tolerance("jobs have {} stages", 4, 4),
    "tasks": Tolerance("jobs have {} tasks", 4, 4),
    "task_s": Tolerance("tasks take {} s", 8, 1),
    "work_s": Tolerance("jobs have {} s of work", 4, 4),
    "delay_tasks": Tolerance("a move takes as long as {} tasks", 1, 8),
    "jobs": Tolerance("batches of {} jobs", 20, 10),
    "load": Tolerance("a load of {}", math.inf, 10),
    "job_error": Tolerance("estimates of jobs have an error of {}", math.inf, 1.5),
    "stage_error": Tolerance("estimates of stages have an error of {}", math.inf, 1.5),
    "task_count_error": Tolerance("numbers of tasks have an error of {}", math.inf, 1.5),
    "unknown": Tolerance("{} of the jobs have typical task times", math.inf, 1.5),
    "losses_per_hour": Tolerance("executors are lost {} times an hour", math.inf, 2, inside=12),
    "task_failures": Tolerance("{} of the runs fail", math.inf, 2, inside=0.02),
    "straggling": Tolerance("stragglers add {} of the time", math.inf, 2, inside=0.15),
    "absent": Tolerance("{} of the executors come and go", math.inf, 1, inside=0.8),
}


def evaluation_setting(conditions: Conditions, seeds: Iterable[int] | None = None) -> Distribution:
    """Summarise cluster and workload of a comparison as quantiles (number of tasks, task time, load, ...).

    At least one seed; by default the first seeds, even beyond those of experiments.
    """
    if seeds is None:
        return _first_sequences(conditions)
    return summarise((conditions.cluster_of(seed), conditions.sequence(seed)) for seed in seeds)


#: Training objective -> metrics of ``decima compare --show`` for which such a policy is suited.
JUDGED_BY = {
    "misses": ("misses", "tardiness"),
    "deadline": ("tardiness", "misses"),
    "weighted": ("weighted",),
    "power-mean": ("p99", "p95", "worst-slowdown"),
    "fairness": ("unfairness", "jain"),
    "makespan": ("makespan",),
    "carbon": ("carbon",),
}


def best_fit(conditions: Conditions) -> str | None:
    """Return the shipped policy whose training distribution is like the evaluation setting; None if there is none.

    For jobs without history there is a policy only if an estimator predicts them from their DAGs, and only one that is
    not worse than ``srpt-tuned`` then.
    """
    here = evaluation_setting(conditions)
    known_batch = here.arrivals == "batch" and not conditions.cluster.knowledge.unknown
    for name in specialists():
        if name in KNOWN_BATCHES_ONLY and not known_batch:
            continue
        trained = read_trained_on(SHIPPED[name])
        if trained is not None and is_similar(trained, here):
            return name
    return None


def misfits(policy: str | Path, conditions: Conditions, metric: str = "mean") -> list[str]:
    """List the quantities of ``conditions`` that are out of the policy's training distribution.

    Args:
        policy: name of a shipped policy, or a file.
        metric: metric to compare by, a name of ``decima compare --show``.

    Returns:
        One short message per quantity. Empty if all are inside, or if the file does not state its training
        distribution: files of ``decima train`` do, the published Decima weights do not.

    Raises:
        PolicyFileError: the file cannot be read.

    Examples:
        >>> from decima.evaluation.conditions import Conditions
        >>> from decima.evaluation.fit import misfits
        >>> from simulator import ClusterConfig
        >>> from workloads.sources.open import embedded_workload
        >>> cluster = ClusterConfig(num_executors=5000)
        >>> misfits("embedded-batch", Conditions(embedded_workload(), cluster))
        ['5,000 executors, trained on 50']
    """
    here = evaluation_setting(conditions)
    trained = read_trained_on(SHIPPED.get(str(policy), Path(policy)))
    if trained is None:
        return []
    objective = (trained.objective or "").partition(":")[0]
    if metric in JUDGED_BY.get(objective, ()):
        here = here.model_copy(update={"objective": trained.objective})
    return out_of_distribution(trained, here)


def _some_seeds(conditions: Conditions) -> list[int]:
    """Return seeds from the first on with ``JOBS`` jobs in total; an exact sequence has only the experiments' seeds."""
    exact, seeds, jobs = conditions.workload.sequence is not None, [], 0
    for seed in conditions.seeds if exact else itertools.count(conditions.seed):
        seeds.append(seed)
        jobs += len(conditions.sequence(seed))
        if jobs >= JOBS:
            break
    return seeds


@lru_cache(maxsize=8)
def _first_sequences(conditions: Conditions) -> Distribution:
    return evaluation_setting(conditions, _some_seeds(conditions))


def out_of_distribution(trained: Distribution, here: Distribution) -> list[str]:
    """List the quantities of a setting that are out of a policy's training distribution, see ``TOLERANCES``.

    Args:
        trained: training distribution.
        here: evaluation setting.

    Returns:
        One short message per quantity, such as ``"jobs have 28 stages, trained on 2 to 6"``; empty if all are inside.
    """
    messages: dict[str, str] = {}
    for name, tolerance in TOLERANCES.items():
        spread, met = getattr(trained, name), getattr(here, name)
        if spread is None or met is None:  # quantity of batches only or of streams only
            continue
        least, most = spread.low / tolerance.down, max(spread.high * tolerance.up, tolerance.inside)
        if not least <= met.middle <= most:
            messages[name] = _words(name, spread, met.middle)
        elif met.high > TAIL * most:
            messages[name] = f"at times {_words(name, spread, met.high)}"
    if messages.keys() & {"moving_delay_s", "task_s"}:
        messages.pop("delay_tasks", None)  # it has the same cause
    if trained.objective != here.objective:
        messages["objective"] = (
            f"the objective is {here.objective or 'jct'}, trained for {trained.objective or 'jct'}"
        )
    return list(messages.values())


def _words(name: str, trained: Spread, value: float) -> str:
    low, high = format_quantity(name, trained.low), format_quantity(name, trained.high)
    trained_range = low if low == high else f"{low} to {high}"
    return f"{TOLERANCES[name].text.format(format_quantity(name, value))}, trained on {trained_range}"


def is_similar(trained: Distribution, here: Distribution) -> bool:
    """Return whether a setting's quantiles equal those of a training distribution, to within ``SIMILARITY``.

    The load and errors of estimates only have to be within the range of the training. A policy that was trained on
    batches and streams is for both.

    Args:
        trained: training distribution.
        here: evaluation setting.
    """
    if trained.arrivals not in (here.arrivals, "both") or trained.objective != here.objective:
        return False
    for name, spread in trained.spreads():
        met = getattr(here, name)
        if met is None:  # quantity of batches only or of streams only
            continue
        if name in ERRORS:
            if not spread.low <= met.low <= met.high <= spread.high:
                return False
        elif name == "load":
            if not spread.low / LOAD_RATIO <= met.middle <= spread.high * LOAD_RATIO:
                return False
        elif not all(
            quantile / times <= value <= quantile * times
            for quantile, value, times in zip(spread, met, SIMILARITY, strict=True)
        ):
            return False
    return True
