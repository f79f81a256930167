"""Predictions from Spark's event logs and recordings: of their own runs, and of their jobs under other schedulers."""
