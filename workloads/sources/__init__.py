"""Readers and generators of jobs, one module per source."""
