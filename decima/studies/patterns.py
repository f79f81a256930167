"""Generalisation of shipped policies to arrival patterns that differ from training, against ``priced-srpt``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from decima.evaluation.conditions import Conditions
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.studies.compared import change, compared, gains_table, tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study
from workloads.arrival_patterns import STEADY, ArrivalPattern
from workloads.arrivals import JobSequence

__all__ = ["PATTERNS", "patterns"]

#: Displayed name -> factor on the mean time between arrivals, and arrival pattern.
PATTERNS: Mapping[str, tuple[float, ArrivalPattern]] = {
    "as trained": (1.0, STEADY),
    "more arrivals": (0.56, STEADY),
    "bursts": (1.0, ArrivalPattern(burst=8)),
    "day and night": (1.0, ArrivalPattern(night=0.8)),
    "half, then double": (1.5, ArrivalPattern(drift=3.0)),
    "bursts by day": (0.8, ArrivalPattern(burst=5, night=0.8)),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Patterned(Conditions):
    """An evaluation setting whose streams have an arrival pattern."""

    pattern: ArrivalPattern

    def sequence(self, seed: int) -> JobSequence:
        """Return the job sequence of a seed, with the arrival pattern."""
        return self.pattern.applied(super().sequence(seed))


def patterns(study: Study, interval_s: float) -> Outcome:
    """Compare shipped policies with ``priced-srpt`` on streams of each arrival pattern."""
    policies = [f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"]
    if study.checkpoint is None:
        policies += study.specialists("stream", "batch")
    schedulers = {name: name for name in ("fair", RULE, *policies)}
    conditions = {}
    for name, (factor, pattern) in PATTERNS.items():
        plain = study.conditions(num_experiments=20, num_jobs=100, interval_s=round(factor * interval_s, 3))
        values = {each.name: getattr(plain, each.name) for each in fields(plain)}
        conditions[name] = _Patterned(**values, pattern=pattern), schedulers
    comparisons = study.compare(conditions)
    runs, others = tidy(comparisons), [name for name in schedulers if name != RULE]
    gains = {name: {each: change(runs, each, RULE, name) for each in others} for name in PATTERNS}
    return compared(
        "patterns",
        f"{next(iter(conditions.values()))[0].num_jobs} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        reference=RULE,
        tables=[gains_table(f"Mean JCT against {RULE}", "Arrivals", gains)],
        notes=[
            f"{name}: {each.interval_ms / 1000:g} s apart{', ' * bool(str(each.pattern))}{each.pattern}."
            for name, (each, _) in conditions.items()
        ],
    )
