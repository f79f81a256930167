"""A planner: it tries decisions out on a model of the cluster, and takes the one that costs least."""
