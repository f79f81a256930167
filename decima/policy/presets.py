"""Presets: configurations of policy networks by name, those of the paper, of the published code and of this project."""

from __future__ import annotations

from collections.abc import Mapping

from decima.policy.compiled.features import FEATURES
from decima.policy.config import Feature, PolicyConfig

__all__ = [
    "DECIMA_SIM_POLICY", "PACKING_POLICY", "PAPER_POLICY", "PRESETS", "PROFILED_POLICY", "RELATIVE_POLICY",
    "SHORTCUT_POLICY",
]  # fmt: skip


def _features(
    names: str, executors: float | None = None, changed: Mapping[str, tuple[float, bool]] | None = None
) -> tuple[Feature, ...]:
    """Return features with default scales, except where another scale is given.

    Args:
        names: feature names, separated by spaces.
        executors: scale of features that count executors; None for the default.
        changed: feature name -> ``scale`` and ``log``.
    """
    features = []
    for name in names.split():
        entry = FEATURES[name]
        scale = executors if executors and name.endswith("_executors") else entry.scale
        scale, log = (changed or {}).get(name, (scale, entry.log))
        features.append(Feature(name=name, scale=float(scale), log=log))
    return tuple(features)


#: The paper's network: 12,802 parameters (the paper says 12,736).
PAPER_POLICY = PolicyConfig(
    stage_features=_features(
        "unclaimed_tasks unclaimed_work_ms job_executors offered_executors local",
        executors=20,
        changed={"unclaimed_tasks": (200, False), "unclaimed_work_ms": (100_000, False)},
    ),
    all_limits=True,
)

_JOB = "job_executors local offered_executors job_work_ms"
_STAGE = (
    "unclaimed_tasks mean_task_ms unclaimed_work_ms running_executors job_executors offered_executors local ready"
    " job_work_ms"
)
#: Features of the useful parallelism of jobs.
_USEFUL = "share_executors lasting_executors thrifty_executors fast_executors"

_PLAIN_WORK = {"unclaimed_work_ms": (100_000.0, False)}

#: The paper's network with compressed features, a shortcut for raw features, and only limits with different effects.
SHORTCUT_POLICY = PolicyConfig(
    stage_features=_features(_STAGE, executors=20, changed=_PLAIN_WORK),
    job_features=_features(_JOB, executors=20),
    shortcut=True,
)

#: ``SHORTCUT_POLICY`` with features of useful parallelism, which need profiles and not only mean task durations, and
#: with the choice to leave executors idle.
PROFILED_POLICY = SHORTCUT_POLICY.model_copy(
    update={
        "stage_features": _features(f"{_STAGE} next {_USEFUL}", executors=2, changed=_PLAIN_WORK),
        "job_features": _features(f"{_JOB} {_USEFUL}", executors=2),
        "limit_scale": 2.0,
        "wait": True,
    }
)

#: Features of executor classes.
_OF_CLASSES = "larger_share busy_executors fitting_share"
_PACKING_STAGE = (
    f"{_STAGE} next {_USEFUL} {_OF_CLASSES} unused_cpu unused_memory covering_share free_covering_executors"
)

#: ``PROFILED_POLICY`` for executors of several classes, clusters of hundreds of executors, and work of any size.
PACKING_POLICY = PROFILED_POLICY.model_copy(
    update={
        "stage_features": _features(_PACKING_STAGE),
        "job_features": _features(f"{_JOB} {_USEFUL} {_OF_CLASSES}"),
        "limit_scale": 4.0,
    }
)

_RELATIVE_JOB = (
    "job_executors local offered_executors share_executors lasting_executors thrifty_executors fast_executors"
    " job_size job_width unclaimed_share done_share delay_size live_jobs stream"
)
_RELATIVE_STAGE = (
    "unclaimed_tasks running_executors ready next delay_tasks task_size path_size job_share path_share"
    f" {_RELATIVE_JOB}"
)
#: Scales of counts for clusters of any size: the logarithm still separates 1 from 2 executors.
_COUNTED = dict.fromkeys(
    [*_USEFUL.split(), "job_executors", "offered_executors", "unclaimed_tasks", "running_executors"],
    (1.0, True),
)

#: Inputs without units: times relative to those of the live jobs, counts as logarithms.
RELATIVE_POLICY = PolicyConfig(
    stage_features=_features(_RELATIVE_STAGE, changed=_COUNTED),
    job_features=_features(_RELATIVE_JOB, changed=_COUNTED),
    shortcut=True,
    wait=True,
    limit_scale=1.0,
    log_limits=True,
    root_sums=True,
)

#: The network of the published code (decima-sim): 4,770 parameters.
DECIMA_SIM_POLICY = PolicyConfig(
    stage_features=_features(
        "job_executors local offered_executors remaining_work_ms remaining_tasks",
        executors=20,
        changed={"local": (0.5, False)},
    ),
    job_features=_features(
        "job_executors local offered_executors", executors=20, changed={"local": (0.5, False)}
    ),
    embedding=8,
    hidden=(16, 8),
    head_hidden=(32, 16, 8),
    activate_embeddings=True,
    message_order="decima-sim",
    summary_aggregate=False,
    shortcut=True,
    finished_stages=True,
    all_limits=True,
)

PRESETS: dict[str, PolicyConfig] = {
    "paper": PAPER_POLICY,
    "shortcut": SHORTCUT_POLICY,
    "profiled": PROFILED_POLICY,
    "packing": PACKING_POLICY,
    "relative": RELATIVE_POLICY,
    "decima-sim": DECIMA_SIM_POLICY,
}
