"""Evaluation settings and comparisons from options of ``decima compare``; times are seconds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from decima import evaluation
from decima.evaluation import DEFAULT_SCHEDULERS, MOVING_DELAY, RULES_FOR, SCHEDULERS_THAT_PACK
from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import CompareError, Conditions
from decima.policy.shipped import objective_policy
from decima.registry import LEARNED, split_names
from decima.schedulers.guarantees import Guarantees
from simulator.cluster.config import SEMANTICS, ClusterConfig, Knowledge, parse_classes
from simulator.cluster.faults import Faults
from workloads.arrivals import JobSequence
from workloads.carbon import Signal
from workloads.drift import Drift
from workloads.errors import check_all, check_number, check_one_of, check_whole, did_you_mean
from workloads.job import JobProfile
from workloads.sources.carbon import open_signal
from workloads.sources.open import EMBEDDED, open_drift, open_workload
from workloads.sources.workload_file import Workload
from workloads.transform import AttributeDistribution

if TYPE_CHECKING:
    import pandas as pd

    from decima.registry import SchedulerLike

__all__ = ["Chosen", "Jobs", "choose_schedulers", "compare", "make_conditions"]

#: Jobs of a comparison: a name or path for ``open_workload``, or a workload, a job sequence, or profiles.
Jobs = str | Path | Workload | JobSequence | Sequence[JobProfile]
Arrivals = Literal["batch", "poisson"]
_Setting = TypeVar("_Setting", Knowledge, Faults)


def make_conditions(
    *,
    workload: Jobs = EMBEDDED,
    arrivals: Arrivals = "batch",
    interval: float = 25.0,
    jobs: int = 20,
    executors: int = 50,
    classes: str | None = None,
    memory_demand: Literal["own", "uniform"] = "own",
    moving_delay: float | None = None,
    semantics: str = "paper",
    engine: Literal["compiled", "simpy"] = "compiled",
    window: float | None = None,
    drift: str | Drift | None = None,
    deadlines: float | tuple[float, float] | None = None,
    tenants: int | None = None,
    weights: Sequence[float] | None = None,
    faults: Faults | Mapping[str, Any] | None = None,
    knowledge: Knowledge | Mapping[str, float] | None = None,
    carbon: str | Signal | None = None,
    carbon_start: float | None = None,
    executor_watts: float = 100.0,
    idle_watts: float = 0.0,
    seeds: int = 20,
    seed: int = 0,
) -> Conditions:
    """Build the evaluation setting of a comparison from the options of ``decima compare``, which have the same names.

    Args:
        workload: a name or path for ``open_workload``; or a workload, profiles, or a job sequence.
        arrivals: all jobs at time 0, or a Poisson process.
        interval: mean time between Poisson arrivals, s.
        jobs: number of jobs in each experiment.
        executors: number of executors; ignored with ``classes``.
        classes: executor classes, such as ``25x0.5,25x1``; see ``simulator.cluster.config.parse_classes``.
        memory_demand: memory demand of tasks: the workload's ``own``, or ``uniform``, drawn for each stage.
        moving_delay: delay of an executor that changes jobs, s; by default the workload's, else 2.
        semantics: ``paper``, ``decima-sim``, ``trace`` or ``spark``.
        engine: the compiled simulator, or the readable reference.
        window: length of the windows into which an exact job sequence is cut, s.
        drift: change within a Poisson process, ``AT:RATE[:WORKLOAD]``, see ``workloads.sources.open.open_drift``.
        deadlines: slack of drawn deadlines, or its least and most, see ``workloads.JobAttributes``; by default those of
            the workload.
        tenants: number of tenants to draw from; by default those of the workload.
        weights: weights to draw from; by default those of the workload.
        faults: faults of the cluster, or some of its fields by name; by default failures measured for the workload,
            else none.
        knowledge: errors of the estimates that schedulers see, or some of its fields by name; by default those
            measured for the workload, else none.
        carbon: carbon intensity or price of electricity, or ``FILE[:SCALE]`` for ``workloads.open_signal``.
        carbon_start: time in the signal at the start of each experiment, s; by default drawn from its seed.
        executor_watts: power of an executor that runs a task or moves, W.
        idle_watts: power of an idle executor, W.
        seeds: number of experiments.
        seed: seed of the first experiment.

    Raises:
        CompareError: an option has a wrong type or is out of range.
        ConfigError: an impossible cluster, or a stage that no executor can run.
        WorkloadError: the workload cannot be read.
    """
    found = _workload(workload)
    if moving_delay is None:
        measured_ms = found.measured_moving_delay_ms
        moving_delay = MOVING_DELAY if measured_ms is None else measured_ms / 1000
    drift = open_drift(drift) if isinstance(drift, str) else drift
    conditions = Conditions(
        workload=found,
        cluster=ClusterConfig(
            num_executors=executors,
            executor_classes=() if classes is None else parse_classes(classes),
            moving_delay_ms=check_number(moving_delay, "moving_delay", CompareError) * 1000,
            semantics=SEMANTICS[check_one_of(semantics, SEMANTICS, "semantics", CompareError)],
            engine=engine,
            faults=_or_measured(Faults, faults, found),
            knowledge=_or_measured(Knowledge, knowledge, found),
            signal=open_signal(carbon) if isinstance(carbon, str) else carbon,
            executor_watts=executor_watts,
            idle_watts=idle_watts,
        ),
        arrivals=arrivals,
        interval_ms=check_number(interval, "interval", CompareError) * 1000,
        num_jobs=check_whole(jobs, "jobs", CompareError, least=1),
        memory_demand=memory_demand,
        num_experiments=check_whole(seeds, "seeds", CompareError, least=1),
        seed=seed,
        window_ms=None if window is None else check_number(window, "window", CompareError) * 1000,
        drift=drift,
        attributes=AttributeDistribution(
            _slack(deadlines),
            tenants or 0,
            () if weights is None else check_all(weights, Real, "weights", CompareError),  # type: ignore[arg-type]
        ),
        signal_start_ms=None
        if carbon_start is None
        else check_number(carbon_start, "carbon_start", CompareError) * 1000,
    )
    if drift is not None and (end_ms := (conditions.num_jobs - 1) * conditions.interval_ms) <= drift.at_ms:
        raise CompareError(
            f"the drift at {drift.at_ms / 1000:g} s comes too late: {jobs} jobs {interval:g} s apart arrive within "
            f"{end_ms / 1000:g} s"
        )
    return conditions


class Chosen(NamedTuple):
    """The schedulers of a comparison.

    Attributes:
        schedulers: argument of ``Comparison``.
        policy: name or file of the policy of plain ``decima``; None for the best fit.
        left_out: shipped policy that is left out -> quantities that are out of its training distribution.
    """

    schedulers: Sequence[SchedulerLike] | Mapping[str, SchedulerLike]
    policy: str | None
    left_out: dict[str, list[str]]


def choose_schedulers(
    conditions: Conditions,
    schedulers: str | Sequence[SchedulerLike] | Mapping[str, SchedulerLike] | None = None,
    checkpoint: str | Path | None = None,
    metric: str = "mean",
) -> Chosen:
    """Return the schedulers of a comparison.

    Args:
        schedulers: comma-separated names; names, objects and classes; or displayed name -> scheduler. By default
            common heuristics, those for the metric, and ``decima`` if the conditions are in the training distribution
            of a shipped policy, and the metric has no rules of its own or a policy was trained for it.
        checkpoint: policy of ``decima``, which is then compared in any case.
        metric: metric to compare by, a name of ``--show``.

    Raises:
        CompareError: ``schedulers`` has a wrong type.
        PolicyFileError: a policy cannot be read.
    """
    packs = len(conditions.cluster.executor_classes) > 1
    named = schedulers
    if named is None:
        named = SCHEDULERS_THAT_PACK if packs else DEFAULT_SCHEDULERS
        if metric in RULES_FOR:
            named = f"{named.removesuffix(LEARNED)}{RULES_FOR[metric]},{LEARNED}"
    if not isinstance(named, str | Mapping | Sequence):
        raise CompareError(f"schedulers must be names, schedulers or a dictionary of such, got {named!r:.60}")
    if isinstance(named, str):
        named = split_names(named)
    policy = None if checkpoint is None else str(checkpoint)
    if policy is not None and LEARNED not in named:
        return Chosen(
            {**named, LEARNED: LEARNED} if isinstance(named, Mapping) else [*named, LEARNED], policy, {}
        )
    if policy is not None or schedulers is not None or isinstance(named, Mapping):
        return Chosen(named, policy, {})
    if metric in RULES_FOR and objective_policy(metric) is None:
        return Chosen([name for name in named if name != LEARNED], None, {})
    # The default excludes policies that may collapse out of their distribution.
    fitting = evaluation.best_fit(conditions, metric)
    if fitting is not None and not fitting[1]:
        return Chosen(named, fitting[0], {})
    others = [name for name in named if name != LEARNED]
    return Chosen(others, None, {} if fitting is None else {fitting[0]: fitting[1]})


def compare(
    schedulers: str | Sequence[SchedulerLike] | Mapping[str, SchedulerLike] | None = None,
    *,
    checkpoint: str | Path | None = None,
    training: int = 6,
    show: str | Sequence[str] | None = None,
    workers: int | str = 1,
    floor: Mapping[str, float] | None = None,
    ceiling: Mapping[str, float] | None = None,
    no_later_than: float | None = None,
    **setting: Any,
) -> pd.DataFrame:
    """Compare schedulers on the same job sequences with the same task noise, as ``decima compare`` does.

    Args:
        schedulers: names of ``decima schedulers`` (a list, or comma-separated); custom schedulers: objects, classes,
            or functions of an observation; or displayed name -> scheduler. By default those of the command.
        checkpoint: name or file of the policy of ``decima``, which is then compared in any case.
        training: number of sequences on which ``weighted-fair`` is tuned.
        show: metrics as in ``--show``; ``unfairness`` and ``jain`` are measured only if they are named.
        workers: number of processes, or ``ray`` (see ``decima.workers.pool``). With several processes, schedulers
            must be importable, and a script needs ``if __name__ == "__main__":``.
        floor: tenant -> least share of the executors while it has work; schedulers are compared with and without.
        ceiling: tenant -> largest share of the executors.
        no_later_than: largest JCT over that under fair sharing.
        setting: the evaluation setting, options of ``make_conditions``, such as ``workload``, ``jobs`` and ``seeds``.

    Returns:
        ``Comparison.runs``, a tidy table with one row per scheduler and seed; columns ``scheduler``, ``seed``,
        ``mean_jct_s``, ``p95_jct_s``, ``makespan_s``, ``utilisation``, .. For paired differences:
        ``table.pivot(index="seed", columns="scheduler", values="mean_jct_s")``.

    Raises:
        CompareError: an option has a wrong type or is out of range, or a scheduler failed.
        SchedulerError: an unknown scheduler.

    Examples:
        >>> import decima
        >>> table = decima.compare("fifo,fair", seeds=2, jobs=5, executors=10, workload="synthetic")
        >>> table.groupby("scheduler").mean_jct_s.mean().idxmin()
        'fair'
    """
    for name in setting:
        if name not in _passed_on.parameters:
            near = did_you_mean(name, _names)
            raise TypeError(f"compare() has no option {name!r}{near}: expected {', '.join(_names)}")
    conditions = make_conditions(**setting)
    metrics = show.split(",") if isinstance(show, str) else show or ()
    chosen = choose_schedulers(conditions, schedulers, checkpoint, metrics[0] if metrics else "mean")
    comparison = Comparison(
        conditions,
        chosen.schedulers,
        policy=chosen.policy,
        num_training=training,
        keep=False,
        show=metrics,
        guarantees=Guarantees(
            floor or {}, ceiling or {}, math.inf if no_later_than is None else no_later_than
        ),
    )
    comparison.run(workers)
    return comparison.runs


# Help texts and editors show the options of ``make_conditions`` in place of ``setting``.
_own, _passed_on = (inspect.signature(each) for each in (compare, make_conditions))
_parameters = [*list(_own.parameters.values())[:-1], *_passed_on.parameters.values()]
_names = [each.name for each in _parameters]
compare.__signature__ = _own.replace(parameters=_parameters)  # type: ignore[attr-defined]


def _slack(deadlines: float | Sequence[float] | None) -> tuple[float, float] | None:
    if deadlines is None:
        return None
    given = tuple(deadlines) if isinstance(deadlines, Sequence) else (deadlines,)
    if len(given) not in (1, 2):
        raise CompareError(f"deadlines must be one slack or two, got {deadlines!r:.60}")
    return given[0], given[-1]


def _or_measured(
    kind: type[_Setting], given: _Setting | Mapping[str, Any] | None, workload: Workload
) -> _Setting:
    """Build errors of estimates, or faults, from given fields, and from measured fields of the workload."""
    if isinstance(given, kind):
        return given
    known, names = workload.imperfections.settings(), [each.name for each in fields(kind)]
    measured = {name: known[name] for name in names if name in known}
    try:
        return kind(**{**measured, **(given or {})})  # type: ignore[dict-item]
    except TypeError:
        what, found = kind.__name__, f"{', '.join(names)}, got {given!r:.60}"
        raise CompareError(f"{what.lower()} must be a {what}, or some of {found}") from None


def _workload(jobs: Jobs) -> Workload:
    if isinstance(jobs, str | Path):
        return open_workload(jobs)
    if isinstance(jobs, Workload):
        return jobs
    if isinstance(jobs, JobSequence):
        return Workload(tuple(dict.fromkeys(jobs.profiles)), jobs, "own")
    return Workload(check_all(jobs, JobProfile, "workload", CompareError), None, "own")
