"""Discrete-event simulator of a Spark cluster that runs jobs, each a DAG of stages."""
