"""Figure 22 of the Decima paper: scheduling without knowing how long tasks take."""

from __future__ import annotations

from collections.abc import Sequence

from decima.evaluation.tuning import HINDSIGHT
from decima.policy.config import Feature
from decima.studies.compared import compared
from decima.studies.outcome import FULL, Outcome
from decima.studies.study import Study, Variant

__all__ = ["fig22"]

#: Features that hold durations.
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
    """Compare the full policy with one that sees only numbers of tasks and the DAG, on batches of 20 jobs."""
    full = study.batch_variant()
    shape = full.config.policy.build()
    config = study.config(
        "batch",
        policy__overrides__stage_features=_blind(shape.stage_features),
        policy__overrides__job_features=_blind(shape.job_features),
    )
    schedulers = {
        "fair": "fair",
        HINDSIGHT: HINDSIGHT,
        FULL: study.full_policy(full),
        BLIND: study.train(Variant("batch-no-durations", config))["batch-no-durations"],
    }
    conditions = study.conditions(num_experiments=50, num_jobs=20)
    return compared(
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
    return [feature.model_dump(mode="json") for feature in features if feature.name not in DURATIONS]
