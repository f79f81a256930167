"""Record TPC-H on a real Spark cluster: ``python -m workloads.spark.recorder``."""
