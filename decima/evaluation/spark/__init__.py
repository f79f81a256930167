"""What Spark's event logs and recordings tell: predictions of their runs, and of their jobs under other schedulers."""
