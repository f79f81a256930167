"""Planning of a DAG before it runs: Graphene (OSDI 2016), and simpler planners as baselines."""

from decima.schedulers.graphene.planner import critical_path_first, graphene, random_order, tetris
from decima.schedulers.graphene.project import Plan, PlanError, Project

__all__ = ["Plan", "PlanError", "Project", "critical_path_first", "graphene", "random_order", "tetris"]
