"""Custom classes by their names ``module:Class``: schedulers, parts of policies and of trainings.

Users name classes on a command line, in a recipe or in a program; ``load_part`` imports these. A policy file may come
from any source: ``find_allowed_part`` finds a class that the file names only if the user has named the class, or has
allowed its module by ``allow_parts``. That a module is imported already is no permission.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path
from typing import Any, NamedTuple

from decima.policy.config import PolicyConfig
from workloads.custom import is_custom
from workloads.custom_code import custom_code
from workloads.errors import NotFiniteError, PartError, PolicyFileError, did_you_mean

__all__ = [
    "ALLOWED", "CustomPart", "NotFiniteError", "PartError", "PolicyFileError", "allow_parts", "build_part",
    "check_part", "custom_parts", "find_allowed_part", "load_part",
]  # fmt: skip

#: Environment variable: modules, packages and classes (``module:Class``) that policy files may name, separated by
#: commas. Worker processes inherit it.
ALLOWED = "DECIMA_PARTS"

_CANNOT = "{!r} cannot be loaded"


class CustomPart(NamedTuple):
    """A custom class of a policy.

    Attributes:
        key: field of ``PolicyConfig`` that names the class.
        name: ``module:Class``.
        base: ``module:Class`` of the required base class; a name, since importing the class takes time.
    """

    key: str
    name: str
    base: str


def custom_parts(config: PolicyConfig) -> list[CustomPart]:
    """Return the custom classes of a policy."""
    parts = [("stage_features", feature.name, "features:StageFeature") for feature in config.stage_features]
    parts += [("job_features", feature.name, "features:JobFeature") for feature in config.job_features]
    parts += [("encoder", config.encoder, "encoder:Encoder")]
    parts += [("stage_head", config.stage_head, "encoder:StageHead")]
    parts += [("limit_head", config.limit_head, "encoder:LimitHead")]
    return [CustomPart(key, name, f"decima.policy.{base}") for key, name, base in parts if is_custom(name)]


def allow_parts(*names: str) -> None:
    """Allow policy files to name classes, in this process and in worker processes that it starts from now on.

    Args:
        names: modules, packages (with all their modules) or single classes, ``module:Class``.
    """
    os.environ[ALLOWED] = ",".join(dict.fromkeys([*_allowed(), *names]))


def _allowed() -> list[str]:
    return [name for name in os.environ.get(ALLOWED, "").split(",") if name]


def find_allowed_part(name: str, base: str) -> Any:
    """Find a custom class that a policy file names, without running code that the user has not allowed.

    A module or package that the user has allowed may lie in the current folder; a module that only the file names is
    not searched there. The class must be in the module's namespace: a module's ``__getattr__`` is not called, since
    it could import further modules.

    Args:
        name: ``module:Class``.
        base: name of the required base class, ``module:Class``.

    Raises:
        PartError: the class is not allowed, does not exist, or is not a subclass of ``base``.
    """
    module, _, attribute = name.partition(":")
    permissions = [
        allowed for allowed in _allowed() if name == allowed or f"{module}.".startswith(f"{allowed}.")
    ]
    if not permissions:
        raise PartError(
            f"{name!r} is code that does not come with decima; if you trust it: decima --allow-parts {module} .., "
            f"or decima.policy.allow_parts({module!r})"
        )
    with custom_code(_CANNOT.format(name), PartError):
        importlib.import_module(permissions[0].partition(":")[0])
    with custom_code(_CANNOT.format(name), PartError, in_folder=False):
        namespace = vars(importlib.import_module(module))
    if attribute not in namespace:
        raise PartError(f"{_CANNOT.format(name)}: the module {module} has no class {attribute}")
    return _checked(name, namespace[attribute], base)


def load_part(name: str, base: type | str = object) -> Any:
    """Import a custom class that the user names; modules of the current folder are found, too.

    Policy files may name the class from then on, so that a program can read the policies that it has trained.

    Args:
        name: ``module:Class``.
        base: required base class, or its name ``module:Class`` if importing the base class is slow.

    Raises:
        PartError: the module or class does not exist, or the class is not a subclass of ``base``.
    """
    with custom_code(_CANNOT.format(name), PartError):
        part = _import(name)
    part = _checked(name, part, base)
    allow_parts(name)
    return part


def _import(name: str) -> Any:
    """Return the attribute that ``module:Class`` names; error messages suggest a similar name."""
    module_name, _, attribute = name.rpartition(":")
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, TypeError) as error:  # TypeError: a relative name
        if isinstance(error, ModuleNotFoundError) and not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, and imports another module that does not
        if module_name.endswith(".py") or os.sep in module_name:
            instead = f"{Path(module_name).name.removesuffix('.py')}:{attribute}"
            near = f" (did you mean {instead!r}?)"
        else:
            near = did_you_mean(module_name, [info.name for info in pkgutil.iter_modules([str(Path.cwd())])])
        raise ModuleNotFoundError(f"No module named {module_name!r}{near}") from None
    if not hasattr(module, attribute):
        near = did_you_mean(
            attribute, [class_name for class_name, kind in vars(module).items() if isinstance(kind, type)]
        )
        raise AttributeError(f"module {module_name!r} has no attribute {attribute!r}{near}")
    return getattr(module, attribute)


def _checked(name: str, part: Any, base: type | str) -> Any:
    wanted: type = _import(base) if isinstance(base, str) else base
    if wanted is not object and not (isinstance(part, type) and issubclass(part, wanted)):
        raise PartError(f"{name!r} is not a {wanted.__name__}: expected a subclass of {_public(wanted)}")
    return part


def build_part(name: str, base: type | str = object, /, *values: Any, **options: Any) -> Any:
    """Instantiate a custom class by name, with the arguments ``values`` and ``options``.

    Raises:
        PartError: the class cannot be loaded (see ``load_part``), or the constructor fails.
    """
    part = load_part(name, base)
    with custom_code(_CANNOT.format(name), PartError):
        return part(*values, **options)


def check_part(name: str, setting: str, base: type | str) -> None:
    """Check that a custom class can be loaded.

    Args:
        name: ``module:Class``.
        setting: setting that contains the name, for error messages.
        base: required base class, see ``load_part``.

    Raises:
        PartError: the class cannot be loaded; the message begins with ``setting``.
    """
    try:
        load_part(name, base)
    except PartError as error:
        raise PartError(f"{setting}: {error}") from None


def _public(base: type) -> str:
    """Return the public name of a base class, with its package."""
    return f"{'.'.join(base.__module__.split('.')[:2])}.{base.__name__}"
