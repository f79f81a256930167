"""What the simulators refuse."""

from __future__ import annotations

from workloads.errors import DecimaError

__all__ = ["ConfigError"]


class ConfigError(DecimaError, ValueError):
    """A cluster or grid that cannot be simulated. One line that names the setting and what was expected."""
