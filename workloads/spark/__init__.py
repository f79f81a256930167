"""Real Spark: event logs to job profiles, a model of task durations, and the recorder of TPC-H runs."""
