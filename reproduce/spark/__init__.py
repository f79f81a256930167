"""A real Spark on this machine whose tasks sleep, and recorded runs of queries, for the figures on a real Spark."""
