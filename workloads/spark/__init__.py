"""Real Spark: event logs into job profiles, the model that fills their gaps, and the recorder of TPC-H runs."""
