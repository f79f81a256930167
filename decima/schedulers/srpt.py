"""Shortest remaining work first, with limits by a price of executors: ``srpt``, and ``srpt-tuned`` with weights.

On executors of one class the rules decide as described in ``priced_srpt`` and ``adaptive_srpt``, on several classes
as in ``packed_srpt``.
"""

from __future__ import annotations

from typing import Any

from decima.schedulers.adaptive_srpt import ADAPTIVE_WEIGHTS, FULL_EFFECT, AdaptiveSrpt
from decima.schedulers.base import Rule, Scheduler
from decima.schedulers.packed_srpt import PACKED_WEIGHTS, AdaptivePackedSrpt, PackedConstants, PackedSrpt
from decima.schedulers.priced_srpt import PricedConstants, PricedSrpt
from simulator.cluster.observation import Decision, Observation

__all__ = ["CONSTANTS", "WEIGHTS", "Srpt", "TunedSrpt"]

#: Default of each constant, by name.
CONSTANTS = PackedConstants()._asdict() | PricedConstants()._asdict()
#: Default of each weight, by name; those that only matter on several executor classes begin with ``classes.``
WEIGHTS = ADAPTIVE_WEIGHTS | {f"classes.{name}": weight for name, weight in PACKED_WEIGHTS.items()}


class Srpt(Scheduler):
    """Shortest remaining work first; each job is limited to its useful parallelism at the price of executors.

    Args:
        jitter: standard deviation of the noise on the logarithms of order and limits at each decision, on executors of
            one class.
        constants: ``CONSTANTS``, positive.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    def __init__(self, jitter: float = 0.0, **constants: float) -> None:
        self._one_class: PricedSrpt = PricedSrpt(
            jitter, **_known(PricedConstants, constants, PackedConstants)
        )
        self._classes: AdaptivePackedSrpt = PackedSrpt(**_known(PackedConstants, constants, PricedConstants))

    def decide(self, observation: Observation) -> Decision | None:
        """Choose a job's next stage, or with several executor classes a stage."""
        return self._rule(observation).decide(observation)

    def ask(self, observation: Observation) -> Rule:
        """Return the decision without jitter, each job's limit and each stage's distance from the decision."""
        return self._rule(observation).ask(observation)

    def _rule(self, observation: Observation) -> PricedSrpt | AdaptivePackedSrpt:
        return self._one_class if len(observation.classes) == 1 else self._classes


class TunedSrpt(Srpt):
    """``srpt`` whose constants, order and limits depend on state, jobs and stages, by weights of a search.

    Args:
        jitter: as for ``Srpt``.
        full_effect: positive number of executors from which on weights have their full effect.
        constants: ``CONSTANTS``, positive, and ``WEIGHTS``.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    learned = True

    def __init__(self, jitter: float = 0.0, full_effect: float = FULL_EFFECT, **constants: float) -> None:
        weights = {name: constants.pop(name) for name in WEIGHTS if name in constants}
        one = {name: weight for name, weight in weights.items() if name in ADAPTIVE_WEIGHTS}
        several = {
            name.removeprefix("classes."): weight for name, weight in weights.items() if name not in one
        }
        self._one_class = AdaptiveSrpt(
            jitter, full_effect, **one, **_known(PricedConstants, constants, PackedConstants)
        )
        self._classes = AdaptivePackedSrpt(
            full_effect, **several, **_known(PackedConstants, constants, PricedConstants)
        )


def _known(kind: Any, constants: dict[str, float], other: Any) -> dict[str, float]:
    """Return the constants of one kind of rule; names that no kind has are kept, to be refused."""
    return {
        name: value for name, value in constants.items() if name in kind._fields or name not in other._fields
    }
