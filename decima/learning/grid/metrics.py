"""What is measured while a network learns on grids."""

from __future__ import annotations

from decima.learning.metrics import COMMON

__all__ = ["METRICS"]

#: Name -> what it is.
METRICS: dict[str, str] = COMMON | {
    "return_best": "that of the best episode of each set, averaged over the sets",
    "slowdown": "mean over the jobs that training episodes booked",
    "completion": "the same of the completion time, steps",
    "unfinished": "jobs that training episodes did not book",
    "advantage_std": "root of the mean square of the advantages",
    "critic_loss": "mean square error of the critic, in units of the usual return; a2c only",
    "iteration_cpu_s": "CPU time of the iteration, s",
    "validation_slowdown": "mean over the jobs of the validation sets",
    "validation_completion": "the same of the completion time, steps",
    "validation_waiting": "the same of the waiting time, steps",
    "validation_makespan": "mean over the validation sets, steps",
    "validation_utilisation": "mean over the validation sets of the share of units in use",
    "improvement": "1 - ratio of what the objective asks for on the validation sets to that of the best heuristic",
}
