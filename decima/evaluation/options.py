"""Evaluation settings and comparisons from options of ``decima compare``; times are seconds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from decima import evaluation
from decima.evaluation import DEFAULT_SCHEDULERS, RULES_FOR, SCHEDULERS_THAT_PACK
from decima.evaluation.comparison import Comparison
from decima.evaluation.compiling import show_compilation
from decima.evaluation.conditions import SETTINGS, CompareError, Conditions, as_workload
from decima.progress import PATIENCE_S
from decima.progress import progress as show_progress
from decima.registry import LEARNED, split_names
from workloads.errors import did_you_mean
from workloads.quantities import build
from workloads.sources.open import EMBEDDED

if TYPE_CHECKING:
    import pandas as pd

    from decima.registry import SchedulerLike

__all__ = ["ChosenSchedulers", "choose_schedulers", "compare", "make_conditions"]


def make_conditions(**settings: Any) -> Conditions:
    """Build the evaluation setting of a comparison from the options of ``decima compare``, which have the same names.

    Errors of estimates and faults may also be given as ``knowledge`` and ``faults``: an object, or a dictionary of
    some of their options. What is measured for the workload is the default; ``Knowledge()`` and ``Faults()`` are
    exact estimates and a cluster without faults. Times are seconds.

    Args:
        settings: options; None is the default.

    Raises:
        CompareError: an option has a wrong type or is out of range.
        ConfigError: an impossible cluster, or a stage that no executor can run.
        WorkloadError: the workload cannot be read.
    """
    given_settings = {name: value for name, value in settings.items() if value is not None}
    given_settings["workload"] = as_workload(given_settings.get("workload", EMBEDDED))
    conditions = build(Conditions, given_settings, CompareError, given_settings["workload"].measured)
    drift, last_ms = conditions.drift, (conditions.num_jobs - 1) * conditions.interval_ms
    if drift is not None and last_ms <= drift.at_ms:
        raise CompareError(
            f"the drift at {drift.at_ms / 1000:g} s comes too late: {conditions.num_jobs} jobs "
            f"{conditions.interval_ms / 1000:g} s apart arrive within {last_ms / 1000:g} s"
        )
    return conditions


class ChosenSchedulers(NamedTuple):
    """The schedulers of a comparison.

    Attributes:
        schedulers: argument of ``Comparison``.
        policy: name or file of the policy of plain ``decima``; None for the best fit.
        left_out: whether ``decima`` is left out, as no shipped policy was trained for such jobs and clusters.
    """

    schedulers: Sequence[SchedulerLike] | Mapping[str, SchedulerLike]
    policy: str | None
    left_out: bool = False


def choose_schedulers(
    conditions: Conditions,
    schedulers: str | Sequence[SchedulerLike] | Mapping[str, SchedulerLike] | None = None,
    checkpoint: str | Path | None = None,
    metric: str = "mean",
) -> ChosenSchedulers:
    """Return the schedulers of a comparison.

    Args:
        schedulers: comma-separated names; names, objects and classes; or displayed name -> scheduler. By default
            common rules, those for the metric, and ``decima`` if the conditions are like the training distribution of
            a shipped policy, and the metric has no rules of its own.
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
        named = {**named, LEARNED: LEARNED} if isinstance(named, Mapping) else [*named, LEARNED]
    if policy is not None or schedulers is not None or isinstance(named, Mapping):
        return ChosenSchedulers(named, policy)
    # The default has no policies that may collapse out of their distribution.
    policy = None if metric in RULES_FOR else evaluation.best_fit(conditions)
    if policy is not None:
        return ChosenSchedulers(named, policy)
    rules = [name for name in named if name != LEARNED]
    return ChosenSchedulers(rules, None, left_out=metric not in RULES_FOR)


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
    progress: bool = True,
    **settings: Any,
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
        progress: whether to show the progress on stderr, like the command: a bar on a terminal, elsewhere lines if it
            takes more than 15 s; also that code is compiled, once after an installation.
        knowledge: errors of estimates as an object, or a dictionary of some of the options below.
        faults: faults as an object, or a dictionary of some of the options below.
        settings: the evaluation setting, see the options below; None is the default, times are seconds.

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
    for name in settings:
        if name not in _parameters:
            near, expected = did_you_mean(name, _parameters), ", ".join(_parameters)
            raise TypeError(f"compare() has no option {name!r}{near}: expected {expected}")
    conditions = make_conditions(**settings)
    metrics = show.split(",") if isinstance(show, str) else show or ()
    chosen = choose_schedulers(conditions, schedulers, checkpoint, metrics[0] if metrics else "mean")
    guarantees = None
    if floor or ceiling or no_later_than is not None:
        from decima.schedulers.guarantees import Guarantees

        guarantees = Guarantees(
            floor or {}, ceiling or {}, math.inf if no_later_than is None else no_later_than
        )
    comparison = Comparison(
        conditions,
        chosen.schedulers,
        policy=chosen.policy,
        num_training=training,
        keep=False,
        show=metrics,
        guarantees=guarantees,
    )
    if progress:
        with show_progress(PATIENCE_S) as update:
            comparison.run(workers, partial(update, "Comparing"), partial(show_compilation, update))
            comparison.find_times_alone(partial(update, "Estimating times of jobs alone"))
    else:
        comparison.run(workers)
    return comparison.runs


def _with_settings(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Show the settings in the signature and the docstring of a function that takes them as keyword arguments.

    Returns: all parameters by name.
    """
    signature = inspect.signature(function)
    defaults = {"knowledge": None, "faults": None} | {
        name: quantity.fixed_default for name, quantity in SETTINGS.items()
    }
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in defaults.items()
    ]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    lines = [
        fill(f"{name}: {quantity.field.description}", 110, initial_indent=8 * " ", subsequent_indent=12 * " ")
        for name, quantity in SETTINGS.items()
    ]
    before, returns, after = (function.__doc__ or "").partition("    Returns:")
    function.__doc__ = "\n".join([before.rstrip(), *lines, "", returns + after])
    return {parameter.name: parameter for parameter in parameters}


_parameters = _with_settings(compare)
_with_settings(make_conditions)
