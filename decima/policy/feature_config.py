"""One number that a network sees: which, and how it is scaled."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from decima.policy.parts import ours_or_own

__all__ = ["FEATURE_NAMES", "JOB_FEATURE_NAMES", "Feature"]

#: Their place is their number in the compiled code.
FEATURE_NAMES = (
    "unclaimed_tasks",
    "remaining_tasks",
    "mean_task_ms",
    "unclaimed_work_ms",
    "remaining_work_ms",
    "job_executors",
    "offered_executors",
    "local",
    "running_executors",
    "job_work_ms",
    "ready",
    "next",
    "share_executors",
    "lasting_executors",
    "unused_cpu",
    "unused_memory",
    "covering_share",
    "larger_share",
    "free_covering_executors",
    "busy_executors",
    "fitting_share",
    "delay_tasks",
    "stream",
    "rule",
    "rule_executors",
    "price",
    "thrifty_executors",
    "fast_executors",
)
#: Those that say nothing of a single stage.
JOB_FEATURE_NAMES = (
    "job_executors",
    "offered_executors",
    "local",
    "job_work_ms",
    "share_executors",
    "lasting_executors",
    "larger_share",
    "busy_executors",
    "fitting_share",
    "stream",
    "rule_executors",
    "price",
    "thrifty_executors",
    "fast_executors",
)
#: Those that are negative at times.
_SIGNED = ("local", "ready", "next", "unused_cpu", "unused_memory", "stream", "rule")

FeatureName = Annotated[str, ours_or_own(*FEATURE_NAMES)]


class Feature(BaseModel):
    """One number that the network sees of a stage or a job: ``value / scale``, or ``log(1 + value / scale)``.

    Attributes:
        name: what it is. ``unclaimed`` counts the tasks that no executor is committed to, ``remaining`` those
            that have not started; work is tasks times their mean duration, ``job_work`` that of all the job's tasks
            that have not started; ``local`` is 1 if the executors offered belong to the job, else -1; ``ready`` is 1
            if the stage's parents are complete, so that nobody need wait there, else -1; ``next`` is 1 for the stage
            of the job that classic schedulers would run next (``Observation.next_stage``), else -1; ``job_executors``,
            ``offered_executors`` and ``running_executors`` (at work on the stage) are counts; ``share_executors`` is
            the cluster's executors over the live jobs; ``lasting_executors`` how many would find work in the job's
            unclaimed tasks that fit them for 8 moving delays each, at most all; ``unused_cpu`` and ``unused_memory``
            what a task of the stage would leave unused of an executor offered, as a share of what the largest class
            has, negative where it does not fit; ``covering_share`` the share of the cluster's executors that the stage
            fits, ``larger_share`` of those at least as large as the ones offered; ``free_covering_executors`` those of
            other classes that wait and that the stage fits; ``busy_executors`` those of the job's that are at work or
            committed to it, without those offered; ``fitting_share`` the share of the job's unclaimed work that fits
            the executors offered; ``delay_tasks`` the moving delay over the mean duration of the stage's tasks;
            ``stream`` is 1 if the live jobs arrived at different times, else -1; ``rule`` is 1 for the stage that the
            rule would run next, and less for those that it would run later (``decima.schedulers.rule``);
            ``rule_executors`` how many it would let the
            job hold, as far as that is open, and ``price`` its price of executors; ``thrifty_executors`` and
            ``fast_executors`` are how many a job uses well if it is alone
            (``simulator.cluster.alone.useful_executors``). Or ``module:Class``, a ``StageFeature`` of your own.
        scale: what it is divided by, in its own unit.
        log: whether to compress it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: FeatureName
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False, strict=True)
    log: bool = False

    @model_validator(mode="after")
    def _check(self) -> Feature:
        if self.log and self.name in _SIGNED:
            raise ValueError(f"the feature {self.name} is negative at times: it has no logarithm")
        return self
