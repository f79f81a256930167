"""Defaults of all command options and public functions equal the recorded ones.

Results depend on defaults, so a change must be deliberate and in the changelog. After such a change, or a new option:
``python -m tests.test_defaults`` records them.
"""

import ast
import difflib
import importlib
import inspect
import pkgutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
from pydantic import BaseModel

import decima
import simulator
import workloads
from decima.cli.main import cli

RECORDED = Path(__file__).with_name("defaults.txt")
#: Modules that need a Spark, or start something.
LEFT_OUT = ("workloads.spark.recorder", "decima.show", "decima.cli", "decima.__main__")
#: What is recorded of what an option takes.
KIND = ("choices", "min", "max", "min_open", "max_open", "exists", "file_okay", "dir_okay")
#: Longer values are cut, and have a checksum; longer texts are for people, and may be put in other words.
LONGEST, PROSE = 120, 30


def shown(value: Any) -> str:
    """Return a value as one short line that is the same in each process."""
    text = _text(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} .. {zlib.crc32(text.encode()):08x}"


def _text(value: Any) -> str:
    if isinstance(value, str) and len(value) > PROSE:
        return "prose"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}({_text(value.model_dump())})"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_text(getattr(value, each.name)) for each in fields(value))})"
    if isinstance(value, np.ndarray):
        return _text(value.tolist())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)}: {_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(_text, value))) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    if isinstance(value, Path):
        return value.name
    return getattr(value, "__qualname__", type(value).__name__).replace("<lambda>", "function")


def options(group: click.Group, words: str = "decima") -> Iterator[str]:
    """Return a line for each parameter of each command: name, type and default."""
    for name, command in sorted(group.commands.items()):
        yield f"{words} {name}: default shown {command.context_settings.get('show_default', False)}"
        if isinstance(command, click.Group):
            yield from options(command, f"{words} {name}")
        for each in command.params:
            told = each.to_info_dict()
            kind = {key: bound for key in KIND if (bound := told["type"].get(key)) is not None and bound is not False}
            flags = [flag for flag in ("required", "multiple", "is_flag") if told.get(flag)]
            default = f" = {shown(each.default)}" if isinstance(each.default, bool | int | float | str | tuple) else ""
            names = " ".join((*each.opts, *each.secondary_opts))
            yield (" ".join((words, name, f"{names}:", told["type"]["param_type"], shown(kind), *flags)) + default)


def defined(module: ModuleType) -> Iterator[str]:
    """Return the names without an underscore that a module assigns or defines, for modules without ``__all__``."""
    for statement in ast.parse(inspect.getsource(module)).body:
        names = [getattr(statement, "name", "_")]
        if isinstance(statement, ast.Assign):
            names = [each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        yield from (name for name in names if not name.startswith("_"))


def public() -> Iterator[tuple[str, Any]]:
    """Return the public names of all modules, each where it is defined."""
    for package in (workloads, simulator, decima):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.startswith(LEFT_OUT):
                continue
            module = importlib.import_module(found.name)
            for name in sorted(getattr(module, "__all__", None) or defined(module)):
                value = getattr(module, name)
                if getattr(value, "__module__", module.__name__) == module.__name__ or name.isupper():
                    yield f"{module.__name__}.{name}", value


def defaults() -> Iterator[str]:
    """Return a line for each default of a public class or function, each dataclass, and each public constant."""
    for name, value in public():
        if isinstance(value, type) and issubclass(value, BaseModel):
            for field, told in value.model_fields.items():
                rest = [shown(each) for each in told.metadata if is_dataclass(each)]
                if not told.is_required():
                    yield f"{name}.{field} = {shown(told.get_default(call_default_factory=True))}"
                if rest:
                    yield f"{name}.{field}: {' '.join(rest)}"
        elif isinstance(value, type) and is_dataclass(value):
            kind = "frozen" if value.__dataclass_params__.frozen else "changeable"
            yield f"{name}: {kind}, compared by {'value' if value.__dataclass_params__.eq else 'identity'}"
            for each in fields(value):
                if each.default is not MISSING:
                    yield f"{name}.{each.name} = {shown(each.default)}"
        elif isinstance(value, type) and hasattr(value, "_field_defaults"):
            for field, default in value._field_defaults.items():
                yield f"{name}.{field} = {shown(default)}"
        elif inspect.isfunction(value) or (isinstance(value, type) and "__init__" in vars(value)):
            for parameter in inspect.signature(value).parameters.values():
                if parameter.default is not parameter.empty:
                    yield f"{name}({parameter.name} = {shown(parameter.default)})"
        elif not callable(value) and name.rpartition(".")[2].isupper():
            yield f"{name} = {shown(value)}"


def recorded_now() -> str:
    return "\n".join([*options(cli), *defaults()]) + "\n"


def test_defaults_are_those_recorded() -> None:
    changes = difflib.unified_diff(RECORDED.read_text().splitlines(), recorded_now().splitlines(), n=0, lineterm="")
    assert not list(changes), "if this is on purpose: python -m tests.test_defaults"


def test_what_holds_arrays_is_compared_by_identity() -> None:
    """``==`` of arrays and tables has no truth value: comparing two equal records would raise an error."""
    for name, value in public():
        if isinstance(value, type) and is_dataclass(value):
            kinds = " ".join(str(each.type) for each in fields(value))
            if any(kind in kinds for kind in ("NDArray", "DataFrame", "Series", "ndarray")):
                assert value.__eq__ is object.__eq__, name


if __name__ == "__main__":
    RECORDED.write_text(recorded_now())
