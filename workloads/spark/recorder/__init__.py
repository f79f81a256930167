"""Record TPC-H queries on a real Spark cluster: ``python -m workloads.spark.recorder``."""
