"""What returns, baselines and algorithms have in common, ours and the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decima.policy.parts import PartError

__all__ = ["TrainingPart", "wrong_part"]


class TrainingPart:
    """A part of a training; one of the user's own is built with ``options`` as keyword arguments.

    What it remembers from iteration to iteration is kept in checkpoints, so that a training that was cut off goes on
    as if it had not been.
    """

    def state(self) -> dict[str, Any]:
        """What it remembers: tensors, numbers and texts, in lists and by name; nothing by default."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave.

        Raises:
            AttributeError, KeyError, RuntimeError, TypeError, ValueError: it is of something else, or damaged.
        """


def wrong_part(key: str, part: TrainingPart, expected: str) -> PartError:
    """The error of a part that gives something else than is expected, in one line.

    Args:
        key: the setting that names it.
        part: which.
        expected: what it has to give, and what it gave.
    """
    kind = type(part)
    return PartError(f"{key}: {f'{kind.__module__}:{kind.__name__}'!r} has to give {expected}")
