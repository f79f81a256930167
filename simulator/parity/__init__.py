"""Replay of episodes recorded from published code."""
