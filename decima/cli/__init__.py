"""The command line ``decima``: a module for each command or group, and shared ``options`` and ``console``."""
