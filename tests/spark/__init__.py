"""The plugin on a real Spark: who runs when is counted from Spark's own event log."""
