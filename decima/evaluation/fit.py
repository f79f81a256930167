"""Fit of policies to an evaluation setting: shipped policies that fit it, and quantities out of their distribution."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from decima.evaluation.conditions import Conditions
from decima.policy.distribution import (
    QUANTITIES,
    Distribution,
    DistributionQuantity,
    Spread,
    format_quantity,
    read_trained_on,
    summarise,
)
from decima.policy.shipped import BATCHES_ONLY, SHIPPED, specialists
from simulator.cluster.config import ERRORS

__all__ = ["best_fit", "evaluation_setting", "is_similar", "misfits", "out_of_distribution"]

#: A setting's 95 % quantile may be above the training's by this factor times ``Quantity.up``. Not measured; generous.
TAIL = 4.0
#: Largest ratio of each quantile between similar distributions. Outer quantiles of a few hundred jobs are noisy.
SIMILARITY = Spread(2.5, 1.4, 2.5)
#: Number of jobs that a summary of a setting uses, enough not to depend on a single sequence.
JOBS = 1000


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
    """Return the shipped policy whose training distribution is like the evaluation setting; None if there is none."""
    here = evaluation_setting(conditions)
    for name in specialists():
        trained = read_trained_on(SHIPPED[name])
        is_meant = here.arrivals == "batch" or name not in BATCHES_ONLY
        if trained is not None and is_meant and is_similar(trained, here):
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
    return _misfits(policy, evaluation_setting(conditions), metric)


def _misfits(policy: str | Path, here: Distribution, metric: str = "mean") -> list[str]:
    trained = read_trained_on(SHIPPED.get(str(policy), Path(policy)))
    return [] if trained is None else out_of_distribution(trained, _judged(here, trained, metric))


def _judged(here: Distribution, trained: Distribution, metric: str) -> Distribution:
    """Return the evaluation setting with the training objective, if such a policy is suited for the metric."""
    objective = (trained.objective or "").partition(":")[0]
    if metric in JUDGED_BY.get(objective, ()):
        return here.model_copy(update={"objective": trained.objective})
    return here


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
    """List the quantities of a setting that are out of a policy's training distribution, see ``QUANTITIES``.

    Args:
        trained: training distribution.
        here: evaluation setting.

    Returns:
        One short message per quantity, such as ``"jobs have 28 stages, trained on 2 to 6"``; empty if all are inside.
    """
    messages: dict[str, str] = {}
    for quantity in QUANTITIES:
        spread, met = getattr(trained, quantity.name), getattr(here, quantity.name)
        if spread is None or met is None:  # quantity of batches only or of streams only
            continue
        least, most = spread.low / quantity.down, max(spread.high * quantity.up, quantity.inside)
        if not least <= met.middle <= most:
            messages[quantity.name] = _words(quantity, spread, met.middle)
        elif met.high > TAIL * most:
            messages[quantity.name] = f"at times {_words(quantity, spread, met.high)}"
    if messages.keys() & {"moving_delay_s", "task_s"}:
        messages.pop("delay_tasks", None)  # it has the same cause
    if trained.objective != here.objective:
        messages["objective"] = (
            f"the objective is {here.objective or 'jct'}, trained for {trained.objective or 'jct'}"
        )
    return list(messages.values())


def _words(quantity: DistributionQuantity, trained: Spread, value: float) -> str:
    low, high = format_quantity(quantity, trained.low), format_quantity(quantity, trained.high)
    trained_range = low if low == high else f"{low} to {high}"
    return f"{quantity.text.format(format_quantity(quantity, value))}, trained on {trained_range}"


def is_similar(trained: Distribution, here: Distribution) -> bool:
    """Return whether a setting's quantiles equal those of a training distribution, to within ``SIMILARITY``.

    Errors of estimates only have to be within the range of the training. A policy that was trained on batches and
    streams is for both.

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
        elif not all(
            quantile / times <= value <= quantile * times
            for quantile, value, times in zip(spread, met, SIMILARITY, strict=True)
        ):
            return False
    return True
