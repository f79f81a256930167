"""Scheduling objectives: costs that accrue while jobs are in the system. The reward is minus the cost."""
