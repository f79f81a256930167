"""Reinforcement learning of scheduling policies on clusters (Decima, SIGCOMM 2019, section 5.3).

In reading order: ``config`` (settings, with ``sections`` and ``settings``), ``train`` (an iteration from top to
bottom), ``rollout`` (episodes and their samples), ``advantages`` (returns, GAE, baselines), ``updates``
(behaviour cloning, REINFORCE, PPO), ``validation``.
"""
