"""Compare schedulers: run them on the same sequences, gather what finished, state it with confidence intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.compiling import compile_parts
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.fit import best_fit, misfits
from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.run import Run, run_scheduler
from decima.evaluation.tuning import (
    ALPHAS,
    GRIDS,
    HINDSIGHT,
    TUNED,
    TUNED_ONCE,
    best_for_all,
    best_settings,
    sweep,
    sweep_ms,
    weighted_fair,
)
from decima.outputs import json_text, versions
from decima.registry import ANY_POLICY, DEFAULT_POLICY, LEARNED, make_scheduler, policy_named
from decima.workers.pool import available_cpus, make_workers
from simulator.cluster.config import SEMANTICS
from workloads.display import count_text, html_table
from workloads.errors import check_whole

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.record import EpisodeRecord

__all__ = ["PAPER_SCHEDULERS", "Comparison", "run_comparisons"]

#: The classic schedulers that the Decima paper compares with and this project has.
PAPER_SCHEDULERS = ("fifo", "sjf-cp", "fair", "naive-weighted-fair", TUNED_ONCE, HINDSIGHT)

#: Called with how many pieces of work are done, and how many there are.
OnStep = Callable[[int, int], None]


class Comparison:
    """Schedulers that meet the same sequences with the same luck, and what of that has finished so far.

    Results depend on the arguments alone, not on who works. After an interruption (Ctrl-C) what
    finished is still there, and ``run`` goes on with the rest.

    Args:
        conditions: what they are compared on.
        schedulers: what ``decima.registry.make_scheduler`` takes (names, schedulers, classes) or names of the tuned
            ones of ``alphas``; or such by the names that are shown.
        policy: name or file of the policy that plain ``decima`` follows; by default the one that ships and was trained
            on what is most like the conditions.
        alphas: what weighted fair sharing is tuned to, of these.
        num_training: sequences to tune on, for the schedulers that are tuned once.
        keep: whether episodes are kept.

    Attributes:
        conditions: as given.
        schedulers: name that is shown -> scheduler's name, in order.
        policy: what plain ``decima`` follows, if it takes part.
        misfits: scheduler that learned -> what here lies outside of its policy's training, see ``fit.misfits``.
        alphas: as given.
        training_seeds: the sequences to tune on; empty where no scheduler that is tuned once takes part.

    Raises:
        CompareError: no schedulers, one of them twice, or nothing to tune on.
        SchedulerError: an unknown scheduler.
        PolicyFileError: a policy file that says what it was trained on in a way that means nothing.

    Example:
        >>> from decima.evaluation.comparison import Comparison
        >>> from decima.evaluation.conditions import Conditions
        >>> from workloads import Workload, synthetic_profiles
        >>> workload = Workload(synthetic_profiles(), None, "synthetic")
        >>> comparison = Comparison(Conditions(workload, num_experiments=2), ["fifo", "fair"])
        >>> comparison.run(workers=1)
        >>> list(comparison.table().index)
        ['fifo', 'fair']
    """

    def __init__(
        self,
        conditions: Conditions,
        schedulers: Sequence[SchedulerLike] | Mapping[str, SchedulerLike] = PAPER_SCHEDULERS,
        *,
        policy: str | None = None,
        alphas: Sequence[float] = ALPHAS,
        num_training: int = 6,
        keep: bool = True,
    ) -> None:
        named = schedulers if isinstance(schedulers, Mapping) else _by_name(schedulers)
        #: Schedulers that were given as objects, by the names that stand for them in ``schedulers``.
        self._objects = {f"{name}()": each for name, each in named.items() if not isinstance(each, str)}
        given = {name: each if isinstance(each, str) else f"{name}()" for name, each in named.items()}
        if not given:
            raise CompareError("name at least one scheduler")
        if check_whole(num_training, "num_training", CompareError) < 1:
            raise CompareError(f"tuning needs at least one training sequence, got {num_training}")
        if set(ANY_POLICY) & set(given.values()):
            policy = policy or _shipped(conditions)
            with_policy = {spec: spec.replace(LEARNED, f"{LEARNED}:{policy}", 1) for spec in ANY_POLICY}
            given = {name: with_policy.get(spec, spec) for name, spec in given.items()}
        built = {name: self._make(spec, conditions.seed) for name, spec in given.items() if spec not in TUNED}
        self._learned = {name for name, each in built.items() if getattr(each, "learned", False)}
        self.conditions = conditions
        self.schedulers = dict(given)
        self.policy = policy
        self._ran_here = set(given)
        learned = {name: file for name, spec in given.items() if (file := policy_named(spec)) is not None}
        self.misfits = {name: misfits(named, conditions) for name, named in learned.items()}
        self.alphas = tuple(alphas)
        self._grids = GRIDS | {"weighted-fair": tuple(map(weighted_fair, self.alphas))}
        self._tuned_once = tuple({TUNED[spec].name: None for spec in given.values() if _once(spec)})
        self.training_seeds = conditions.training_seeds(num_training if self._tuned_once else 0)
        self._keep = keep
        self._sweeps: dict[tuple[str, int], NDArray[np.float64]] = {}
        self._runs: dict[int, dict[str, Run]] = {}
        self._episodes: dict[int, dict[str, EpisodeRecord]] = {}
        self._jobs: dict[tuple[int, str], JobTimes] = {}

    def __repr__(self) -> str:
        done = f"{len(self.finished)} of {count_text(self.conditions.num_experiments, 'experiment')}"
        best = f", best heuristic {self.best_heuristic}" if self.best_heuristic else ""
        return f"Comparison({count_text(len(self.schedulers), 'scheduler')}, {done} finished{best})"

    def _repr_html_(self) -> str:
        columns = ("mean_jct_s", "mean_jct_ci95_s", "p95_jct_s", "slowdown", "utilisation")
        rows = ((name, *(f"{row[each]:.3g}" for each in columns)) for name, row in self.table().iterrows())
        return html_table(repr(self), ("scheduler", *columns), rows, len(self.schedulers))

    # ---- running ---------------------------------------------------------------------------------------

    def run(
        self,
        workers: int | str | None = None,
        on_step: OnStep = lambda done, total: None,
        on_compile: OnStep = lambda done, total: None,
    ) -> None:
        """Run what has not finished; see ``run_comparisons``."""
        run_comparisons([self], workers, on_step, on_compile)

    def add(self, scheduler: str, runs: Mapping[int, Run]) -> None:
        """Let a scheduler take part that ran elsewhere; its runs by seed."""
        self.schedulers[scheduler] = scheduler
        for seed, run in runs.items():
            self._runs.setdefault(seed, {})[scheduler] = run

    def _pieces(self, number: int, at_once: int = 0) -> Iterator[_Piece]:
        """The work that is left, of the comparison with this number."""
        finished = set(self.finished)
        left = [seed for seed in self.conditions.seeds if seed not in finished]
        # Work begins in order, so whatever is interrupted, the first to finish is among the first.
        kept = left[:at_once] if self._keep else []
        for seed in left:
            for names in self._groups():
                if not set(names) <= self._runs.get(seed, {}).keys():
                    yield _Piece(number, seed, names, seed in kept)

    def _groups(self) -> list[tuple[str, ...]]:
        """Who runs in one piece: all who may have a setting that is tried in hindsight, so that none runs twice."""
        specs = self.schedulers
        hindsight = {TUNED[spec].name for spec in specs.values() if spec in TUNED and not _once(spec)}
        families = {
            setting: (family,)
            for family in sorted(hindsight)
            for setting in (*self._grids[family], *(spec for spec in TUNED if TUNED[spec].name == family))
        }
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, spec in specs.items():
            groups.setdefault(families.get(spec, ("", name)), []).append(name)
        return [tuple(group) for group in groups.values()]

    def _add(
        self,
        piece: _Piece,
        runs: dict[str, Run],
        jobs: dict[str, JobTimes],
        episodes: dict[str, EpisodeRecord],
    ) -> None:
        self._runs.setdefault(piece.seed, {}).update(runs)
        self._jobs |= {(piece.seed, name): each for name, each in jobs.items()}
        self._episodes.setdefault(piece.seed, {}).update(episodes)
        lowest = min(self.finished, default=math.inf)
        self._episodes = {seed: each for seed, each in self._episodes.items() if seed <= lowest}

    # ---- results ---------------------------------------------------------------------------------------

    @property
    def finished(self) -> list[int]:
        """The seeds of the finished experiments, ascending."""
        return sorted(seed for seed, runs in self._runs.items() if runs.keys() == self.schedulers.keys())

    @property
    def complete(self) -> bool:
        """Whether all experiments have finished."""
        return len(self.finished) == self.conditions.num_experiments

    @property
    def tuned(self) -> dict[str, str]:
        """Scheduler that is tuned once -> the setting that was best on the training sequences; none before."""
        if len(self._sweeps) < len(self._tuned_once) * len(self.training_seeds):
            return {}
        # In the order of the seeds, not of their finishing: rounding must not depend on the workers.
        return {
            family: best_for_all(
                np.array([self._sweeps[family, seed] for seed in self.training_seeds]), self._grids[family]
            )
            for family in self._tuned_once
        }

    @property
    def episodes(self) -> Mapping[str, EpisodeRecord]:
        """By scheduler, those of the finished experiment with the lowest seed; empty if none are kept."""
        first = self._episodes.get(min(self.finished, default=-1), {})
        return {name: first[name] for name in self.schedulers if name in first}

    def runs(self, scheduler: str) -> pd.DataFrame:
        """What a scheduler did in the finished experiments, a row for each, indexed by seed.

        Columns: ``mean_jct_s``, ``p95_jct_s``, ``makespan_s``, ``utilisation``, ``load``, ``fragmentation``,
        ``slowdown``, float64, ``setting``, str, and ``decisions`` and ``guarded``, int64; as in ``Run``, but in
        seconds.
        """
        rows = [self._runs[seed][scheduler] for seed in self.finished]
        table = pd.DataFrame(rows, columns=Run._fields, index=pd.Index(self.finished, name="seed"))
        times = [name for name in Run._fields if name.endswith("_ms")]
        table[times] /= 1000
        return table.rename(columns={name: name.replace("_ms", "_s") for name in times})

    def scheduler(self, name: str, seed: int) -> DecidesStages:
        """Make the scheduler that ran in a finished experiment: a tuned one with its numbers."""
        spec = self.schedulers[name]
        if _once(spec):
            return make_scheduler(self.tuned[TUNED[spec].name], seed)
        return self._make(self._runs[seed][name].setting or spec, seed)

    def _make(self, spec: str, seed: int) -> DecidesStages:
        return make_scheduler(self._objects.get(spec, spec), seed)

    def results(self) -> pd.DataFrame:
        """Return the results of the finished experiments as a tidy table, a row for each scheduler and seed.

        Columns: ``scheduler`` (str), ``seed`` (int64), and those of ``runs``.
        """
        tables = [self.runs(name).reset_index().assign(scheduler=name) for name in self.schedulers]
        whole = pd.concat(tables, ignore_index=True)
        return whole[["scheduler", *whole.columns.drop("scheduler")]]

    @property
    def best_heuristic(self) -> str | None:
        """The heuristic with the lowest mean JCT over the finished experiments; ``None`` if none took part.

        Heuristics are all schedulers that ran here and were not learned (``Scheduler.learned``): those that come with
        the project, the tuned ones, those with hindsight included, and the user's own.
        """
        heuristics = [name for name in self.schedulers if name in self._ran_here - self._learned]
        if not heuristics or not self.finished:
            return None
        return min(heuristics, key=lambda name: float(self.runs(name)["mean_jct_s"].mean()))

    def summary(self, scheduler: str) -> dict[str, float]:
        """One scheduler in numbers; means over the finished experiments.

        ``mean_jct_s`` and half its 95 % confidence interval ``mean_jct_ci95_s`` (Student's t over the
        experiments); ``p95_jct_s``, the 95th percentile of the JCTs inside each experiment; ``makespan_s``;
        ``utilisation``; ``slowdown``; ``difference_s``, the average JCT minus that of ``best_heuristic``, paired by
        experiment, with its own ``difference_ci95_s``, and ``difference`` and ``difference_ci95``, the same as
        fractions of the best's. The best is chosen on these same experiments, so that interval is a little optimistic.
        NaN where a figure is not defined (an interval of one experiment).
        """
        runs, best = self.runs(scheduler), self.best_heuristic
        jct = mean_interval(runs["mean_jct_s"])
        difference, scale = Interval(math.nan, math.nan), math.nan
        if best is not None:
            base = self.runs(best)["mean_jct_s"]
            difference, scale = mean_interval(runs["mean_jct_s"] - base), float(base.mean())
        return {
            "mean_jct_s": jct.mean,
            "mean_jct_ci95_s": jct.half_width,
            **{
                name: float(runs[name].mean())
                for name in ("p95_jct_s", "makespan_s", "utilisation", "slowdown")
            },
            "difference_s": difference.mean,
            "difference_ci95_s": difference.half_width,
            "difference": difference.mean / scale if scale else math.nan,
            "difference_ci95": difference.half_width / scale if scale else math.nan,
        }

    def jobs(self) -> pd.DataFrame:
        """Every job of the finished experiments under every scheduler that ran here, a row each.

        Columns: ``scheduler`` (str), ``seed`` and ``job`` (int64, its number in the sequence), ``query`` (str, the
        profile's name), ``arrival_s``, ``jct_s`` and ``slowdown`` (float64).
        """
        tables = []
        for seed in self.finished:
            sequence = self.conditions.sequence(seed)
            common = {
                "seed": seed,
                "job": np.arange(len(sequence)),
                "query": [profile.name for profile in sequence.profiles],
                "arrival_s": sequence.arrival_ms / 1000,
            }
            for name in self.schedulers:
                if (found := self._jobs.get((seed, name))) is not None:
                    times = {"jct_s": found.jct_ms / 1000, "slowdown": found.slowdown}
                    tables.append(pd.DataFrame({"scheduler": name, **common, **times}))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def by_query(self) -> pd.DataFrame:
        """Mean JCT of the jobs of each query under each scheduler, s; a row for each query, those with most jobs first.

        Columns: ``jobs`` (int64, over all finished experiments), and those of the schedulers, in order (float64).
        """
        jobs = self.jobs()
        means = jobs.pivot_table(index="query", columns="scheduler", values="jct_s")[list(self.schedulers)]
        counts = jobs.groupby("query").size() // len(self.schedulers)
        return means.assign(jobs=counts).sort_values("jobs", ascending=False, kind="stable")[
            ["jobs", *self.schedulers]
        ]

    def table(self) -> pd.DataFrame:
        """The summaries: one row per scheduler, in order, float64 columns."""
        rows = {name: self.summary(name) for name in self.schedulers}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("scheduler")

    def to_json(self, **extra: Any) -> str:
        """The results as JSON, seconds; the same settings give the same text, bit for bit.

        Args:
            extra: further top-level entries, such as the command that was run.
        """
        conditions, sampled = self.conditions, self.conditions.workload.sequence is None
        poisson = sampled and conditions.arrivals == "poisson"
        content = {
            "workload": conditions.workload.name,
            "executors": conditions.cluster.num_executors,
            "executor_classes": [asdict(kind) for kind in conditions.cluster.executor_classes],
            "memory_demand": conditions.memory_demand,
            "arrivals": conditions.arrivals if sampled else "exact",
            "interval_s": conditions.interval_ms / 1000 if poisson else None,
            "drift": conditions.drift and conditions.drift.to_dict(),
            "window_s": None if conditions.window_ms is None else conditions.window_ms / 1000,
            "jobs": len(conditions.sequence(conditions.seed)),
            "moving_delay_s": conditions.cluster.moving_delay_ms / 1000,
            "semantics": _semantics(conditions),
            "seeds": self.finished,
            "training_seeds": list(self.training_seeds),
            "complete": self.complete,
            "best_heuristic": self.best_heuristic,
            "versions": versions(),
            **extra,
            "schedulers": {name: self._entry(name) for name in self.schedulers},
        }
        return json_text(content)

    def _entry(self, scheduler: str) -> dict[str, Any]:
        """What the JSON says of one scheduler."""
        runs, spec = self.runs(scheduler), self.schedulers[scheduler]
        entry: dict[str, Any] = dict(self.summary(scheduler))
        entry["per_seed_mean_jct_s"] = runs["mean_jct_s"].tolist()
        if scheduler in ANY_POLICY:
            entry["policy"] = self.policy
        if scheduler in self.misfits:
            entry |= {name: int(runs[name].sum()) for name in ("decisions", "guarded")}
            entry["outside_training"] = self.misfits[scheduler]
        if _once(spec):
            entry["setting"] = self.tuned.get(TUNED[spec].name)
        elif spec in TUNED:
            entry["per_seed_setting"] = runs["setting"].tolist()
        return entry


def run_comparisons(
    comparisons: Sequence[Comparison],
    workers: int | str | None = None,
    on_step: OnStep = lambda done, total: None,
    on_compile: OnStep = lambda done, total: None,
) -> None:
    """Run what has not finished of some comparisons.

    Args:
        comparisons: they get their results as those are ready.
        workers: see ``check_workers``; a process for each CPU if omitted.
        on_step: called in this process after each piece of work, with how many are done and how many there are.
        on_compile: progress callback while code is compiled for the first time, see ``compile_parts``.

    Raises:
        CompareError: a scheduler failed.
        WorkerError: workers died, or there are none.
    """
    numbered = list(enumerate(comparisons))
    training = [
        (number, seed, family)
        for number, each in numbered
        for family in each._tuned_once
        for seed in each.training_seeds
        if (family, seed) not in each._sweeps
    ]
    num_pieces = sum(1 for number, each in numbered for _ in each._pieces(number))
    done, total = itertools.count(1), len(training) + num_pieces
    shared = [(each.conditions, each.schedulers, each._objects, each._grids) for each in comparisons]
    workers = workers or available_cpus()
    specs = [spec for each in comparisons for spec in each.schedulers.values()]
    compile_parts(comparisons[0].conditions, specs, workers, on_compile)
    with make_workers(shared, workers, max(len(training), num_pieces)) as team:
        for number, seed, family, sweep_of_seed in team.map(_train, training):
            comparisons[number]._sweeps[family, seed] = sweep_of_seed
            on_step(next(done), total)
        tuned = [each.tuned for each in comparisons]
        pieces = [piece for number, each in numbered for piece in each._pieces(number, team.count)]
        for piece, runs, jobs, episodes in team.map(partial(_run, tuned), pieces):
            comparisons[piece.number]._add(piece, runs, jobs, episodes)
            on_step(next(done), total)


class JobTimes(NamedTuple):
    """What became of the jobs of an episode: JCT (float64 [jobs], ms) and slowdown (float64 [jobs])."""

    jct_ms: NDArray[np.float64]
    slowdown: NDArray[np.float64]


class _Piece(NamedTuple):
    """Some schedulers of a comparison on one seed."""

    number: int
    seed: int
    names: tuple[str, ...]
    keep: bool


#: What every worker knows of each comparison: conditions, schedulers by name, those that are objects, and grids.
_Shared = list[tuple[Conditions, dict[str, str], "dict[str, SchedulerLike]", dict[str, tuple[str, ...]]]]


def _shipped(conditions: Conditions) -> str:
    """Return the default policy for ``conditions``; ``DEFAULT_POLICY`` if no shipped policy fits."""
    fitting = best_fit(conditions)
    return DEFAULT_POLICY if fitting is None else fitting[0]


def _once(spec: str) -> bool:
    """Whether a scheduler is tuned once, on training sequences."""
    return spec in TUNED and TUNED[spec].once


def _train(shared: _Shared, item: tuple[int, int, str]) -> tuple[int, int, str, NDArray[np.float64]]:
    number, seed, family = item
    conditions, _, _, grids = shared[number]
    return *item, sweep_ms(conditions.cluster, conditions.sequence(seed), settings=grids[family])


def _run(
    tuned: Sequence[Mapping[str, str]], shared: _Shared, piece: _Piece
) -> tuple[_Piece, dict[str, Run], dict[str, JobTimes], dict[str, EpisodeRecord]]:
    """Run one work item and return its episode results; each setting runs once."""
    conditions, schedulers, objects, grids = shared[piece.number]
    cluster, sequence = conditions.cluster, conditions.sequence(piece.seed)
    specs = {
        name: tuned[piece.number][TUNED[spec].name] if _once(spec := schedulers[name]) else spec
        for name in piece.names
    }
    alone = [spec for spec in dict.fromkeys(specs.values()) if spec not in TUNED]
    known = {spec: run_scheduler(cluster, sequence, spec, objects.get(spec)) for spec in alone}
    found = {spec: ("", record) for spec, record in known.items()}
    if hindsight := {spec: TUNED[spec] for spec in specs.values() if spec in TUNED}:
        # All of a piece are of one family.
        settings = grids[next(iter(hindsight.values())).name]
        objectives = [each.objective for each in hindsight.values()]
        best = best_settings(sweep(cluster, sequence, settings, known), objectives)
        found |= {spec: best[each.objective] for spec, each in hindsight.items()}
    runs = {name: Run.of(found[spec][1], found[spec][0]) for name, spec in specs.items()}
    records = {name: found[spec][1] for name, spec in specs.items()}
    jobs = {name: JobTimes(record.jct_ms, record.slowdown) for name, record in records.items()}
    return piece, runs, jobs, records if piece.keep else {}


def _by_name(schedulers: Sequence[SchedulerLike]) -> dict[str, SchedulerLike]:
    found: dict[str, SchedulerLike] = {}
    for each in schedulers:
        name = each if isinstance(each, str) else getattr(each, "__name__", type(each).__name__)
        if name in found:
            raise CompareError(f"the scheduler {name} is named twice")
        found[name] = each
    return found


def _semantics(conditions: Conditions) -> str | dict[str, bool]:
    semantics = conditions.cluster.semantics
    named = (name for name, each in SEMANTICS.items() if each == semantics)
    return next(named, asdict(semantics))
