"""Compare schedulers with common random numbers: the same job sequences and task noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima import evaluation
from decima.evaluation.compiling import compile_parts
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import (
    METRICS,
    RELATIVE,
    SHOWN,
    TENANT_METRICS,
    ShownMetric,
    compare_metrics,
    summarise,
)
from decima.evaluation.run import ComparisonPlan, EpisodeResult, run_item
from decima.evaluation.variants import ALPHAS, GRIDS, HINDSIGHT, TUNED, TUNED_ONCE, tuned_once, weighted_fair
from decima.registry import ANY_POLICY, FALLBACK, LEARNED, policy_named, split_guarantees
from decima.schedulers.base import Kind
from decima.workers import available_cpus
from decima.workers.pool import make_workers
from simulator.cluster.metrics import of_known, ratio
from simulator.cluster.times_alone import TimeAlone, times_alone
from workloads.display import count_text
from workloads.errors import check_one_of, check_whole

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from decima.schedulers.guarantees import Guarantees
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.record import EpisodeRecord

__all__ = ["PAPER_SCHEDULERS", "Comparison", "run_comparisons"]

#: The heuristics that the Decima paper compares with.
PAPER_SCHEDULERS = ("fifo", "sjf-cp", "fair", "naive-weighted-fair", TUNED_ONCE, HINDSIGHT)
#: Progress callback: number of finished work items, number of all.
OnStep = Callable[[int, int], None]


class Comparison:
    """Schedulers on the same job sequences with the same task noise, and results of the finished experiments.

    Results depend on the arguments only, not on the workers. After an interruption (Ctrl-C) the finished experiments
    are kept, and ``run`` continues.

    Args:
        conditions: cluster and jobs.
        schedulers: names of schedulers (see ``decima.registry.make_scheduler``), names of tuned schedulers (see
            ``variants.TUNED``), objects or classes; or displayed name -> such a scheduler.
        policy: name or file of the policy of plain ``decima``; by default the shipped policy that was trained in such
            conditions, else the rule ``FALLBACK`` decides.
        alphas: candidate settings of weighted fair sharing.
        num_training: number of training sequences for schedulers that are tuned once.
        keep: whether to keep the episodes of the first finished experiment.
        show: names of metrics to compare by, see ``decima.evaluation.metrics.SHOWN``; the first decides which heuristic
            is the best. By default the mean JCT.
        guarantees: each scheduler that is not tuned is compared with these, too.

    Attributes:
        schedulers: displayed name -> scheduler's name, in order.
        kinds: displayed name -> kind of the scheduler: rule, rule with searched weights, or network.
        policy: policy of plain ``decima``; None if it is not compared, or a rule decides.
        misfits: learned scheduler -> quantities of the conditions that are out of its training distribution.
        training_seeds: seeds of the training sequences; empty if no scheduler is tuned once.
        shown: columns of ``runs`` of the metrics in ``show``.
        compared_by: column of ``runs`` that decides which heuristic is the best.

    Raises:
        CompareError: no schedulers, a scheduler twice, no training sequence, or an unknown metric.
        SchedulerError: an unknown scheduler, or an unknown tenant of a guarantee.
        PolicyFileError: a malformed policy file.

    Examples:
        >>> from decima.evaluation.comparison import Comparison
        >>> from decima.evaluation.conditions import Conditions
        >>> from workloads import Workload, synthetic_profiles
        >>> workload = Workload(synthetic_profiles(), None, "synthetic")
        >>> comparison = Comparison(Conditions(workload, num_experiments=2), ["fifo", "fair"])
        >>> comparison.run(workers=1)
        >>> list(comparison.table().index)
        ['fifo', 'fair']
    """

    conditions: Conditions
    schedulers: dict[str, str]
    policy: str | None
    alphas: tuple[float, ...]
    shown: tuple[str, ...]
    compared_by: str
    kinds: dict[str, Kind]
    misfits: dict[str, list[str]]
    training_seeds: range

    def __init__(
        self,
        conditions: Conditions,
        schedulers: Sequence[SchedulerLike] | Mapping[str, SchedulerLike] = PAPER_SCHEDULERS,
        *,
        policy: str | None = None,
        alphas: Sequence[float] = ALPHAS,
        num_training: int = 6,
        keep: bool = True,
        show: Sequence[str] = (),
        guarantees: Guarantees | None = None,
    ) -> None:
        named = schedulers if isinstance(schedulers, Mapping) else _by_name(schedulers)
        objects = {
            f"{name}()": scheduler for name, scheduler in named.items() if not isinstance(scheduler, str)
        }
        specs = {
            name: scheduler if isinstance(scheduler, str) else f"{name}()"
            for name, scheduler in named.items()
        }
        if not specs:
            raise CompareError("name at least one scheduler")
        if check_whole(num_training, "num_training", CompareError) < 1:
            raise CompareError(f"tuning needs at least one training sequence, got {num_training}")
        metric = show[0] if show else "mean"
        plain = {spec: split_guarantees(spec)[0] for spec in specs.values()}
        if set(ANY_POLICY) & set(plain.values()):
            policy = policy or evaluation.best_fit(conditions)
            for name, spec in specs.items():
                if plain[spec] in ANY_POLICY:
                    decides = (
                        FALLBACK if policy is None else plain[spec].replace(LEARNED, f"{LEARNED}:{policy}")
                    )
                    specs[name] = spec.replace(plain[spec], decides, 1)
        if guarantees or any(split_guarantees(spec)[1] for spec in specs.values()):
            from decima.evaluation.guarantee_metrics import check_tenants, with_guarantees

            specs = with_guarantees(specs, guarantees)
            check_tenants(conditions, specs.values())
        self.conditions, self.schedulers, self.policy, self.alphas = conditions, specs, policy, tuple(alphas)
        self.shown = tuple(SHOWN[check_one_of(name, SHOWN, "show", CompareError)] for name in show)
        self.compared_by = self.shown[0] if self.shown else "mean_jct_s"
        grids = GRIDS | {"weighted-fair": tuple(map(weighted_fair, self.alphas))}
        further = None
        if not set(self.shown).isdisjoint(TENANT_METRICS):
            from decima.evaluation.fairness import tenant_metrics

            further = tenant_metrics
        self._plan = ComparisonPlan(conditions, specs, objects, grids, further)
        self.kinds = {
            name: Kind.RULE
            if spec in TUNED
            else getattr(self._plan.make(spec, conditions.seed), "kind", Kind.RULE)
            for name, spec in specs.items()
        }
        self.misfits = {
            name: evaluation.misfits(file, conditions, metric)
            for name, spec in specs.items()
            if (file := policy_named(spec)) is not None
        }
        self._tuned_once = tuple(
            dict.fromkeys(TUNED[spec].name for spec in specs.values() if tuned_once(spec))
        )
        self.training_seeds = conditions.training_seeds(num_training if self._tuned_once else 0)
        self._keep = keep
        self._sweeps: dict[tuple[str, int], NDArray[np.float64]] = {}
        self._results: dict[int, dict[str, EpisodeResult]] = {}
        self._episodes: dict[int, dict[str, EpisodeRecord]] = {}
        self._alone: dict[int, list[TimeAlone]] = {}

    def __repr__(self) -> str:
        done = f"{len(self.finished)} of {count_text(self.conditions.num_experiments, 'experiment')}"
        best = f", best heuristic {self.best_heuristic}" if self.best_heuristic else ""
        return f"Comparison({count_text(len(self.schedulers), 'scheduler')}, {done} finished{best})"

    # ---- running ---------------------------------------------------------------------------------------

    def run(
        self,
        workers: int | str | None = None,
        on_step: OnStep = lambda done, total: None,
        on_compile: OnStep = lambda done, total: None,
    ) -> None:
        """Run the unfinished experiments; see ``run_comparisons``."""
        run_comparisons([self], workers, on_step, on_compile)

    def add(self, scheduler: str, mean_jct_s: Mapping[int, float]) -> None:
        """Add results of a scheduler that was run elsewhere: seed -> mean JCT, s."""
        self.schedulers[scheduler] = scheduler
        counts = ("decisions", "guarded", "failed_jobs", "overruled")
        unknown = dict.fromkeys(METRICS, math.nan) | dict.fromkeys(counts, 0)
        for seed, value in mean_jct_s.items():
            self._add(seed, {scheduler: EpisodeResult("", unknown | {"mean_jct_s": value})})

    def _items(self, at_once: int = 0) -> list[tuple[int, tuple[str, ...], bool]]:
        """List the unfinished work items: seed, schedulers, whether to keep the episodes.

        Schedulers that share candidate settings are in one item, so that each setting runs once.
        """
        hindsight = {
            TUNED[spec].name for spec in self.schedulers.values() if spec in TUNED and not tuned_once(spec)
        }
        groups: dict[str, list[str]] = {}
        for name, spec in self.schedulers.items():
            family = TUNED[spec].name if spec in TUNED else spec.partition(":")[0]
            groups.setdefault(family if family in hindsight else f"alone: {name}", []).append(name)
        left = [seed for seed in self.conditions.seeds if seed not in set(self.finished)]
        # Items start in order, so the first experiment to finish is one of the first `at_once`.
        kept = left[:at_once] if self._keep else []
        return [
            (seed, tuple(names), seed in kept)
            for seed in left
            for names in groups.values()
            if not set(names) <= self._results.get(seed, {}).keys()
        ]

    def _add(
        self,
        seed: int,
        results: Mapping[str, EpisodeResult],
        episodes: Mapping[str, EpisodeRecord] | None = None,
    ) -> None:
        self._results.setdefault(seed, {}).update(results)
        self._episodes.setdefault(seed, {}).update(episodes or {})
        lowest = min(self.finished, default=math.inf)
        self._episodes = {seed: records for seed, records in self._episodes.items() if seed <= lowest}
        for table in ("measured", "measured_jobs", "runs", "jobs", "summary", "compared"):
            self.__dict__.pop(table, None)

    # ---- results ---------------------------------------------------------------------------------------

    @property
    def finished(self) -> list[int]:
        """Seeds of the finished experiments, ascending."""
        return sorted(
            seed for seed, results in self._results.items() if results.keys() == self.schedulers.keys()
        )

    @property
    def complete(self) -> bool:
        """Whether all experiments have finished."""
        return len(self.finished) == self.conditions.num_experiments

    @property
    def tuned(self) -> dict[str, str]:
        """Scheduler that is tuned once -> its best setting on the training sequences; empty before these have run."""
        if not self._tuned_once or len(self._sweeps) < len(self._tuned_once) * len(self.training_seeds):
            return {}
        from decima.evaluation.sweeps import best_for_all

        # In the order of the seeds, so that rounding does not depend on the workers.
        return {
            family: best_for_all(
                np.array([self._sweeps[family, seed] for seed in self.training_seeds]),
                self._plan.settings[family],
            )
            for family in self._tuned_once
        }

    @property
    def episodes(self) -> Mapping[str, EpisodeRecord]:
        """Scheduler -> its episode in the finished experiment with the lowest seed; empty if none are kept."""
        first = self._episodes.get(min(self.finished, default=-1), {})
        return {name: first[name] for name in self.schedulers if name in first}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Episodes of the finished experiments, one row per scheduler and seed.

        Columns: ``scheduler`` (str), ``seed`` (int64), ``METRICS`` (float64; int64 for counts), and ``setting``
        (str), the chosen setting of a tuned scheduler.
        """
        alone_ms = {seed: self._alone_ms(seed) for _, seed, _ in self._with_jobs()}
        slowdowns = [
            ratio(result.jct_ms, alone_ms[seed])
            if (result := self._results[seed][name]).jct_ms.size
            else np.empty(0)
            for name in self.schedulers
            for seed in self.finished
        ]
        columns = {
            column: [of_known(value, slowdown) for slowdown in slowdowns]
            for column, value in RELATIVE.items()
        }
        return self.measured.assign(**columns)[_columns(METRICS)]

    @cached_property
    def measured(self) -> pd.DataFrame:
        """``runs`` without the columns ``RELATIVE``, so that the times of the jobs alone need not be known."""
        rows = [
            {"scheduler": name, "seed": seed, "setting": result.setting, **result.metrics}
            for name in self.schedulers
            for seed in self.finished
            for result in [self._results[seed][name]]
        ]
        return pd.DataFrame(rows, columns=_columns(name for name in METRICS if name not in RELATIVE))

    def _runs_with(self, columns: Iterable[str]) -> pd.DataFrame:
        """Return ``measured``, or ``runs`` if some of the columns need times alone."""
        return self.measured if RELATIVE.keys().isdisjoint(columns) else self.runs

    def find_times_alone(self, on_step: OnStep = lambda done, total: None) -> None:
        """Compute the times alone of the jobs of the finished experiments, unless they are known.

        ``runs``, ``jobs`` and ``summary`` call this method, ``measured`` and ``measured_jobs`` do not. ``on_step`` is
        called with the numbers of finished and of all jobs to compute, see ``times_alone``.
        """
        profiles = {
            seed: self.conditions.sequence(seed).profiles for seed in self.finished if seed not in self._alone
        }
        if profiles:
            # Clusters of different seeds differ in their signals, on which times alone do not depend.
            every = itertools.chain(*profiles.values())
            times = iter(times_alone(every, self.conditions.cluster, on_step))
            for seed, seed_profiles in profiles.items():
                self._alone[seed] = list(itertools.islice(times, len(seed_profiles)))

    @property
    def times_alone(self) -> dict[str, float]:
        """Quality of the times alone in the finished experiments, as numbers.

        ``jobs``: all jobs; ``estimated``: jobs whose time alone is an estimate; ``error``: relative error that 95 % of
        the estimates stay within, see ``simulator.cluster.times_alone.TimeAlone``.
        """
        self.find_times_alone()
        errors = [time_alone.error for seed in self.finished for time_alone in self._alone[seed]]
        estimated = sum(error > 0 for error in errors)
        return {"jobs": len(errors), "estimated": estimated, "error": max(errors, default=0.0)}

    def _alone_ms(self, seed: int) -> NDArray[np.float64]:
        """Return the time alone of each job of an experiment, float64 [num_jobs], ms."""
        self.find_times_alone()
        return np.array([time_alone.mean_ms for time_alone in self._alone[seed]])

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Jobs of the finished experiments, one row per job and scheduler, except schedulers that were run elsewhere.

        Columns: ``scheduler`` and ``setting`` (categories), ``seed`` and ``job`` (int64, index in the sequence),
        ``query`` (category, name of the profile), and float64: ``arrival_s``, ``jct_s``, ``alone_s`` (expected JCT
        of the job alone on this cluster) and ``slowdown`` (ratio of these). If jobs have attributes also ``weight``,
        ``tenant`` (category), ``deadline_s`` (infinite for none) and ``tardiness_s`` (NaN without a deadline).
        """
        table = self.measured_jobs.copy()
        if len(table):
            _, seeds, results = zip(*self._with_jobs(), strict=True)
            alone_ms = np.concatenate([self._alone_ms(seed) for seed in seeds])
            jct_ms = np.concatenate([result.jct_ms for result in results])
            column = 1 + list(table).index("jct_s")
            table.insert(column, "alone_s", alone_ms / 1000)
            table.insert(column + 1, "slowdown", ratio(jct_ms, alone_ms))
        return table

    @cached_property
    def measured_jobs(self) -> pd.DataFrame:
        """``jobs`` without the columns ``alone_s`` and ``slowdown``, so that times alone need not be known."""
        from decima.evaluation.job_table import job_table

        return job_table(self.conditions, list(self.schedulers), self._with_jobs())

    def _with_jobs(self) -> list[tuple[str, int, EpisodeResult]]:
        """List scheduler, seed and result of the finished experiments, except schedulers that were run elsewhere."""
        return [
            (name, seed, result)
            for seed in self.finished
            for name in self.schedulers
            if (result := self._results[seed][name]).jct_ms.size
        ]

    @cached_property
    def summary(self) -> dict[str, dict[str, float]]:
        """Scheduler -> means over the finished experiments; see ``summarise``.

        Differences are to ``best_heuristic``, which is chosen on the same experiments: their intervals are slightly
        optimistic.
        """
        return summarise(self.runs, self.schedulers, self.best_heuristic)

    @cached_property
    def compared(self) -> dict[str, dict[str, ShownMetric]]:
        """Scheduler -> metric in ``shown`` -> mean, and difference to ``best_heuristic``; see ``compare_metrics``."""
        return compare_metrics(self._runs_with(self.shown), self.schedulers, self.best_heuristic, self.shown)

    def table(self) -> pd.DataFrame:
        """Return ``summary`` as a table, one row per scheduler, float64."""
        return pd.DataFrame.from_dict(self.summary, orient="index").rename_axis("scheduler")

    @property
    def best_heuristic(self) -> str | None:
        """Rule with the best mean of ``compared_by``, also one with searched weights; None without finished rules.

        Schedulers tuned in hindsight count; schedulers that were run elsewhere do not.
        """
        runs = self._runs_with([self.compared_by])
        means = runs.groupby("scheduler")[self.compared_by].mean()
        rules = [name for name, kind in self.kinds.items() if kind != Kind.NETWORK]
        return METRICS[self.compared_by].best({name: float(means[name]) for name in rules if name in means})

    def scheduler(self, name: str, seed: int) -> DecidesStages:
        """Create the scheduler of a finished experiment, with its setting if it is tuned."""
        spec = self.schedulers[name]
        setting = self.tuned[TUNED[spec].name] if tuned_once(spec) else self._results[seed][name].setting
        return self._plan.make(setting or spec, seed)

    def differences(self, name: str, rule: str) -> tuple[int, int]:
        """Return how often a scheduler and a rule decide differently in the first finished experiment.

        Returns:
            See ``count_differences``.
        """
        from decima.evaluation.decisions import count_differences

        seed = min(self.finished)
        return count_differences(
            self.conditions, seed, self.scheduler(name, seed), self._plan.make(rule, seed)
        )

    def to_json(self, **extra: Any) -> str:
        """Return the results and further entries as JSON, seconds; equal settings give equal text, bit for bit."""
        from decima.evaluation.comparison_json import comparison_json

        return comparison_json(self, extra)


def run_comparisons(
    comparisons: Sequence[Comparison],
    workers: int | str | None = None,
    on_step: OnStep = lambda done, total: None,
    on_compile: OnStep = lambda done, total: None,
) -> None:
    """Run the unfinished experiments of several comparisons on shared workers, by default one process per CPU.

    ``on_step`` is called in this process before the first work item and after each one; for ``on_compile`` see
    ``compile_parts``.

    Raises:
        CompareError: a scheduler failed.
        WorkerError: workers died, or are not available.
    """
    workers = workers or available_cpus()
    training = [
        (index, family, seed)
        for index, comparison in enumerate(comparisons)
        for family in comparison._tuned_once
        for seed in comparison.training_seeds
        if (family, seed) not in comparison._sweeps
    ]
    num_items = sum(len(comparison._items()) for comparison in comparisons)
    done, total = itertools.count(0), len(training) + num_items
    specs = [spec for comparison in comparisons for spec in comparison.schedulers.values()]
    compile_parts(comparisons[0].conditions, specs, workers, on_compile)
    plans = [comparison._plan for comparison in comparisons]
    on_step(next(done), total)
    with make_workers(plans, workers, max(len(training), num_items), works_along=True) as pool:
        if training:
            from decima.evaluation.tuning import sweep_item

            for index, family, seed, objective_ms in pool.map(sweep_item, training):
                comparisons[index]._sweeps[family, seed] = objective_ms
                on_step(next(done), total)
        tuned = [comparison.tuned for comparison in comparisons]
        items = [
            (index, *item)
            for index, comparison in enumerate(comparisons)
            for item in comparison._items(pool.count)
        ]
        for index, seed, results, episodes in pool.map(partial(run_item, tuned), items):
            comparisons[index]._add(seed, results, episodes)
            on_step(next(done), total)


def _columns(metrics: Iterable[str]) -> list[str]:
    """Return the columns of ``Comparison.runs`` with these metrics."""
    columns = ["scheduler", "seed", *metrics]
    columns.insert(columns.index("decisions"), "setting")
    return columns


def _by_name(schedulers: Sequence[SchedulerLike]) -> dict[str, SchedulerLike]:
    by_name: dict[str, SchedulerLike] = {}
    for scheduler in schedulers:
        name = (
            scheduler
            if isinstance(scheduler, str)
            else getattr(scheduler, "__name__", type(scheduler).__name__)
        )
        if name in by_name:
            raise CompareError(f"the scheduler {name} is named twice")
        by_name[name] = scheduler
    return by_name
