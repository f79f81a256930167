"""Table 3 of the Decima paper: a policy with many more jobs, or executors, than in its training; on a trace's jobs."""

from __future__ import annotations

from decima.evaluation.intervals import paired_change
from decima.evaluation.tuning import HINDSIGHT
from decima.show.tables import interval_text
from decima.studies.compared import compared, jct_s, tidy
from decima.studies.multi_resource import GRAPHENE_STAR, OURS, as_option, four_sizes
from decima.studies.outcome import Outcome
from decima.studies.study import Study, Variant
from simulator.cluster.config import TRACE, ExecutorClass

__all__ = ["FEWER_EXECUTORS", "FEWER_JOBS", "HERE", "table3"]

#: The paper trains with so many times fewer concurrent jobs, or executors.
TIMES_JOBS, TIMES_EXECUTORS = 15, 10
HERE = "decima trained there"
FEWER_JOBS = f"decima trained with {TIMES_JOBS} times fewer jobs"
FEWER_EXECUTORS = f"decima trained on {TIMES_EXECUTORS} times fewer executors"


def table3(study: Study, interval_s: float) -> Outcome:
    """Compare policies on streams of a trace's jobs on executors of four sizes, trained there and on less.

    One was trained where jobs arrive 15 times less often, so that one or two are present at a time; one on a tenth of
    the executors, with a tenth of the arrivals.

    Args:
        study: size and surroundings; the workload has no arrivals.
        interval_s: mean time between arrivals in the test, s.

    Raises:
        CompareError: executors, or a tenth of them, that cannot be divided among the sizes.
        WorkloadError: the workload says which jobs arrive when.
    """
    here = four_sizes(study.executors)
    small = four_sizes(max(1, round(study.executors / TIMES_EXECUTORS)))
    variants = {
        HERE: _variant(study, interval_s, here),
        FEWER_JOBS: _variant(study, interval_s * TIMES_JOBS, here),
        FEWER_EXECUTORS: _variant(study, interval_s * TIMES_EXECUTORS, small),
    }
    trained = study.train(*variants.values())
    conditions = study.conditions(
        num_experiments=10, num_jobs=200, interval_s=interval_s, executor_classes=here, semantics=TRACE
    )
    schedulers = {name: name for name in (HINDSIGHT, GRAPHENE_STAR, OURS)}
    schedulers |= {name: trained[variant.name] for name, variant in variants.items()}
    comparisons = study.compare({"": (conditions, schedulers)})
    runs = tidy(comparisons)

    def change(name: str, other: str) -> str:
        return (
            f"{interval_text(paired_change(jct_s(runs, name), jct_s(runs, other)), '+.1%')} against {other}"
        )

    jobs = f"{conditions.num_jobs} {study.workload.name} jobs {interval_s:g} s apart"
    load = float(runs[runs["scheduler"] == HINDSIGHT]["load"].mean())
    return compared(
        "table3",
        f"{jobs}, {study.executors} executors of 4 sizes",
        comparisons,
        runs=runs,
        paper={("", FEWER_JOBS): "7% above there", ("", FEWER_EXECUTORS): "3% above there"},
        notes=(
            f"In pairs: {FEWER_JOBS}, {change(FEWER_JOBS, HERE)}; {FEWER_EXECUTORS}, {change(FEWER_EXECUTORS, HERE)}.",
            f"All begin with what {OURS} would do; {HERE}: {change(HERE, OURS)}.",
            f"Load under {HINDSIGHT}: {load:.0%}.",
        ),
        extra={"measured_load": load},
    )


def _variant(study: Study, interval_s: float, classes: tuple[ExecutorClass, ...]) -> Variant:
    config = study.config("trace", workload__interval=interval_s, cluster__classes=as_option(classes))
    executors = sum(kind.count for kind in classes)
    return Variant(f"trace-{interval_s:g}s-{executors}-executors", config)
