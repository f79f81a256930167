"""Search for the constants of a rule by CMA-ES, and evaluation of the result on other sequences.

All candidates for a sequence run it with the same task noise (common random numbers). The next generation runs the next
sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.compiling import compile_parts
from decima.evaluation.conditions import TRAINING_OFFSET, CompareError, Conditions
from decima.evaluation.episodes import run_scheduler
from decima.evaluation.metrics import METRICS, SHOWN
from decima.schedulers.parameters import parameters
from decima.schedulers.srpt_weights import has_effect
from decima.workers import available_cpus
from decima.workers.in_order import map_in_order
from decima.workers.pool import Workers, make_workers
from simulator.cluster.metrics import EpisodeMetrics
from workloads.errors import check_one_of

__all__ = ["TunedRule", "scheduler_name", "tune_rule"]

#: Rule that is tuned by default.
RULE = "srpt"
#: Rule with constants that can be tuned -> parameters that are not tuned.
RULES = {
    RULE: ("jitter",),
    "srpt-tuned": ("jitter", "full_effect_executors"),
    "gamma-boost": ("load",),
    "atc": (),
}
#: Default metric to minimise, as in ``decima compare --show``.
MEAN = "mean"
#: Names of the two sets of sequences on which default and tuned constants are evaluated.
TUNED_ON, JUDGED_ON = "tuned on", "other seeds"
#: Scale of the search variables of weights, parameters with a dot in their name. The scaled variable is added to the
#: start; it is small because many weights add up. Other variables are logarithms of factors on constants of the start.
WEIGHT_SCALE = 0.15
#: Bounds of the absolute values of search variables: of logarithms of factors, and of weights before scaling.
MOST_FACTOR, MOST_WEIGHT = 2.0, 10.0
#: Significant digits of tuned constants.
DIGITS = 3
#: Initial standard deviation of the variables of CMA-ES.
FIRST_STEP = 0.3


class TunedRule(NamedTuple):
    """Constants of a rule found by a search, with results of default and tuned constants.

    Attributes:
        runs: one row per sequence and set of constants; columns ``seeds`` (``tuned on`` or ``other seeds``),
            ``condition`` (name of the setting), ``seed``, ``scheduler`` (name of the rule, alone or with constants),
            and the metric, such as ``mean_jct_s``.
        path: centre of the search after each generation, float64 [generations, constants].
        start: name of the scheduler with whose constants the search started, and with which the result is compared.
        start_constants: constants at the start of the search, by the same names as ``constants``.
        metric: minimised metric, one of ``decima.evaluation.metrics.METRICS``.
    """

    rule: str
    constants: dict[str, float]
    runs: pd.DataFrame
    path: NDArray[np.float64]
    start: str
    start_constants: dict[str, float]
    metric: str = SHOWN[MEAN]

    @property
    def scheduler(self) -> str:
        """Name of the rule with the tuned constants, for ``make_scheduler``."""
        return scheduler_name(self.rule, self.constants)


def scheduler_name(rule: str, constants: Mapping[str, float]) -> str:
    """Return the name of a rule with constants, for ``make_scheduler``."""
    return f"{rule}:{','.join(f'{name}={value!r}' for name, value in constants.items())}"


def tune_rule(
    settings: Mapping[str, Conditions],
    rule: str = RULE,
    *,
    start: str | None = None,
    objective: str = MEAN,
    generations: int = 60,
    sequences: int = 4,
    judged: int = 40,
    judged_seed: int | None = None,
    seed: int = 0,
    workers: int | str | None = None,
    on_step: Callable[[str, int, int], None] = lambda what, done, total: None,
    on_compile: Callable[[int, int], None] = lambda done, total: None,
) -> TunedRule:
    """Tune the constants of a rule for the mean JCT or another metric.

    The search is CMA-ES with a diagonal covariance matrix (Ros and Hansen, PPSN 2008).
    Variables of the search are logarithms of constants, and weights of adaptive rules. The objective is the mean over
    sequences of the logarithm of the mean JCT, or of another metric; all settings have equal weight.

    Args:
        settings: name -> evaluation setting with the sequences to tune on.
        rule: one of ``RULES``.
        start: scheduler from whose constants the search starts, such as ``srpt:FILE.json``. Weights that it
            lacks are 0, other constants that it lacks have the defaults of the rule. By default the rule itself.
        objective: metric to minimise, a name of ``decima compare --show``.
        sequences: number of sequences of each setting in a generation.
        judged: number of other sequences of each setting for the evaluation, at least 2. The evaluation on the
            sequences tuned on uses at most as many.
        judged_seed: first seed of the other sequences; by default 1,000,000 above the first seed to tune on.
        workers: see ``check_workers``; by default one process per CPU.

    Raises:
        CompareError: the package cma is not installed, unknown rule or metric, a start without constants of the rule,
            no job has the attributes that the metric needs, overlapping seeds, or an episode failed.
        SchedulerError: a start with a constant that its rule does not have, or whose file cannot be read.
    """
    try:
        import cma
    except ImportError:
        raise CompareError("the search needs the package cma: pip install -e '.[tune]'") from None
    check_one_of(rule, RULES, "rule", CompareError)
    lower = [name for name, column in SHOWN.items() if not METRICS[column].more_is_better]
    check_one_of(objective, lower, "objective", CompareError)
    metric = SHOWN[objective]
    start = start or rule
    start_constants = _start_constants(rule, start, settings.values())
    names, centre = tuple(start_constants), np.array(list(start_constants.values()))
    judged_settings = {name: _judged(setting, judged, judged_seed) for name, setting in settings.items()}
    bounds = np.where(_are_weights(names), MOST_WEIGHT, MOST_FACTOR)
    options = {"CMA_diagonal": True, "bounds": [-bounds, bounds], "seed": 1 + seed, "verbose": -9}
    search = cma.CMAEvolutionStrategy(np.zeros(len(names)), FIRST_STEP, options)
    workers = workers or available_cpus()
    for setting in settings.values():
        compile_parts(setting, (rule, start), workers, on_compile)
    path = []
    with make_workers((settings, judged_settings, metric), workers) as pool:
        for generation in range(generations):
            on_step("Tuning", generation, generations)
            runs = [
                (name, setting.seeds[(generation * sequences + index) % len(setting.seeds)])
                for name, setting in settings.items()
                for index in range(sequences)
            ]
            candidates = search.ask()  # the same for all sequences
            specs = _specs(rule, names, _constants(names, centre, np.array(candidates)))
            items = [(False, name, seed, specs) for name, seed in runs]
            measured = np.array(_run(pool, items))
            if np.isnan(measured).any():
                raise CompareError(f"no {objective} to minimise: no job has the attributes that it needs")
            costs = np.log(measured) if objective == MEAN else measured
            search.tell(candidates, costs.mean(axis=0).tolist())
            path.append(_constants(names, centre, search.result.xfavorite))
        on_step("Tuning", generations, generations)
        tuned = {name: float(f"{value:.{DIGITS}g}") for name, value in zip(names, path[-1], strict=True)}
        specs = (start, scheduler_name(rule, tuned))
        items = [
            (judging, name, seed, specs)
            for judging, named_settings in ((False, settings), (True, judged_settings))
            for name, conditions in named_settings.items()
            for seed in conditions.seeds[:judged]
        ]
        values = _run(pool, items, partial(on_step, "Judging"))
    rows = [
        (JUDGED_ON if judging else TUNED_ON, name, seed, spec, value)
        for (judging, name, seed, _), row in zip(items, values, strict=True)
        for spec, value in zip(specs, row, strict=True)
    ]
    columns = ["seeds", "condition", "seed", "scheduler", metric]
    table = pd.DataFrame(rows, columns=columns)
    return TunedRule(rule, tuned, table, np.array(path), start, start_constants, metric)


def _judged(conditions: Conditions, judged: int, judged_seed: int | None) -> Conditions:
    """Return an evaluation setting with other seeds than those to tune on."""
    first = conditions.seed + TRAINING_OFFSET if judged_seed is None else judged_seed
    if judged < 2:
        raise CompareError(f"at least 2 sequences to judge on, got {judged}")
    if first <= conditions.seeds[-1] and conditions.seed <= first + judged - 1:
        raise CompareError(
            f"seeds to judge on, {first} to {first + judged - 1}, overlap those to tune on, {conditions.seed} to "
            f"{conditions.seeds[-1]}"
        )
    return replace(conditions, seed=first, num_experiments=judged)


def _start_constants(rule: str, start: str, settings: Iterable[Conditions]) -> dict[str, float]:
    """Return the constants and weights of a rule at the start of the search, of those that have an effect."""
    start_values = parameters(start)
    defaults = {name: value for name, value in parameters(rule).items() if name not in RULES[rule]}
    if rule in (RULE, f"{RULE}-tuned"):
        several = {len(setting.cluster_of(setting.seed).executor_classes) > 1 for setting in settings}
        defaults = {
            name: value
            for name, value in defaults.items()
            if any(has_effect(name, has_classes) for has_classes in several)
        }
    if not start_values.keys() & defaults:
        raise CompareError(f"start {start!r} has no constants of {rule}")
    return {name: start_values.get(name, 0.0 if "." in name else value) for name, value in defaults.items()}


def _are_weights(names: Sequence[str]) -> NDArray[np.bool_]:
    return np.array(["." in name for name in names])


def _constants(
    names: Sequence[str], centre: NDArray[np.float64], variables: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return constants and weights of the rule, from the variables of the search."""
    are_weights = _are_weights(names)
    factors = np.exp(np.where(are_weights, 0.0, variables))
    return np.where(are_weights, centre + WEIGHT_SCALE * variables, centre * factors)


def _specs(rule: str, names: Sequence[str], constants: NDArray[np.float64]) -> tuple[str, ...]:
    """Return the names of the rule with each row of constants."""
    return tuple(scheduler_name(rule, dict(zip(names, row, strict=True))) for row in constants.tolist())


_Item = tuple[bool, str, int, tuple[str, ...]]


def _run(
    pool: Workers, items: Sequence[_Item], progress: Callable[[int, int], None] = lambda done, total: None
) -> list[list[float]]:
    return map_in_order(pool, _run_item, items, progress)[0]


def _run_item(
    shared: tuple[Mapping[str, Conditions], Mapping[str, Conditions], str], item: _Item
) -> list[float]:
    """Run schedulers on one sequence, and return the metric of each."""
    judging, name, seed, specs = item
    tuned_on, judged_on, metric = shared
    conditions = (judged_on if judging else tuned_on)[name]
    cluster, sequence = conditions.cluster_of(seed), conditions.sequence(seed)
    return [METRICS[metric].of(EpisodeMetrics(run_scheduler(cluster, sequence, spec))) for spec in specs]
