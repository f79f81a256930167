"""Planning of a DAG before it runs: Graphene (OSDI 2016), and simpler planners as baselines."""

from decima.schedulers.graphene.project import Plan, PlanError, Project
from decima.schedulers.graphene.search import critical_path_first, graphene, random_order, tetris

__all__ = ["Plan", "PlanError", "Project", "critical_path_first", "graphene", "random_order", "tetris"]
