"""Graphene ("Graphene: Packing and dependency-aware scheduling", OSDI 2016): offline planner, online scheduler.

Greedy schedulers perform badly with *troublesome* tasks: long tasks that start late, and tasks that leave gaps.
Graphene places troublesome tasks first, into an empty space, and then all other tasks around them, in orders that are
always feasible. The best set of troublesome tasks is unknown, so the planner tries many candidate sets and keeps the
most compact plan.

The online scheduler (section 5) gives priorities to tasks by the plan of their job. Baselines of the planner: list
scheduling in random order, by critical path, and by Tetris' alignment.

Graphene* is the baseline of Decima (section 7.1, appendix E): weighted fair shares, and simultaneous starts of
troublesome stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.schedulers.fair import WeightedFair
from decima.schedulers.graphene.project import Plan, Project, tasks_in_order
from decima.schedulers.graphene.space import ROUNDING, list_schedule, mirrored, serial_schedule, surrounded
from decima.schedulers.packing import Tetris, demands
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = [
    "Graphene", "GrapheneStar", "critical_path_first", "graphene", "project_of", "random_order", "tetris",
    "troublesome_sets", "troublesome_stages", "with_between",
]  # fmt: skip

#: Step between candidate thresholds of troublesome tasks.
STEP = 0.05

TROUBLESOME, PARENTS, CHILDREN, OTHERS = range(4)
FORWARD, BACKWARD = 0, 1
#: Orders of the other sets: parents backward in time, children forward, others in either direction if feasible.
AROUND = (
    ((OTHERS, FORWARD), (PARENTS, BACKWARD), (CHILDREN, FORWARD)),
    ((OTHERS, BACKWARD), (PARENTS, BACKWARD), (CHILDREN, FORWARD)),
    ((OTHERS, FORWARD), (CHILDREN, FORWARD), (PARENTS, BACKWARD)),
    ((OTHERS, BACKWARD), (CHILDREN, FORWARD), (PARENTS, BACKWARD)),
    ((PARENTS, BACKWARD), (OTHERS, FORWARD), (CHILDREN, FORWARD)),
    ((CHILDREN, FORWARD), (OTHERS, BACKWARD), (PARENTS, BACKWARD)),
)


def graphene(project: Project, *, justified: bool = False) -> Plan:
    """Plan a project with Graphene.

    The project is split at barriers: each stage is either before or after a barrier. For each part, the result is the
    shortest one of all plans of the search and of the greedy list schedules in the order of their tasks.

    Args:
        project: the project.
        justified: also shift all tasks of a plan to its end, in order of their ends, and back to its start, as long as
            the plan becomes shorter (double justification: Valls, Ballestin and Quintanilla, 2005).
    """
    start, begin = np.empty(project.stage_of.size), 0.0
    for stages in _parts(project):
        part = project.part(stages)
        best = _best(part, justified)
        tasks = np.concatenate([np.arange(*project.dag.first[[stage, stage + 1]]) for stage in stages])
        start[tasks] = begin + best.start
        begin += best.makespan
    return Plan(project, start)


def troublesome_sets(project: Project) -> list[NDArray[np.bool_]]:
    """Return the distinct candidate sets of troublesome stages, bool [n] each.

    A stage is in a set if its LongScore is at least one threshold (long tasks), or its FragScore at most another (tasks
    pack badly). A set also contains all stages between two of its stages, so that no other stage must fit between them.
    """
    longest = project.durations.max()
    long = project.durations / longest if longest > 0 else np.ones(len(project))
    with np.errstate(invalid="ignore"):
        packs = np.where(project.work > 0, project.work / project.alone, 1.0)
    thresholds = np.arange(1, round(1 / STEP) + 1) * STEP
    is_long = long >= thresholds[:, None, None] - ROUNDING
    packs_badly = packs <= thresholds[:, None] + ROUNDING
    chosen = np.unique((is_long | packs_badly).reshape(-1, len(project)), axis=0)
    return list(np.unique(with_between(chosen, project.order, project.parents), axis=0))


def with_between(
    chosen: NDArray[np.bool_], order: Iterable[int], parents: Sequence[Sequence[int]]
) -> NDArray[np.bool_]:
    """Return sets of stages plus all stages on a path between two stages of a set.

    Time and memory are linear in the number of edges, so that a job may have many thousands of stages.

    Args:
        chosen: sets of stages, bool [..., n].
        order: stages in a topological order.
        parents: parents of each stage.

    Returns:
        The larger sets, bool [..., n].
    """
    order = list(order)
    after, before = np.zeros_like(chosen), np.zeros_like(chosen)  # below, above a stage of the set
    for stage in order:
        for parent in parents[stage]:
            after[..., stage] |= chosen[..., parent] | after[..., parent]
    for stage in reversed(order):
        for parent in parents[stage]:
            before[..., parent] |= chosen[..., stage] | before[..., stage]
    return chosen | (after & before)


def random_order(project: Project, seed: int = 0) -> Plan:
    """Plan by list scheduling: start the first ready task that fits, in random order."""
    return _listed(project, np.random.default_rng(seed).permutation(project.stage_of.size).astype(np.float64))


def critical_path_first(project: Project) -> Plan:
    """Plan by list scheduling: start the fitting ready task with the longest path to the end."""
    return _listed(project, project.paths(project.durations)[project.stage_of])


def tetris(project: Project) -> Plan:
    """Plan by list scheduling: start the fitting ready task with the best alignment with the free resources.

    Alignment is the dot product of demand and free resources, as shares of the capacity (Tetris, SIGCOMM 2014, section
    3.2).
    """
    return Plan(project, list_schedule(project.dag, np.zeros(project.stage_of.size), True))


def _parts(project: Project) -> list[NDArray[np.int64]]:
    """Return the stages of each part, from one barrier to the next.

    In ascending order of the number of ancestors, stage k (from 0) is a barrier if it has k ancestors: then this stage
    and all later stages depend on all earlier stages.
    """
    waits = project.before.sum(axis=0)
    order = np.argsort(waits, kind="stable")
    barriers = np.flatnonzero(waits[order] == np.arange(len(project)))
    return np.split(order, barriers[1:])


def _best(project: Project, justified: bool) -> Plan:
    """Return the shortest plan that the search finds."""
    best: NDArray[np.float64] | None = None
    shortest = np.inf
    for start in _competitors(project, justified):
        makespan = _span(project, start)
        if makespan < shortest:
            best, shortest = start, makespan
        if shortest <= project.lower_bound * (1 + ROUNDING):
            break
    assert best is not None
    return Plan(project, best)


def _competitors(project: Project, justified: bool) -> Iterator[NDArray[np.float64]]:
    """Yield the start times of all candidate plans."""
    orders = set()
    for start in _placed(project):
        yield start
        tasks = tasks_in_order(project, start)
        sequence = project.stage_of[tasks]
        if sequence.tobytes() in orders:
            continue
        orders.add(sequence.tobytes())
        urgency = np.empty(start.size)
        urgency[tasks] = -np.arange(start.size)
        for greedy in (serial_schedule(project.dag, sequence), list_schedule(project.dag, urgency, False)):
            yield greedy
            if justified:
                yield from _justified(project, greedy)


def _placed(project: Project) -> Iterator[NDArray[np.float64]]:
    """Yield the start times of Graphene's plans: each troublesome set first, the other stages around it."""
    dag, mirror, before = project.dag, mirrored(project.dag), project.before
    for troublesome in troublesome_sets(project):
        sets = np.full(len(project), OTHERS)
        sets[before @ troublesome] = PARENTS
        sets[troublesome @ before] = CHILDREN
        sets[troublesome] = TROUBLESOME
        for way in (FORWARD, BACKWARD):
            for around in AROUND if (sets == OTHERS).any() else AROUND[:4:2]:
                yield surrounded(dag, mirror, sets, np.array([(TROUBLESOME, way), *around]))


