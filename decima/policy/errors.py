"""Errors of policies."""

from __future__ import annotations

from workloads.errors import DecimaError

__all__ = ["NotFiniteError", "PolicyFileError"]


class NotFiniteError(DecimaError, ArithmeticError):
    """A probability, loss or gradient is not finite. The message is one line that names the number."""


class PolicyFileError(DecimaError, ValueError):
    """An invalid policy file. The message is one line that names the file and what was expected."""
