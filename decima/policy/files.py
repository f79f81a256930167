"""Policies as files: plain arrays in a NumPy archive, which never executes code.

Each layer is ``NETWORK.LAYER.weight`` (float32, outputs x inputs) and ``NETWORK.LAYER.bias``, each array of a part of
the user's own ``encoder.NAME``, ``stage_head.NAME`` or ``limit_head.NAME``; ``policy`` is a text,
JSON, with the version of the format, the policy's shape and whatever its maker says about it. An archive without
that text has the layout of the published Decima weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from decima.policy.archive import read_archive, read_head, write_archive
from decima.policy.config import DECIMA_SIM_POLICY, PolicyConfig
from decima.policy.errors import PolicyFileError
from decima.policy.parts import is_allowed
from decima.policy.shipped import SHIPPED
from decima.policy.surroundings import Surroundings
from decima.settings import first_problem
from workloads.errors import did_you_mean

if TYPE_CHECKING:
    from decima.policy.actor import Actor
    from decima.policy.policy import Policy

__all__ = ["TRAINED_ON", "read_about", "read_policy", "read_trained_on", "save_policy"]

Model = TypeVar("Model", bound=BaseModel)

VERSION = 1
#: Where a policy's maker says what it was trained on.
TRAINED_ON = "trained_on"


def save_policy(path: str | Path, policy: Actor | Policy, about: Mapping[str, Any] | None = None) -> None:
    """Write a policy, in one step.

    Args:
        path: where; by custom it ends in ``.npz``.
        policy: what.
        about: anything that JSON can hold, such as the command that made it and its results.
    """
    text = json.dumps(
        {"version": VERSION, "config": policy.config.model_dump(mode="json"), "about": dict(about or {})}
    )
    write_archive(Path(path), {"policy": np.array(text), **policy.arrays})


def read_policy(path: Path) -> tuple[PolicyConfig, dict[str, NDArray[Any]]]:
    """The shape of a policy and its arrays, which are not looked at.

    Raises:
        PolicyFileError: no archive of arrays, another version, or a shape with parts of the user's own that nobody
            has allowed.
    """
    arrays = read_archive(path)
    config = _head(path, arrays)[0] if "policy" in arrays else DECIMA_SIM_POLICY
    arrays.pop("policy", None)
    for part in config.own_parts:
        if not is_allowed(part.name):
            module = part.name.partition(":")[0]
            raise PolicyFileError(
                f"{path}: {part.key}: {part.name!r} is code that does not come with decima; if you trust it: "
                f"decima --allow-parts {module} .., or import {module} first"
            )
    return config, arrays


def policy_path(name: str | Path) -> Path:
    """The file of a policy that ships, or else of that name; a path is what it is.

    Raises:
        PolicyFileError: there is neither.
    """
    if isinstance(name, Path):
        return name
    path = SHIPPED.get(name, Path(name))
    if path.is_file():
        return path
    what = "does not come with this installation" if name in SHIPPED else "is no file, nor does it ship"
    raise PolicyFileError(
        f"the policy {name!r} {what}{did_you_mean(name, SHIPPED)}: expected a policy file or one of "
        + ", ".join(SHIPPED)
    )


def read_about(path: str | Path) -> dict[str, Any]:
    """What a policy's maker says about it.

    Args:
        path: a file; a text may be the name of a policy that ships.

    Raises:
        PolicyFileError: as ``read_policy``, but parts of the user's own need not be allowed.
    """
    path = policy_path(path)
    arrays = read_archive(path)
    return _head(path, arrays)[1] if "policy" in arrays else {}


def read_trained_on(path: str | Path) -> Surroundings | None:
    """What a policy was trained on; none if its maker does not say, as for the published Decima weights.

    Args:
        path: as ``read_about``.

    Raises:
        PolicyFileError: as ``read_about``.
    """
    about = read_about(path)
    return Surroundings.model_validate(about[TRAINED_ON]) if TRAINED_ON in about else None


def _head(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[PolicyConfig, dict[str, Any]]:
    config, about = read_head(path, arrays, "policy", VERSION)
    if TRAINED_ON in about:
        _checked(path, Surroundings, about[TRAINED_ON], f"about.{TRAINED_ON}")
    return _checked(path, PolicyConfig, config, "policy config"), about


def _checked(path: Path, model: type[Model], value: object, place: str) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise PolicyFileError(f"{path}: {place}: {first_problem(error)}") from None
