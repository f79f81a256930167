"""The command ``decima``: one file a command."""
