"""Readers and generators of job profiles, one module per source."""
