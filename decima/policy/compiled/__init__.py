"""Compiled: observations to graphs, and graphs to decisions on a CPU."""
