"""Schedulers for clusters that run job DAGs: classic and learned ones, compared on the same experiments."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("decima")
