"""Reinforcement learning of scheduling policies (Decima, SIGCOMM 2019, section 5.3)."""
