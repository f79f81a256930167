"""Check whether an evaluation setting lies inside a policy's training distribution."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from decima.evaluation.conditions import Conditions
from decima.policy.distribution import Distribution, is_similar, out_of_distribution, summarise
from decima.policy.files import read_trained_on
from decima.policy.shipped import SHIPPED, default_policies, specialists

__all__ = ["best_fit", "evaluation_setting", "misfits"]

#: Number of jobs from which a setting is summarised, so that it does not depend on a single sequence.
JOBS = 200


def evaluation_setting(conditions: Conditions, seeds: Iterable[int] | None = None) -> Distribution:
    """Summarise cluster and workload of a comparison as quantiles (number of tasks, task time, load, ...).

    Args:
        conditions: clusters and their jobs.
        seeds: seeds of the sequences, at least one; by default the first ones, whether these are experiments or not.
    """
    seeds = _some_seeds(conditions) if seeds is None else seeds
    return summarise((conditions.cluster_of(seed), conditions.sequence(seed)) for seed in seeds)


def best_fit(conditions: Conditions) -> tuple[str, list[str]] | None:
    """Return the shipped policy that fits best and what is out of its training distribution; None if none ships.

    A specialist goes first where the conditions are those of its training; elsewhere it is not considered.
    """
    here = evaluation_setting(conditions)
    for name in specialists():
        trained = read_trained_on(SHIPPED[name])
        if trained is not None and is_similar(trained, here):
            return name, []
    names = default_policies(len(conditions.cluster.executor_classes))
    found = [(name, _misfits(name, here)) for name in names]
    return min(found, key=lambda pair: len(pair[1]), default=None)


def misfits(policy: str | Path, conditions: Conditions) -> list[str]:
    """List the quantities of ``conditions`` that are out of the policy's training distribution.

    Args:
        policy: name of a shipped policy, or a file.
        conditions: evaluation setting, see :func:`evaluation_setting`.

    Returns:
        One short message per quantity. Empty if all are inside, or if the file does not state its training
        distribution: files of ``decima train`` do, the published Decima weights do not.

    Raises:
        PolicyFileError: the file cannot be read.

    Example:
        >>> from decima.evaluation.conditions import Conditions
        >>> from decima.evaluation.fit import misfits
        >>> from simulator import ClusterConfig
        >>> from workloads.sources.tpch import embedded_workload
        >>> cluster = ClusterConfig(num_executors=5000)
        >>> misfits("general", Conditions(embedded_workload(), cluster))
        ['5,000 executors, trained on 6 to 164']
    """
    return _misfits(policy, evaluation_setting(conditions))


def _misfits(policy: str | Path, here: Distribution) -> list[str]:
    trained = read_trained_on(SHIPPED.get(str(policy), Path(policy)))
    return [] if trained is None else out_of_distribution(trained, here)


def _some_seeds(conditions: Conditions) -> list[int]:
    """The first seeds until there are enough jobs; an exact sequence has no seeds but those of the experiments."""
    exact, found, jobs = conditions.workload.sequence is not None, [], 0
    for seed in conditions.seeds if exact else itertools.count(conditions.seed):
        found.append(seed)
        jobs += len(conditions.sequence(seed))
        if jobs >= JOBS:
            break
    return found
