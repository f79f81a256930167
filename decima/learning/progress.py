"""How a training tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TRAINING", "VALIDATION", "Tell", "silent"]

#: Progress callback: the phase in words, how much of it is done, and how much there is.
Tell = Callable[[str, int, int], None]

#: The phase of iterations, and the one that interrupts others.
TRAINING, VALIDATION = "training", "validation"


def silent(phase: str, done: int, total: int) -> None:
    """Tell nothing."""
