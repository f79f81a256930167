"""Compiled inference on a CPU: observations to graphs, and graphs to decisions."""
