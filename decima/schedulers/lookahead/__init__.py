"""A planner: it tries decisions out on a model of the cluster, and takes the one that the model likes best."""

from decima.schedulers.lookahead.planner import Lookahead

__all__ = ["Lookahead"]
