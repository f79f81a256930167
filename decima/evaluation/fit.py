"""Whether a policy fits the conditions of a comparison: are they like what it was trained on?"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from decima.evaluation.conditions import Conditions
from decima.policy.files import read_trained_on
from decima.policy.shipped import SHIPPED, default_policies, specialists
from decima.policy.surroundings import Surroundings, alike, measure, outside

__all__ = ["best_fit", "met_by", "misfits", "surroundings"]

#: Conditions are judged by as many sequences as have so many jobs: what fits must not hang on a draw.
JOBS = 200


def surroundings(conditions: Conditions, seeds: Iterable[int]) -> Surroundings:
    """What a policy meets there.

    Args:
        conditions: clusters and their jobs.
        seeds: of the sequences that are looked at, at least one.
    """
    return measure((conditions.cluster_of(seed), conditions.sequence(seed)) for seed in seeds)


def best_fit(conditions: Conditions) -> tuple[str, list[str]] | None:
    """The policy that ships and fits best, and what of the conditions it was not trained on; none if none ships.

    A specialist goes first where the conditions are what it was trained on; elsewhere it is not asked.
    """
    met = met_by(conditions)
    for name in specialists():
        trained = read_trained_on(SHIPPED[name])
        if trained is not None and alike(trained, met):
            return name, []
    names = default_policies(len(conditions.cluster.executor_classes))
    found = [(name, _misfits(name, met)) for name in names]
    return min(found, key=lambda pair: len(pair[1]), default=None)


def misfits(policy: str | Path, conditions: Conditions) -> list[str]:
    """What of the conditions lies outside of what a policy was trained on, in a few words each.

    Nothing does where the policy fits, or where its file does not say what it was trained on: files of ``decima train``
    do, the published Decima weights do not.

    Args:
        policy: the name of one that ships, or a file.
        conditions: where it is to decide. Their first sequences are looked at, whether these are experiments or not.

    Raises:
        PolicyFileError: the file cannot be read.

    Example:
        >>> from decima.evaluation.conditions import Conditions
        >>> from decima.evaluation.fit import misfits
        >>> from simulator import ClusterConfig
        >>> from workloads.sources.tpch_measured import embedded_workload
        >>> cluster = ClusterConfig(num_executors=5000)
        >>> misfits("general", Conditions(embedded_workload(), cluster))
        ['5,000 executors, trained on 6 to 164']
    """
    return _misfits(policy, met_by(conditions))


def _misfits(policy: str | Path, met: Surroundings) -> list[str]:
    trained = read_trained_on(SHIPPED.get(str(policy), Path(policy)))
    return [] if trained is None else outside(trained, met)


def met_by(conditions: Conditions) -> Surroundings:
    """What any policy meets in a comparison: the first sequences, whether these are experiments or not."""
    return surroundings(conditions, _some_seeds(conditions))


def _some_seeds(conditions: Conditions) -> list[int]:
    """The first ones, until there are jobs enough; there are no others than the experiments' in an exact sequence."""
    exact, found, jobs = conditions.workload.sequence is not None, [], 0
    for seed in conditions.seeds if exact else itertools.count(conditions.seed):
        found.append(seed)
        jobs += len(conditions.sequence(seed))
        if jobs >= JOBS:
            break
    return found
