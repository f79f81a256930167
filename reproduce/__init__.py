"""Figures and tables of the papers, and measurements of this project: one file each, run by ``python -m reproduce``."""
