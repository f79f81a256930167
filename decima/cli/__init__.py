"""The command line ``decima``: one command a module, or few of one subject; ``options`` and ``console`` are shared."""
