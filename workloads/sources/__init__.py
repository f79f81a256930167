"""Readers and generators of jobs: one source, one module."""
