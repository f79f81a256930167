"""Options for the evaluation setting (cluster and jobs), made from the declaration of its quantities.

The declaration (``workloads.quantities``) also serves YAML, Python and JSON; its times are milliseconds inside and
seconds for users, and some defaults are measured. Generators of command lines from type annotations, such as
pydantic-settings and cyclopts, do neither, and would be a second way to write options beside click.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from decima.cli.options import (
    FILE,
    FLAG,
    FOLDER,
    MOST,
    MOST_S,
    TEXT,
    FiniteRange,
    RangeOrNever,
    WholeRange,
    option,
    secondary,
    workload_named,
)

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from workloads.quantities import Quantity

MEASURED = "  [default: as measured in a workload file from event logs; else {}]"
#: Second names of options, and options beside others.
ALIASES = {"seeds": "--experiments"}
PROFILES = option("--profiles", FOLDER, "Folder of the published TPC-H profiles, same as --workload DIR.")


class SettingsCommand(click.Command):
    """Command with an option for each quantity of a setting, after its own options.

    The options are made when they are first needed, since the declaration imports NumPy and pydantic.

    Args:
        settings: module and name of the quantities by name; by default those of the evaluation setting.
        without: names of quantities without an option.
    """

    def __init__(
        self,
        *args: Any,
        settings: str = "decima.evaluation.conditions:SETTINGS",
        without: Collection[str] = (),
        **others: Any,
    ) -> None:
        self._settings: str | None = settings
        self._without = without
        super().__init__(*args, **others)

    @property
    def params(self) -> list[click.Parameter]:
        """All options."""
        if self._settings is not None:
            module, _, name = self._settings.partition(":")
            self._settings = None
            quantities = getattr(import_module(module), name)
            self._params += options_of([quantities[name] for name in quantities if name not in self._without])
        return self._params

    @params.setter
    def params(self, parameters: list[click.Parameter]) -> None:
        self._params = parameters


def options_of(quantities: Collection[Quantity]) -> list[click.Parameter]:
    """Return an option for each quantity, with its default and bounds in the help."""

    def collect(**_: Any) -> None:
        """Carry options, which click stores in the function that they decorate."""

    for quantity in reversed([*quantities]):
        if quantity.name == "workload":
            PROFILES(collect)
        _option(quantity)(collect)
    return list(reversed(collect.__click_params__))  # type: ignore[attr-defined]


def _option(quantity: Quantity) -> Any:
    from workloads.quantities import NEVER

    extra, kind, default = quantity.extra, _kind(quantity), quantity.default
    flags = [f"--{quantity.name.replace('_', '-')}", ALIASES.get(quantity.name, "")]
    if not isinstance(kind, click.Choice) and kind != FLAG:
        form = quantity.text.form if quantity.text else "SECONDS" if quantity.is_time else ""
        flags.append(extra["metavar"] or form)
    help = str(quantity.field.description)
    keywords: dict[str, Any] = {"name": quantity.name}
    if extra["measured"]:
        help += MEASURED.format(default if default == NEVER else f"{default:g}")
    fixed = quantity.fixed_default
    if quantity.name == "workload":  # None until it is known whether --profiles is given
        help, fixed = f"{help}  [default: {default}]", None
    if extra["without_value"]:
        keywords |= {"is_flag": False, "flag_value": extra["without_value"]}
    make = secondary if extra["only_speed"] else option
    return make(" ".join(filter(None, flags)), kind, help, fixed, **keywords)


def _kind(quantity: Quantity) -> Any:
    """Return the type of an option's values for click; texts of structures are parsed with the setting."""
    from workloads.declaration import Named

    text, (kind, limits) = quantity.text, quantity.bounds
    if isinstance(text, Named):
        return click.Choice([*text.values])
    if text is not None:
        return TEXT
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is Path:
        return FILE
    if kind is bool:
        return FLAG
    if kind is int:
        return WholeRange(limits["ge"], limits.get("le", MOST))
    least, most = (
        quantity.outside(bound) for bound in (limits.get("ge", limits.get("gt")), limits.get("le"))
    )
    number_type = RangeOrNever if quantity.is_time and most is None else FiniteRange
    return number_type(least, MOST_S if most is None else most, min_open="gt" in limits)


def conditions_named(options: Mapping[str, Any], seeds: int) -> Conditions:
    """Return the evaluation setting of the options of a command; ``seeds``: number of experiments."""
    from decima.evaluation.conditions import SETTINGS
    from decima.evaluation.options import make_conditions

    given_settings = {name: options[name] for name in SETTINGS if name in options}
    workload = workload_named(options["workload"], options["profiles"])
    return make_conditions(**given_settings | {"workload": workload, "seeds": seeds})


def options_without_effect(conditions: Conditions, options: dict[str, Any]) -> dict[str, str]:
    """Return options that have no effect in an evaluation setting, as name -> reason."""
    ignored = {} if options["classes"] is None else {"executors": "--classes sets the number of executors"}
    if conditions.workload.sequence is not None:
        ignored |= dict.fromkeys(
            ("jobs", "arrivals", "interval"), "the workload file contains jobs and arrivals"
        )
    elif conditions.arrivals != "poisson":
        ignored["interval"] = "it needs --arrivals poisson"
    if math.isinf(conditions.cluster.faults.executor_lifetime_ms):
        ignored["executor_return"] = "it needs --executor-lifetime"
        if options["capacity"] is None:
            ignored["lost_output"] = "no executor is lost: it needs --executor-lifetime or --capacity"
    if not conditions.cluster.knowledge.unknown:
        ignored["estimator"] = "it needs --unknown"
    if options["carbon"] is None:
        ignored |= dict.fromkeys(("carbon_start", "executor_watts", "idle_watts"), "it needs --carbon")
    return ignored
