"""Look up objectives by name, such as ``jct``, ``power-mean:3`` or ``jct+0.5*deadline:60``."""

from __future__ import annotations

import importlib
import math
from functools import lru_cache

from simulator.cluster.objectives.base import LiveJobs, Objective
from simulator.cluster.objectives.carbon import Carbon
from simulator.cluster.objectives.deadline import Deadline
from simulator.cluster.objectives.fairness import Fairness
from simulator.cluster.objectives.makespan import Makespan
from simulator.cluster.objectives.mean import Mean
from simulator.cluster.objectives.misses import Misses
from simulator.cluster.objectives.power_mean import PowerMean
from simulator.cluster.objectives.weighted import Weighted
from workloads.custom import custom_code, is_custom
from workloads.errors import ConfigError, did_you_mean, number_in

__all__ = ["OBJECTIVES", "Sum", "objective_named"]

#: Names of objectives and their classes.
OBJECTIVES: dict[str, type[Objective]] = {
    "jct": Mean,
    "mean": Mean,
    "makespan": Makespan,
    "weighted": Weighted,
    "power-mean": PowerMean,
    "deadline": Deadline,
    "misses": Misses,
    "fairness": Fairness,
    "carbon": Carbon,
}
#: Objectives that take a number after their name.
WITH_NUMBER = ("power-mean", "deadline", "misses")
#: The objective that takes the name of a signal.
WITH_SIGNAL = "carbon"


class Sum(Objective):
    """Weighted sum of objectives.

    Args:
        terms: pairs of factor and objective, at least one.
    """

    def __init__(self, terms: tuple[tuple[float, Objective], ...]) -> None:
        self.terms = terms
        self.attributes = frozenset().union(*(each.attributes for _, each in terms))
        self.uses_carbon = any(each.uses_carbon for _, each in terms)
        self.signal = next((each.signal for _, each in terms if each.signal is not None), None)

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the sum of the objectives' costs, each times its factor."""
        return sum(factor * each.cost_ms(begin_ms, end_ms, jobs, scale_ms) for factor, each in self.terms)


@lru_cache(maxsize=64)
def objective_named(text: str) -> Objective:
    """Return the objective with a name, such as ``jct``; results are cached.

    Args:
        text: a name in ``OBJECTIVES``, some with an argument after a colon, such as ``weighted``, ``power-mean:3``,
            ``deadline:60`` or ``carbon:FILE:60``; ``module:Class`` for a custom subclass of ``Objective`` (also from
            the current folder), which is built without arguments; or a sum with factors: ``jct+0.5*deadline:60``.

    Raises:
        ConfigError: the name is unknown, the class cannot be used, or a number is malformed or out of range.
    """
    terms = []
    for term in text.split("+"):
        factor, star, name = term.rpartition("*")
        terms.append((_number(text, factor) if star else 1.0, _objective(text, name.strip())))
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Sum(tuple(terms))


def _objective(text: str, term: str) -> Objective:
    name, colon, argument = term.partition(":")
    if is_custom(term) and name not in OBJECTIVES:
        return _custom(text, name, argument)
    if name == WITH_SIGNAL and (argument or not colon):
        return Carbon(argument or None)
    if name not in OBJECTIVES or (colon and name not in WITH_NUMBER):
        arguments = dict.fromkeys(WITH_NUMBER, ":NUMBER") | {WITH_SIGNAL: "[:FILE]"}
        known = ", ".join(each + arguments.get(each, "") for each in OBJECTIVES)
        near = did_you_mean(name, OBJECTIVES) if name not in OBJECTIVES else ""
        raise ConfigError(
            f"reward {text!r}: unknown objective {term!r}{near}, expected {known}, module:Class, or a sum of these"
        )
    try:
        return OBJECTIVES[name](_number(text, argument)) if colon else OBJECTIVES[name]()  # type: ignore[call-arg]
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"reward {text!r}: {term}: {error}") from None


def _custom(text: str, module: str, name: str) -> Objective:
    with custom_code(f"reward {text!r}: {module}:{name} cannot be used", ConfigError):
        found = getattr(importlib.import_module(module), name)
        if not (isinstance(found, type) and issubclass(found, Objective)):
            raise TypeError(f"expected a subclass of {Objective.__module__}.Objective")
        return found()


def _number(text: str, number: str) -> float:
    if not 0 <= (value := number_in(number)) < math.inf:
        raise ConfigError(f"reward {text!r}: expected a number of at least 0, got {number!r}")
    return value
