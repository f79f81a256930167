"""Reproduced figures of the papers: one module for each study, and modules that several studies share."""
