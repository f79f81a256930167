"""Names of the rules, with their classes and parameters. Classes are imported when they are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from decima.schedulers.base import Scheduler

__all__ = [
    "ENTRIES",
    "PARAMETERS",
    "SCHEDULERS",
    "TUNED_RULES",
    "WITH_BASE",
    "Entry",
    "imported",
]


class Entry(NamedTuple):
    """A heuristic of the registry.

    Attributes:
        reference: module in ``decima.schedulers`` and class, ``module:Class``.
        parameters: numeric parameters in the order in which they follow the name, separated by colons.
        constants: functions (module and name) that return further parameters with their defaults, which
            ``NAME:PARAMETER=VALUE,..`` sets.
        has_base: whether the heuristic modifies another scheduler, ``NAME:PARAMETER=VALUE,base=OTHER``.
    """

    reference: str
    parameters: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    has_base: bool = False


#: Heuristics by their names on the command line.
ENTRIES = {
    "random": Entry("random_choice:RandomChoice"),
    "fifo": Entry("fifo:Fifo"),
    "sjf-cp": Entry("sjf_cp:SjfCp"),
    "fair": Entry("fair:Fair"),
    "naive-weighted-fair": Entry("fair:NaiveWeightedFair"),
    "weighted-fair": Entry("fair:WeightedFair", ("alpha",)),
    "spark-fair": Entry("spark:SparkFair"),
    "fair-pools": Entry("spark:FairPools"),
    "srpt": Entry("srpt:Srpt", ("jitter",), ("srpt_weights:Constants",)),
    "srpt-tuned": Entry(
        "srpt:TunedSrpt", ("jitter",), ("srpt_weights:Constants", "srpt_weights:searched_weights")
    ),
    "sjf-estimate": Entry("queueing:SjfEstimate"),
    "srpt-bounce": Entry("queueing:SrptBounce"),
    "seh": Entry("queueing:Seh", ("frozen",)),
    "gittins": Entry("queueing:Gittins"),
    "las": Entry("queueing:Las"),
    "hesrpt": Entry("queueing:HeSrpt"),
    "inelastic-first": Entry("queueing:InelasticFirst"),
    "weighted-srpt": Entry("objectives:WeightedSrpt"),
    "edf": Entry("objectives:Edf"),
    "least-slack": Entry("objectives:LeastSlack"),
    "gamma-boost": Entry("objectives:GammaBoost", ("load",), ("srpt_weights:constants_of_orders",)),
    "atc": Entry(
        "objectives:Atc", ("lookahead",), ("objectives:AtcConstants", "srpt_weights:constants_of_orders")
    ),
    "atc-misses": Entry("objectives:AtcForMisses"),
    "atc-weighted": Entry("objectives:AtcForWeights"),
    "cap": Entry("carbon_aware:Cap", ("minimum",), has_base=True),
    "pcaps": Entry("carbon_aware:Pcaps", ("gamma",), has_base=True),
    "greenest-first": Entry("carbon_aware:GreenestFirst", ("patience",), has_base=True),
    "carbon-price": Entry("carbon_price:CarbonPrice", ("seconds",), has_base=True),
    "carbon-slack": Entry(
        "carbon_price:CarbonSlack", ("seconds",), ("carbon_price:CarbonSlackConstants",), has_base=True
    ),
    "tetris": Entry("packing:Tetris", ("remaining", "fairness")),
    "drf": Entry("packing:Drf"),
    "graphene-star": Entry("graphene.planner:GrapheneStar", ("alpha", "long", "fragmented")),
    "graphene": Entry("graphene.planner:Graphene", ("remaining", "fairness")),
}
#: Heuristic -> its parameters, see ``Entry``.
PARAMETERS = {name: entry.parameters for name, entry in ENTRIES.items() if entry.parameters}
#: Heuristics that modify another scheduler.
WITH_BASE = tuple(name for name, entry in ENTRIES.items() if entry.has_base)
#: Rules with searched weights.
TUNED_RULES = ("srpt-tuned", "atc-misses", "atc-weighted")


class _Schedulers(Mapping[str, type[Scheduler]]):
    """Classes of heuristics by name, imported when they are looked up."""

    def __getitem__(self, name: str) -> type[Scheduler]:
        return imported(ENTRIES[name].reference)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


def imported(reference: str) -> Any:
    """Import an object of ``decima.schedulers`` by its module and name, ``module:name``."""
    module, _, name = reference.partition(":")
    return getattr(import_module(f"decima.schedulers.{module}"), name)


#: Heuristics: name on the command line -> class.
SCHEDULERS: Mapping[str, type[Scheduler]] = _Schedulers()
