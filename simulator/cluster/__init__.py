"""A Spark cluster on which job DAGs run."""
