"""What studies of a real Spark share: a Spark on this machine whose tasks sleep, and recorded runs of queries."""
