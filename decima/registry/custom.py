"""Custom schedulers: classes by their names, ``module:Class``, and objects and functions of Python code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from decima.registry import LEARNED, UNGUARDED
from decima.schedulers.base import Decide, Scheduler
from decima.schedulers.entries import ENTRIES
from decima.schedulers.listing import signature
from workloads.custom import is_custom
from workloads.errors import PartError, SchedulerError, did_you_mean

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.observation import Decision, Observation

__all__ = ["FunctionScheduler", "scheduler_of_class", "scheduler_of_object"]


class FunctionScheduler(Scheduler):
    """Scheduler that decides by a function without state."""

    def __init__(self, function: Decide) -> None:
        self._function = function

    def decide(self, observation: Observation) -> Decision | None:
        """Return the function's decision."""
        return self._function(observation)


def scheduler_of_class(spec: str) -> DecidesStages:
    """Build a custom class from its name and the numbers after it.

    Raises:
        SchedulerError: this is no name of a class, or the class cannot be built. Names of rules that differ slightly
            are suggested.
    """
    from decima.policy.parts import build_part
    from decima.schedulers.former_names import check_present
    from decima.schedulers.parameters import custom_arguments

    name, colon, _ = spec.removesuffix(UNGUARDED).partition(":")
    check_present(spec, name)
    near = did_you_mean(name, [*ENTRIES, LEARNED])
    module = name.removesuffix(".py")
    if not near and not colon and Path(f"{module}.py").is_file():
        near = f" (did you mean a class in that file, '{module}:CLASS'?)"
    if not (colon and not spec.endswith(UNGUARDED)) or name in ENTRIES or (near and not is_custom(spec)):
        known = ", ".join(map(signature, ENTRIES))
        raise SchedulerError(
            f"unknown scheduler {spec!r}{near}: expected one of {known}, decima, decima:POLICY or module:Class; "
            "decima compare and decima.compare know tuned-weighted-fair, too, and decima.tune gives its alpha"
        )
    module, kind, *texts = spec.split(":", 2)
    values, options = custom_arguments(spec, texts[0]) if texts else ([], {})
    try:
        scheduler = build_part(f"{module}:{kind}", object, *values, **options)
    except PartError as error:
        raise SchedulerError(f"scheduler {error}") from None
    if not _is_scheduler(scheduler):
        raise SchedulerError(
            f"scheduler {spec!r} needs the methods decide and reset of decima.schedulers.Scheduler"
        )
    return scheduler  # type: ignore[no-any-return]


def scheduler_of_object(spec: Any) -> DecidesStages:
    """Return a scheduler, an object of a scheduler's class, or the scheduler of a function.

    Raises:
        SchedulerError: the object is none of these.
    """
    if isinstance(spec, type):
        try:
            spec = spec()
        except TypeError as error:
            raise SchedulerError(
                f"scheduler {spec.__name__}: {error}; give an object instead of the class"
            ) from None
    if _is_scheduler(spec):
        return spec  # type: ignore[no-any-return]
    if callable(spec):
        return FunctionScheduler(spec)
    raise SchedulerError(
        f"a scheduler is a name, an object or class with the methods decide and reset, or a function, got {spec!r:.60}"
    )


def _is_scheduler(candidate: Any) -> bool:
    return callable(getattr(candidate, "decide", None)) and callable(getattr(candidate, "reset", None))
