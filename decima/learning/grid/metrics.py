"""What is measured while a network learns on grids."""

from __future__ import annotations

__all__ = ["METRICS"]

#: Name -> what it is; see ``decima.learning.cluster.metrics``.
METRICS: dict[str, str] = {
    "iteration": "iterations that are over; 0 is the policy before the first",
    "return": "sum of rewards, averaged over the training episodes",
    "return_best": "that of the best episode of each set, averaged over the sets",
    "slowdown": "mean over the jobs that training episodes booked",
    "completion": "the same of the completion time, steps",
    "unfinished": "jobs that training episodes did not book",
    "samples": "actions that the network chose: what is learned from",
    "steps": "gradient steps",
    "entropy": "of the policy, nats per sample",
    "advantage_std": "root of the mean square of the advantages",
    "gradient_norm": "length of the actor's gradient, averaged over the gradient steps",
    "critic_loss": "mean square error of the critic, in units of the usual return; a2c only",
    "learning_rate": "of the actor",
    "iteration_cpu_s": "CPU time of the iteration, s",
    "cpu_s": "CPU time since the training began, s",
    "validation_slowdown": "mean over the jobs of the validation sets",
    "validation_completion": "the same of the completion time, steps",
    "validation_waiting": "the same of the waiting time, steps",
    "validation_makespan": "mean over the validation sets, steps",
    "validation_utilisation": "mean over the validation sets of the share of units in use",
    "improvement": "1 - ratio of what the objective asks for on the validation sets to that of the best heuristic",
    "best_improvement": "the highest improvement so far: that of policy.npz",
}
