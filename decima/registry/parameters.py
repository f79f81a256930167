"""Rules with parameters in their names, such as ``weighted-fair:-1`` or ``cap:minimum=5,base=srpt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decima.registry import make_scheduler
from decima.schedulers.base import Kind, Scheduler, SchedulerError
from decima.schedulers.entries import SCHEDULERS, WITH_BASE
from decima.schedulers.parameters import parse_parameters

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["rule_with_parameters"]


def rule_with_parameters(spec: str, name: str, argument: str) -> Scheduler:
    """Make a rule from its name and the parameters after it.

    Args:
        spec: the whole name, for error messages.
        name: name of the rule.
        argument: text of the parameters, see ``make_scheduler``.

    Raises:
        SchedulerError: a parameter is unknown or out of range.
    """
    base: DecidesStages | None = None
    if name in WITH_BASE and "=" in argument:
        pairs = argument.split(",")
        bases = [pair for pair in pairs if pair.partition("=")[0].strip() == "base"]
        if bases:
            base = make_scheduler(bases[-1].partition("=")[2].strip())
            argument = ",".join(pair for pair in pairs if pair not in bases)
    values = {} if base is not None and not argument else parse_parameters(spec, name, argument)
    try:
        scheduler = SCHEDULERS[name](**values, **({} if base is None else {"base": base}))
    except ValueError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None
    if argument.endswith(".json"):
        scheduler.kind = Kind.TUNED_RULE
    return scheduler
