"""What may go wrong while a policy decides or learns."""

from __future__ import annotations

from workloads.errors import DecimaError

__all__ = ["NotFiniteError"]


class NotFiniteError(DecimaError, ArithmeticError):
    """A probability, loss or gradient that is no number. The message is one line that says which."""
