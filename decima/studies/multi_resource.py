"""Section 7.3 of the Decima paper, with Figure 11 and Table 3: jobs with memory demands, executors of four sizes.

Jobs are from an industrial trace, or TPC-H jobs with random memory demands.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import mean_interval
from decima.evaluation.variants import HINDSIGHT
from decima.policy.shipped import SHIPPED
from decima.registry import LEARNED
from decima.show.style import draw_dots, finish_axes, new_axes, plain_log_ticks
from decima.studies.compared import change, change_text, compared, jct_s, tidy
from decima.studies.outcome import FULL, Claim, Outcome
from decima.studies.study import Study, Variant
from simulator.cluster.config import TRACE, ExecutorClass

#: Memory of an executor, by class; all classes have equally many executors, with one core each.
MEMORY = (0.25, 0.5, 0.75, 1.0)
TETRIS = "tetris"
GRAPHENE_STAR = "tuned-graphene-star"
#: Heuristics of the paper with parameters tuned in hindsight for each experiment, and Graphene.
HEURISTICS = (HINDSIGHT, "tuned-tetris", "tuned-graphene", GRAPHENE_STAR)
#: Tetris as the paper describes it, pure packing: one candidate setting of ``tuned-tetris``, so that it runs only once.
PURE = {TETRIS: "tetris:0:0"}
#: This project's packing heuristic.
OURS = "srpt"


def experiments(
    study: Study, *, trace: bool, interval_s: float = 4.0, window_s: float = 6480.0, num_experiments: int = 10
) -> Conditions:
    """Return the evaluation setting of section 7.3: streams of 200 TPC-H jobs, or windows of a trace.

    Stages of TPC-H jobs demand memory drawn uniformly from (0, 1]. Jobs 4 s apart keep 200 executors busy for about 80
    % of the time; windows of 6480 s cut the excerpt in docs/studies.md into twelve.

    Raises:
        CompareError: the executors cannot be divided among the classes.
        WorkloadError: the workload has arrival times but ``trace`` is false, or vice versa.
    """
    size: dict[str, Any] = {
        "num_experiments": num_experiments,
        "executor_classes": four_sizes(study.executors),
    }
    if trace:
        return study.replay(window_s=window_s, semantics=TRACE, **size)
    return study.conditions(num_jobs=200, interval_s=interval_s, memory_demand="uniform", **size)


def four_sizes(executors: int) -> tuple[ExecutorClass, ...]:
    """Divide executors equally among classes, one for each of ``MEMORY``.

    Raises ``CompareError`` if the number of executors is not a multiple of the number of classes.
    """
    count, rest = divmod(executors, len(MEMORY))
    if rest or not count:
        raise CompareError(f"{executors} executors: expected a multiple of {len(MEMORY)}, the classes")
    return tuple(ExecutorClass(count, 1.0, memory) for memory in MEMORY)


def _as_option(classes: tuple[ExecutorClass, ...]) -> str:
    """Format executor classes as the setting ``cluster.classes`` of a training configuration."""
    return ",".join(f"{kind.count}x{kind.memory:g}" for kind in classes)


def learned(study: Study, conditions: Conditions) -> str:
    """Return the policy as a scheduler: the checkpoint, else the shipped policy, else a newly trained policy.

    The shipped policy for traces was trained on other windows; without it, a trace needs a checkpoint
    (``CompareError``).
    """
    if study.checkpoint is not None:
        return f"{LEARNED}:{study.checkpoint}"
    trace = study.workload.sequence is not None
    shipped = SHIPPED["packing-trace" if trace else "packing-tpch"]
    if shipped.is_file() and (trace or "profiles" in study.source):
        return f"{LEARNED}:{shipped}"
    if trace:
        raise CompareError("this installation has no policy for traces: name one with --checkpoint FILE")
    interval_s = conditions.interval_ms / 1000
    jobs = {"workload__interval": interval_s, "workload__memory_demand": "uniform"}
    classes = _as_option(conditions.cluster.executor_classes)
    config = study.config("packing", cluster__classes=classes, **jobs)
    return study.train({FULL: Variant(f"packing-{interval_s:g}s", config)})[FULL]


def fragmentation_claim(runs: pd.DataFrame) -> Claim:
    """Check the paper's claim that unused memory is 4 to 13 % above that of pure packing."""
    means = runs.groupby("scheduler")["fragmentation"].mean()
    ours, theirs = float(means[FULL]), float(means[TETRIS])
    here = f"{ours:.1%} of the memory of busy executors; {TETRIS} {theirs:.1%}: {ours / theirs - 1:+.0%}"
    return Claim("Decima's fragmentation is within 4% to 13% of Tetris's.", here, ours / theirs <= 1.13)


# ---- Figure 11: a trace, and TPC-H jobs --------------------------------------------------------------------

#: Number of sequences on which heuristics are tuned in advance: TPC-H streams, last windows of a trace.
NUM_TRAINING, TRACE_TRAINING = 6, 2
#: Heuristics without parameters, and Graphene* tuned in advance.
OTHERS = ("fair", "drf", f"{GRAPHENE_STAR}:once")


def fig11a(study: Study, window_s: float) -> Outcome:
    """Compare schedulers on ten windows of a trace, on which no policy was trained."""
    conditions = experiments(study, trace=True, window_s=window_s)
    title = f"Windows of {window_s:g} s of {study.workload.name}, {study.executors} executors of 4 sizes"
    return _fig11(study, conditions, "fig11a", title, paper=0.32)


