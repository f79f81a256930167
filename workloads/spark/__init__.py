"""Real Spark: job profiles from event logs, a model of task durations, and a recorder of TPC-H runs."""
