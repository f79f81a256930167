"""What may go wrong while a policy is read, decides or learns."""

from __future__ import annotations

from workloads.errors import DecimaError

__all__ = ["NotFiniteError", "PolicyFileError"]


class NotFiniteError(DecimaError, ArithmeticError):
    """A probability, loss or gradient that is no number. The message is one line that says which."""


class PolicyFileError(DecimaError, ValueError):
    """A file that holds no policy. The message is one line that names the file and what was expected."""
