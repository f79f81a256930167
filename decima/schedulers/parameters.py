"""Parameters of rules, as in ``weighted-fair:-1`` and ``srpt:source_factor=0.5``, and numbers of custom classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

from decima.schedulers.base import SchedulerError
from decima.schedulers.entries import ENTRIES, PARAMETERS, SCHEDULERS, imported
from decima.schedulers.former_names import FORMER_RULES, check_present, present_name
from decima.schedulers.listing import signature
from workloads.errors import WorkloadError, did_you_mean
from workloads.reading import read_document
from workloads.texts import number_in, whole_in

__all__ = ["custom_arguments", "parameters", "parse_parameters"]

#: Largest absolute value of a parameter; beyond it, powers of work overflow.
LARGEST_PARAMETER = 100


def parameters(spec: str) -> dict[str, float]:
    """Return all parameters of a heuristic, with the values that its name contains, otherwise their defaults.

    Args:
        spec: name of a heuristic, such as ``srpt`` or ``srpt:source_factor=0.5``, see ``make_scheduler``.

    Raises:
        SchedulerError: unknown heuristic or parameter, or a value that is not a number.
    """
    name, colon, argument = spec.partition(":")
    check_present(spec, name)
    if name not in SCHEDULERS or (colon and name not in PARAMETERS):
        raise SchedulerError(f"scheduler {spec!r}: expected a heuristic{did_you_mean(name, SCHEDULERS)}")
    return _defaults(name) | (parse_parameters(spec, name, argument) if colon else {})


def _defaults(name: str) -> dict[str, float]:
    arguments = inspect.signature(SCHEDULERS[name]).parameters.items()
    defaults = {
        key: argument.default
        for key, argument in arguments
        if argument.default not in (inspect.Parameter.empty, None)
    }
    for constants in map(imported, ENTRIES[name].constants):
        values = constants()
        defaults |= values if isinstance(values, dict) else values._asdict()
    return defaults


def parse_parameters(spec: str, name: str, argument: str) -> dict[str, float]:
    """Return the parameters in the part of a heuristic's name after the first colon."""
    if argument.endswith(".json"):
        values = _read_parameters(spec, name, Path(argument))
    elif "=" in argument:
        pairs = (each.partition("=") for each in argument.split(","))
        values = {key.strip(): number_in(value) for key, _, value in pairs}
    else:
        texts = argument.split(":")
        if len(texts) > len(PARAMETERS[name]):
            raise _expected(spec, name)
        values = dict(zip(PARAMETERS[name], map(number_in, texts), strict=False))
    known = _defaults(name)
    for key, value in values.items():
        if key not in known:
            if (now := present_name(key)) in known:
                raise SchedulerError(f"scheduler {spec!r}: the parameter {key!r} is now {now!r}")
            near = did_you_mean(key, known)
            raise SchedulerError(f"scheduler {spec!r}: no parameter {key!r}{near}, only {_listed(known)}")
        if not abs(value) <= LARGEST_PARAMETER:
            raise _expected(spec, name)
    return values


def _listed(parameters: Mapping[str, float]) -> str:
    """List the names of parameters; of weights, which are many, only the number."""
    names = [name for name in parameters if "." not in name]
    weights = len(parameters) - len(names)
    return ", ".join(names) + (f" and {weights} weights" if weights else "")


def _expected(spec: str, name: str) -> SchedulerError:
    most = LARGEST_PARAMETER
    return SchedulerError(f"scheduler {spec!r}: expected {signature(name)}, numbers from -{most} to {most}")


def _read_parameters(spec: str, name: str, path: Path) -> dict[str, float]:
    """Read ``rule`` and ``parameters`` from a file that ``decima tune --json`` wrote; other entries have no effect."""
    try:
        content = read_document(path, "results of decima tune")
    except WorkloadError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None
    rule, values = (content.get(key) if isinstance(content, dict) else None for key in ("rule", "parameters"))
    if FORMER_RULES.get(str(rule)) == name:
        raise SchedulerError(f"scheduler {spec!r}: {path}: the rule {rule!r} is now {name!r}; tune it again")
    if rule != name or not isinstance(values, dict):
        raise SchedulerError(
            f"scheduler {spec!r}: {path}: expected the entries rule, {name!r}, and parameters"
        )
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SchedulerError(
                f"scheduler {spec!r}: {path}: parameters.{key}: expected a number, got {value!r:.60}"
            )
    return values


def custom_arguments(spec: str, text: str) -> tuple[list[float], dict[str, float]]:
    """Return the arguments in the part of a custom scheduler's name after its class, in order and by name."""
    by_name = "=" in text
    pairs = [
        each.partition("=") if by_name else ("", "", each) for each in text.split("," if by_name else ":")
    ]
    numbers = []
    for _, _, value in pairs:
        whole = whole_in(value)
        numbers.append(number_in(value) if whole is None else whole)
        if not abs(numbers[-1]) < float("inf"):
            raise SchedulerError(f"scheduler {spec!r}: expected numbers after the class, got {value!r:.60}")
    if by_name:
        return [], {name.strip(): number for (name, _, _), number in zip(pairs, numbers, strict=True)}
    return numbers, {}
