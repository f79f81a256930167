"""The plugin on a real Spark: schedules are read from Spark's own event log."""
