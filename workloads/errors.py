"""What can go wrong without a bug: one class, which every error of the project derives from."""

__all__ = ["DecimaError"]


class DecimaError(Exception):
    """Something that a user gave, or the machine, refuses. The message is one line that says what was expected."""
