"""Figure 22 of the Decima paper: scheduling without knowing how long tasks take."""

from __future__ import annotations

from collections.abc import Sequence

from decima.evaluation.tuning import HINDSIGHT
from decima.policy.config import Feature
from decima.studies.study import Study, Variant
from decima.studies.study_report import FULL, Outcome

__all__ = ["fig22"]

#: Features that tell durations.
DURATIONS = (
    "mean_task_ms",
    "unclaimed_work_ms",
    "remaining_work_ms",
    "job_work_ms",
    "lasting_executors",
    "thrifty_executors",
    "fast_executors",
)
BLIND = "without durations"


def fig22(study: Study) -> Outcome:
    """Batches of 20 jobs: the full policy, and one that sees numbers of tasks and the DAG only."""
    full = study.batch_variant()
    shape = full.config.policy.build()
    blind = Variant(
        "batch-no-durations",
        study.config(
            "batch",
            policy__overrides__stage_features=_blind(shape.stage_features),
            policy__overrides__job_features=_blind(shape.job_features),
        ),
    )
    schedulers = {
        "fair": "fair",
        HINDSIGHT: HINDSIGHT,
        FULL: study.full_policy(full),
        BLIND: study.train(blind)[blind.name],
    }
    conditions = study.conditions(num_experiments=50, num_jobs=20)
    return Outcome(
        "fig22",
        f"Batches of {conditions.num_jobs} {study.workload.name} jobs, {study.executors} executors",
        study.compare({"": (conditions, schedulers)}),
        paper={("", BLIND): "beats the best heuristic"},
        notes=(
            f"{BLIND}: the policy is not told how long tasks take, which the weighted fair schedulers are.",
            "The paper: without durations Decima does worse than with them, and still better than the best heuristic; "
            "the figures are not given in words.",
        ),
    )


def _blind(features: Sequence[Feature]) -> list[dict[str, object]]:
    """Those that tell nothing of durations."""
    return [feature.model_dump(mode="json") for feature in features if feature.name not in DURATIONS]