def fig11b(study: Study, interval_s: float) -> Outcome:
    """Compare schedulers on ten streams of 200 TPC-H jobs with memory demands from (0, 1]."""
    conditions = experiments(study, trace=False, interval_s=interval_s)
    return _fig11(study, conditions, "fig11b", f"{study.title(conditions)} of 4 sizes", paper=0.43)


def _fig11(study: Study, conditions: Conditions, name: str, title: str, paper: float) -> Outcome:
    schedulers = {each: each for each in OTHERS} | PURE
    schedulers |= {each: each for each in (*HEURISTICS, OURS)} | {FULL: learned(study, conditions)}
    num_training = NUM_TRAINING if conditions.window_ms is None else TRACE_TRAINING
    comparisons = study.compare({"": (conditions, schedulers)}, num_training=num_training)
    comparison, runs = comparisons[""], tidy(comparisons)
    best = min(HEURISTICS, key=lambda each: float(jct_s(runs, each).mean()))
    load = float(runs[runs["scheduler"] == HEURISTICS[0]]["load"].mean())
    return compared(
        name,
        title,
        comparisons,
        paper={("", FULL): f"-{paper:.0%} against Graphene*"},
        columns=("fragmentation",),
        claims=(
            _lower(
                f"Decima's average JCT is {paper:.0%} below that of Graphene*.", runs, GRAPHENE_STAR, paper
            ),
            _lower("It is below that of all others too.", runs, best),
            fragmentation_claim(runs),
            _lower("Its average JCT is 52% below Tetris's.", runs, TETRIS, 0.52),
        ),
        notes=(
            "tuned-NAME: the best parameters of each experiment, known only in hindsight, as in the paper; :once has "
            f"{comparison.tuned['graphene-star']}, which was best on {len(comparison.training_seeds)} other sequences.",
            f"Load: tasks kept executors busy for {load:.0%} of the time until the last arrival under {HEURISTICS[0]}.",
            f"A simple rule, {OURS}: {change_text(runs, OURS, best)}; {FULL}: {change_text(runs, FULL, OURS)}.",
        ),
        extra={"measured_load": load, "best_heuristic": best},
        pictures={name: partial(plot_fig11, runs)},
    )


def _lower(paper: str, runs: pd.DataFrame, other: str, by: float = 0.0) -> Claim:
    """Check whether Decima's mean JCT is lower by the fraction ``by``: the interval excludes 0 and reaches ``by``."""
    mean, half_width = change(runs, FULL, other)
    holds = mean + half_width < 0 and mean - half_width <= -by
    return Claim(paper, f"{FULL}: {change_text(runs, FULL, other)}", holds)


def plot_fig11(runs: pd.DataFrame) -> Figure:
    """Draw mean JCTs with intervals on a logarithmic axis, one row per scheduler."""
    means = {name: mean_interval(jct_s(runs, name)) for name in runs["scheduler"].unique()}
    figure, axes = new_axes(7, 0.3 * len(means) + 1)
    draw_dots(axes, means)
    finish_axes(axes, xlabel="Average job completion time (s)", xscale="log")
    plain_log_ticks(axes.xaxis)
    return figure


# ---- Table 3: more jobs and executors than in training -----------------------------------------------------

#: Ratios of test to training in the paper: number of concurrent jobs, number of executors.
TIMES_JOBS, TIMES_EXECUTORS = 15, 10
HERE = "decima trained there"
FEWER_JOBS = f"decima trained with {TIMES_JOBS} times fewer jobs"
FEWER_EXECUTORS = f"decima trained on {TIMES_EXECUTORS} times fewer executors"


def table3(study: Study, interval_s: float) -> Outcome:
    """Compare policies trained in the test setting, with fewer jobs, and with fewer executors.

    Test streams have jobs of a trace. One policy was trained with 15 times rarer arrivals, so that one or two jobs are
    in the system. Another policy was trained with a tenth of the executors and a tenth of the arrivals.
    """
    here = four_sizes(study.executors)
    small = four_sizes(max(1, round(study.executors / TIMES_EXECUTORS)))
    variants = {
        HERE: _variant(study, interval_s, here),
        FEWER_JOBS: _variant(study, interval_s * TIMES_JOBS, here),
        FEWER_EXECUTORS: _variant(study, interval_s * TIMES_EXECUTORS, small),
    }
    schedulers = {name: name for name in (HINDSIGHT, GRAPHENE_STAR, OURS)} | study.train(variants)
    conditions = study.conditions(
        num_experiments=10, num_jobs=200, interval_s=interval_s, executor_classes=here, semantics=TRACE
    )
    comparisons = study.compare({"": (conditions, schedulers)})
    runs = tidy(comparisons)
    against = partial(change_text, runs)
    pairs = (f"{name}, {against(name, HERE)}" for name in (FEWER_JOBS, FEWER_EXECUTORS))
    load = float(runs[runs["scheduler"] == HINDSIGHT]["load"].mean())
    return compared(
        "table3",
        f"{study.title(conditions)} of 4 sizes",
        comparisons,
        paper={("", FEWER_JOBS): "7% above there", ("", FEWER_EXECUTORS): "3% above there"},
        notes=(
            f"In pairs: {'; '.join(pairs)}.",
            f"All begin with the choices of {OURS}; {HERE}: {against(HERE, OURS)}.",
            f"Load under {HINDSIGHT}: {load:.0%}.",
        ),
        extra={"measured_load": load},
    )


def _variant(study: Study, interval_s: float, classes: tuple[ExecutorClass, ...]) -> Variant:
    config = study.config("trace", workload__interval=interval_s, cluster__classes=_as_option(classes))
    executors = sum(kind.count for kind in classes)
    return Variant(f"trace-{interval_s:g}s-{executors}-executors", config)
