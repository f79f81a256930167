"""Presentation of results: tables, notes, pictures and pages."""
