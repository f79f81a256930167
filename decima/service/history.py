"""History: profiles of earlier jobs from event logs, and look-up of live jobs among them.

A SQL query is looked up by the operators of its plan, any other job by its name and DAG. A job without a description
has the name of its last stage, its call site. Without a profile of this name, it is looked up by its DAG alone, if the
DAG is large enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import networkx as nx

from decima.service.protocol import JobMessage, StageMessage
from simulator.cluster.config import Knowledge
from simulator.cluster.estimates import predictor_for, typical_durations
from simulator.cluster.estimators import FittedEstimator
from workloads.arrivals import WorkPrior
from workloads.job import JobProfile, TaskDurations
from workloads.spark.names import without_run

if TYPE_CHECKING:
    from workloads.sources.workload_file import Workload

__all__ = ["History", "is_skipped", "match_stages"]

#: Smallest number of stages of a DAG that identifies a job without a name.
MIN_IDENTIFYING_STAGES = 3
#: Estimation errors of profiles from history. In 3Sigma (EuroSys 2018), 8 to 23 % of predicted durations are wrong by
#: a factor of two or more, which corresponds to a standard deviation of 0.5; stages of one run differ by less.
ERRORS = Knowledge(job_error=0.5, stage_error=0.2)


class History:
    """Profiles of earlier jobs.

    Args:
        profiles: profiles with unique names.
        plans: operators of a physical plan -> names of profiles with this plan.
        knowledge: estimation errors of the profiles.
        prior: distribution of job sizes; by default estimated from ``profiles``, None without profiles.
        predictor: source of estimates of jobs without history; None: they have typical task times.
    """

    def __init__(
        self,
        profiles: Iterable[JobProfile] = (),
        plans: dict[tuple[str, ...], list[str]] | None = None,
        knowledge: Knowledge = ERRORS,
        prior: WorkPrior | None = None,
        predictor: FittedEstimator | None = None,
    ) -> None:
        self.knowledge = knowledge
        self.predictor = predictor
        self._profiles = {profile.name: profile for profile in profiles}
        self.prior = prior
        self.typical = TaskDurations.constant(1.0)
        if self._profiles:
            all_profiles = tuple(self._profiles.values())
            self.prior, self.typical = prior or WorkPrior.of(all_profiles), typical_durations(all_profiles)
        self._plans = plans or {}
        self._by_name: dict[str, list[JobProfile]] = {}
        self._by_size: dict[int, list[JobProfile]] = {}
        for profile in self._profiles.values():
            self._by_name.setdefault(_name_of_runs(profile.name), []).append(profile)
            if profile.num_stages >= MIN_IDENTIFYING_STAGES:
                self._by_size.setdefault(profile.num_stages, []).append(profile)

    @classmethod
    def of(cls, workload: Workload, estimator: str | FittedEstimator = "forest") -> History:
        """Return the history in a workload file. Plans come from the workload's field ``about["plans"]``.

        Args:
            workload: the workload in the file.
            estimator: estimator of jobs without history, see ``Knowledge``; ``forest`` is fitted to these jobs.
        """
        plans: dict[tuple[str, ...], list[str]] = {}
        plans_by_name = workload.about.get("plans")
        for name, plan in (plans_by_name if isinstance(plans_by_name, dict) else {}).items():
            if isinstance(plan, list) and all(isinstance(operator, str) for operator in plan):
                plans.setdefault(tuple(plan), []).append(name)
        measured = {name: getattr(workload.imperfections, name) for name in ("job_error", "stage_error")}
        errors = {name: error for name, error in measured.items() if error is not None}
        # Drivers with an older plugin report neither bytes nor operators of stages.
        predictor = predictor_for(estimator, workload.profiles, also_dag_only=True)
        return cls(workload.profiles, plans, replace(ERRORS, **errors), predictor=predictor)

    def __len__(self) -> int:
        return len(self._profiles)

    def find(self, job: JobMessage) -> JobProfile | None:
        """Return the best matching profile of a live job; None without a match."""
        made = [stage for stage in job.stages if not is_skipped(stage)]
        candidates: list[JobProfile] = []
        if job.plan is not None:
            names = self._plans.get(job.plan, ())
            candidates = [self._profiles[name] for name in names if name in self._profiles]
        if not candidates and job.name:
            candidates = self._by_name.get(_name_of_runs(job.name), [])
        if not candidates and not job.name and job.plan is None:
            candidates = self._by_name.get(job.stages[-1].name, []) if job.stages else []
        if not candidates and not job.name and job.plan is None:
            tasks = sorted(stage.tasks for stage in made)
            same_size = self._by_size.get(len(made), ())
            candidates = [
                profile for profile in same_size if sorted(s.num_tasks for s in profile.stages) == tasks
            ]
        fitting = [(_task_difference(made, profile), profile) for profile in candidates]
        matching = [(difference, profile) for difference, profile in fitting if difference is not None]
        return min(matching, key=lambda match: match[0])[1] if matching else None


def is_skipped(stage: StageMessage) -> bool:
    """Return whether Spark skips a stage because an earlier stage has produced its output."""
    return stage.state == "done" and stage.mean_ms is None


def match_stages(stages: Sequence[StageMessage], profile: JobProfile) -> list[int] | None:
    """Match the stages that Spark has created so far to stages of a profile.

    A stage is matched to a profile stage with the same parents if Spark reports parents. Under adaptive execution
    Spark creates a stage when its parents are complete, and does not report them.

    Args:
        stages: created stages in topological order.

    Returns:
        Index in the profile of each stage; None if the stages do not match.
    """
    if len(stages) > profile.num_stages:
        return None
    taken: dict[int, int] = {}
    free, ancestors = set(range(profile.num_stages)), _ancestors(profile)
    for stage in stages:
        parents = {taken[parent] for parent in stage.parents if parent in taken}

        def rating(place: int, stage: StageMessage = stage, parents: set[int] = parents) -> tuple[int, ...]:
            wanted = profile.parents[place]
            return (
                len(parents ^ set(wanted)) if stage.parents else sum(parent in free for parent in wanted),
                profile.stages[place].num_tasks != stage.tasks,
                not stage.name or profile.stages[place].name != stage.name,
                abs(profile.stages[place].num_tasks - stage.tasks),
                place,
            )

        possible = [index for index in free if not stage.parents or parents <= ancestors[index]]
        if not possible:
            return None
        best = min(possible, key=rating)
        taken[stage.id] = best
        free.remove(best)
    return [taken[stage.id] for stage in stages]


@lru_cache(maxsize=2_000)
def _ancestors(profile: JobProfile) -> tuple[frozenset[int], ...]:
    graph = profile.to_networkx()
    return tuple(frozenset(nx.ancestors(graph, index)) for index in range(profile.num_stages))


def _task_difference(stages: Sequence[StageMessage], profile: JobProfile) -> int | None:
    """Return the total difference in numbers of tasks from a profile's stages; None if the stages do not match."""
    matched = match_stages(stages, profile)
    if matched is None:
        return None
    pairs = zip(stages, matched, strict=True)
    return sum(abs(profile.stages[index].num_tasks - stage.tasks) for stage, index in pairs)


def _name_of_runs(name: str) -> str:
    """Return what the names of all runs of a query have in common, without the number that makes a name unique."""
    base, bracket, run = name.rpartition(" (")
    return without_run(base if bracket and run[:-1].isdigit() and run.endswith(")") else name)
