"""What is measured while a policy learns on clusters."""

from __future__ import annotations

from decima.learning.metrics import COMMON

__all__ = ["METRICS", "OBJECTIVES"]

#: What rewards add up to -> the metric that measures it on the validation sequences.
OBJECTIVES = {"jct": "validation_mean_jct_s", "makespan": "validation_makespan_s"}

#: Name -> what it is.
METRICS: dict[str, str] = COMMON | {
    "mean_jct_s": "mean JCT of the jobs that training episodes completed, averaged over episodes, s",
    "advantage_std": "standard deviation of the advantages before they are normalised",
    "loss": "of the policy, without the entropy bonus, averaged over the gradient steps",
    "kl": "divergence of the policy after the update from the one that acted, nats; ppo only",
    "clipped": "share of samples whose ratio of probabilities was clipped; ppo only",
    "entropy_weight": "of the entropy bonus",
    "decisions": "all decisions",
    "completed_jobs": "jobs that the training episodes completed",
    "mean_end_s": "mean of the distribution that the episodes' ends are drawn from, s; with a curriculum only",
    "rollout_cpu_s": "CPU time of the episodes, over all processes, s",
    "update_cpu_s": "CPU time of the update, s",
    "rollout_ms_per_decision": "CPU time of the episodes per decision, ms",
    "validation_mean_jct_s": "mean JCT on the validation sequences, greedy, s; without settings only",
    "validation_makespan_s": "the same for the makespan, s; without settings only",
    "validation_change_mean": "by what fraction JCT is above that of validation.against, averaged over cells; with "
    "settings only",
    "validation_change_worst": "what the worst of the cells loses beyond its interval, 0 if none does; with settings "
    "only",
    "improvement": "1 - ratio of validation JCT (or makespan, if that is rewarded) to that of the tuned weighted fair; "
    "with settings how much smaller it is than that of validation.against on average, less what the worst cell loses",
}
