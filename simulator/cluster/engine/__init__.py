"""The compiled engine of the cluster."""
