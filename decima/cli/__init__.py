"""The command ``decima``: one file a command."""

from decima.cli.main import main

__all__ = ["main"]