def _justified(project: Project, start: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Yield the start times of plans by repeated double justification, as long as plans become shorter."""
    durations = project.durations[project.stage_of]
    mirror = mirrored(project.dag)
    makespan = np.inf
    while _span(project, start) < makespan:
        makespan = _span(project, start)
        by_end = tasks_in_order(project, start + durations)[::-1]
        late = -(serial_schedule(mirror, project.stage_of[by_end]) + durations)
        start = serial_schedule(project.dag, project.stage_of[tasks_in_order(project, late)])
        yield start


def _span(project: Project, start: NDArray[np.float64]) -> float:
    """Return the time from the first start to the last end."""
    return float((start + project.durations[project.stage_of]).max() - start.min())


def _listed(project: Project, priority: NDArray[np.float64]) -> Plan:
    return Plan(project, list_schedule(project.dag, priority, False))


#: Maximum number of planned tasks of a stage. With more tasks, a planned task represents several tasks.
MOST_TASKS = 32


class Graphene(Tetris):
    """Plan each job at its arrival; prefer tasks that are early in their plan, pack well and belong to short jobs.

    The score is ``priority * alignment - remaining * remaining work of the job``, with both terms on the same scale on
    average. The plan of a job assumes that the job has the whole cluster.

    Args:
        remaining: weight of the remaining work.
        fairness: share of the jobs that are excluded, those with the most executors; at least 0 and below 1.

    Raises:
        ValueError: a parameter is out of range.
    """

    def __init__(self, remaining: float = 0.2, fairness: float = 0.0) -> None:
        super().__init__(remaining, fairness)
        self._plans: PerJob[_Plans] = PerJob(_priorities, _joined)

    def decide(self, observation: Observation) -> Decision | None:
        """Assign the offered executors to tasks, highest score first, and return the part of the best task's stage."""
        stages = self.candidates(observation)
        unclaimed = observation.unclaimed_tasks[stages][:, None]
        next_tasks = np.arange(min(observation.offered, int(unclaimed.max())))
        urgency = self._urgency(observation, stages, next_tasks)
        needs, offered = demands(observation)
        score = (needs[stages] @ offered)[:, None] * urgency
        score -= self.penalty(observation, stages, needs, float(score[:, 0].mean()))[:, None]
        score[next_tasks >= unclaimed] = -np.inf
        taken = np.argsort(-score, axis=None, kind="stable")[: observation.offered] // next_tasks.size
        stage = int(stages[taken[0]])
        count = int((taken == taken[0]).sum())
        return Decision(stage, observation.held(int(observation.stage_job[stage])) + count)

    def _urgency(
        self, observation: Observation, stages: NDArray[np.int64], next_tasks: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the priorities of each stage's next tasks in the plan, float64 [stages, tasks]."""
        plans, num_tasks = self._plans(observation), observation.num_tasks[stages][:, None]
        planned = plans.planned[stages][:, None]
        tasks = num_tasks - observation.unclaimed_tasks[stages][:, None] + next_tasks
        planned_task = np.minimum(tasks * planned // num_tasks, planned - 1)
        urgency: NDArray[np.float64] = plans.priority[plans.first[stages][:, None] + planned_task]
        return urgency


def project_of(profile: JobProfile, config: ClusterConfig) -> Project:
    """Return a job as a project whose resources are executors.

    Executor classes are sorted by memory, then CPU. Resource k is the number of executors at least as large as class k.
    A task takes one unit of each resource up to its smallest fitting class, so that no plan exceeds the executors.
    """
    classes = sorted(
        config.executor_classes, key=lambda executor_class: (executor_class.memory, executor_class.cpu)
    )
    at_least = np.cumsum([executor_class.count for executor_class in classes][::-1])[::-1]
    least = [
        next(k for k, executor_class in enumerate(classes) if executor_class.fits(stage))
        for stage in profile.stages
    ]
    tasks = np.array([stage.num_tasks for stage in profile.stages])
    planned = np.minimum(tasks, MOST_TASKS)
    mean_ms = np.array([stage.durations.mean_ms for stage in profile.stages])
    takes = np.arange(len(classes)) <= np.array(least)[:, None]
    # A planned task that represents several tasks takes as many executors, or longer if the cluster has fewer.
    stands_for = tasks / planned
    most = at_least[least]
    return Project(
        durations=mean_ms * np.maximum(stands_for / most, 1.0),
        demands=takes * np.minimum(stands_for, most)[:, None],
        capacity=at_least.astype(np.float64),
        parents=profile.parents,
        num_tasks=planned,
    )


class _Plans(NamedTuple):
    """Priorities of planned tasks, float64 [N], stage by stage, the most urgent task of a stage first.

    ``first``, int64 [S]: index of each stage's first priority; ``planned``, int64 [S]: number of its priorities.
    """

    priority: NDArray[np.float64]
    first: NDArray[np.int64]
    planned: NDArray[np.int64]


def _priorities(profile: JobProfile, config: ClusterConfig) -> _Plans:
    project = project_of(profile, config)
    priority = graphene(project).priority
    order = np.lexsort((-priority, project.stage_of))
    return _Plans(priority[order], project.dag.first[:-1], project.num_tasks)


def _joined(jobs: list[_Plans]) -> _Plans:
    begins = np.cumsum([0, *(len(job.priority) for job in jobs[:-1])])
    first = [job.first + begin for job, begin in zip(jobs, begins, strict=True)]
    return _Plans(
        np.concatenate([job.priority for job in jobs]),
        np.concatenate(first),
        np.concatenate([job.planned for job in jobs]),
    )


#: Sort keys, by which stages that are not ready come last and troublesome stages first.
UNREADY, TROUBLE = 1e12, 1e15


class GrapheneStar(WeightedFair):
    """Weighted fair shares; within a job, troublesome stages wait until all of them can start, and then go first.

    Troublesome stages are long or pack badly, see ``troublesome_stages``. A job's troublesome stages wait until all of
    them without a troublesome parent can start. They wait only while another stage of any job is schedulable.

    Args:
        alpha: exponent of the shares, see ``WeightedFair``.
        long: a stage is troublesome if its tasks take at least this fraction of the job's longest tasks.
        fragmented: a stage is troublesome if it fills at most this share of the cluster while it runs alone.

    Raises:
        ValueError: alpha is out of range.
    """

    def __init__(self, alpha: float = -1.0, long: float = 0.8, fragmented: float = 0.2) -> None:
        super().__init__(alpha)
        self._trouble: PerJob[_Trouble] = PerJob(
            lambda profile, config: _trouble(profile, config, long, fragmented), _join_trouble
        )

    def next_stage(self, observation: Observation) -> NDArray[np.int64]:
        """Return each job's next stage: first troublesome stages that need not wait, then stages by their ranks."""
        trouble, job, ready = self._trouble(observation), observation.stage_job, observation.ready_rank
        available = (ready >= 0) | (observation.remaining_tasks == 0)
        waiting = np.bincount(job, trouble.first & ~available, minlength=len(observation.jobs)) > 0
        allowed = np.flatnonzero(observation.schedulable & ~(trouble.all & waiting[job]))
        if not allowed.size:
            return observation.next_stage
        urgency = np.where(ready >= 0, ready, UNREADY) - TROUBLE * trouble.all
        order = allowed[np.lexsort((urgency[allowed], job[allowed]))]
        jobs, first = np.unique(job[order], return_index=True)
        stages = np.full(len(observation.jobs), -1)
        stages[jobs] = order[first]
        return stages


def troublesome_stages(
    profile: JobProfile, config: ClusterConfig, long: float, fragmented: float
) -> NDArray[np.bool_]:
    """Return whether each stage of a job is troublesome, bool [num_stages] (Graphene, OSDI 2016, section 4.1).

    A stage is troublesome if its tasks are long (LongScore); if it packs badly, that is its work on its dominant
    resource over the cluster's capacity (TWork) is at most ``fragmented`` times its time alone (ExecTime); or if it is
    between two troublesome stages.
    """
    classes, stages = config.executor_classes, profile.stages
    mean_ms = np.array([stage.durations.mean_ms for stage in stages])
    tasks = np.array([stage.num_tasks for stage in stages])
    needs = np.array([(stage.cpu, stage.memory) for stage in stages])
    capacity = np.array(
        [
            (executor_class.count * executor_class.cpu, executor_class.count * executor_class.memory)
            for executor_class in classes
        ]
    ).sum(axis=0)
    fitting = np.array(
        [
            sum(executor_class.count for executor_class in classes if executor_class.fits(stage))
            for stage in stages
        ]
    )
    work = tasks * (needs / np.maximum(capacity, 1e-12)).max(axis=1)
    packs = work / np.ceil(tasks / np.maximum(fitting, 1))
    chosen = (mean_ms >= long * mean_ms.max()) | (packs <= fragmented)
    return with_between(chosen, nx.topological_sort(profile.to_networkx()), profile.parents)


class _Trouble(NamedTuple):
    """Masks, bool [S] each: all troublesome stages, and the first ones, without a troublesome parent."""

    all: NDArray[np.bool_]
    first: NDArray[np.bool_]


def _trouble(profile: JobProfile, config: ClusterConfig, long: float, fragmented: float) -> _Trouble:
    chosen = troublesome_stages(profile, config, long, fragmented)
    parents = profile.parents
    # Parents are enough instead of ancestors, as all stages between two troublesome stages are troublesome.
    first = [
        bool(is_chosen) and not chosen[list(above)].any()
        for is_chosen, above in zip(chosen, parents, strict=True)
    ]
    return _Trouble(chosen, np.array(first))


def _join_trouble(jobs: list[_Trouble]) -> _Trouble:
    return _Trouble(*(np.concatenate(arrays) for arrays in zip(*jobs, strict=True)))
