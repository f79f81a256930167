"""Figure 21 of the Decima paper: how near to the best order of jobs, where order is all that matters.

Executors move at once and all tasks of a stage take the same time. The rival is the best order of all n! that the
search of `decima.studies.order_search` finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions
from decima.evaluation.run import Run
from decima.evaluation.tuning import HINDSIGHT
from decima.outputs import make_folder
from decima.studies.order_search import OrderSearch, search_orders, simplified_cluster
from decima.studies.study import Study, Variant
from decima.studies.study_report import FULL, RULE, Outcome
from decima.workers.pool import make_workers
from workloads.simplify import simplified
from workloads.sources.workload_file import Workload, write_workload

__all__ = ["ALPHAS", "SEARCH", "Found", "fig21", "simplified_study"]

#: Here the best alpha lies below those of the paper's sweep.
ALPHAS: tuple[float, ...] = tuple(tenths / 10 for tenths in range(-40, 21))
#: Orders that are run for each sequence and way to serve them.
EVALUATIONS = 1000
SEARCH = "best order"


def fig21(study: Study) -> Outcome:
    """Batches of 10 jobs: a policy trained on such, classic schedulers, and the best order of the jobs."""
    study = simplified_study(study)
    jobs = study.num_jobs or 10
    variant = Variant("simplified", study.config("batch", workload__jobs=jobs, cluster__moving_delay=0.0))
    schedulers = {
        **{name: name for name in ("fifo", "sjf-cp", "fair", HINDSIGHT, RULE)},
        FULL: study.full_policy(variant),
    }
    conditions = replace(
        study.conditions(num_experiments=100, num_jobs=jobs), cluster=simplified_cluster(study.executors)
    )
    found = _search(study, conditions, study.scaled(EVALUATIONS, least=20))
    comparisons = study.compare({"": (conditions, schedulers)}, alphas=ALPHAS)
    # Of the schedules that the search finds only the mean JCT is known.
    runs = {seed: Run(each.best.mean_jct_ms) for seed, each in zip(conditions.seeds, found, strict=True)}
    comparisons[""].add(SEARCH, runs)
    return Outcome(
        "fig21",
        f"Batches of {jobs} simplified {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        paper={("", FULL): "-9% vs best order", ("", "sjf-cp"): "beats tuned", ("", SEARCH): "beats sjf-cp"},
        notes=_notes(comparisons[""], found),
        extra={"order_search": [_entry(each) for each in found]},
    )


def simplified_study(study: Study) -> Study:
    """The same with the simplified jobs, which are written beside the policies for their training to read.

    Raises:
        OutputError: they cannot be written.
    """
    workload = Workload(tuple(map(simplified, study.workload.profiles)), None, study.workload.name)
    make_folder(study.policies)
    file = study.policies / "simplified.json.gz"
    write_workload(file, workload)
    return replace(study, workload=workload, source={"file": str(file)})


@dataclass(frozen=True)
class Found:
    """The best order of one batch.

    Attributes:
        searches: one for each way to serve an order (see ``JobOrder``): ahead of the parents' end, and not.
    """

    searches: tuple[OrderSearch, ...]

    @property
    def best(self) -> OrderSearch:
        """The one with the lowest mean JCT."""
        return min(self.searches, key=lambda search: search.mean_jct_ms)

    @property
    def gap(self) -> float:
        """By what fraction of its mean JCT it may miss the best order; 0 if it is proven best."""
        lowest = min(search.lower_bound_ms for search in self.searches)
        return max(0.0, 1.0 - lowest / self.best.mean_jct_ms)


def _search(study: Study, conditions: Conditions, max_evaluations: int) -> list[Found]:
    """The best order for each seed."""
    seeds = list(conditions.seeds)
    found: dict[int, Found] = {}
    with make_workers((conditions, max_evaluations), study.workers, len(seeds)) as workers:
        for seed, result in workers.map(_search_one, seeds):
            found[seed] = result
            study.tell("searching orders", len(found), len(seeds))
    return [found[seed] for seed in seeds]


def _search_one(shared: tuple[Conditions, int], seed: int) -> tuple[int, Found]:
    conditions, max_evaluations = shared
    sequence, executors = conditions.sequence(seed), conditions.cluster.num_executors
    searches = [
        search_orders(sequence, executors, ahead=ahead, max_evaluations=max_evaluations)
        for ahead in (True, False)
    ]
    return seed, Found(tuple(searches))


def _notes(comparison: Comparison, found: Sequence[Found]) -> tuple[str, ...]:
    best = float(np.mean([each.best.mean_jct_ms for each in found])) / 1000
    gaps = np.array([each.gap for each in found])
    learned = float(comparison.runs(FULL)["mean_jct_s"].mean())
    evaluated = np.mean([sum(search.num_evaluated for search in each.searches) for each in found])
    return (
        f"{SEARCH}: all {found[0].best.num_orders} orders of the jobs, served in two ways; {evaluated:.0f} were run on "
        f"average, others ruled out by a bound. Proven best in {(gaps == 0).sum()} of {gaps.size} batches; no order is "
        f"better by more than {gaps.max():.1%}, on average {gaps.mean():.1%}.",
        f"{FULL} is {abs(learned / best - 1):.1%} {'above' if learned > best else 'below'} the best order found (the "
        "paper: 9% below its search); it need not serve one job before the other.",
        f"Here, alpha is swept from {ALPHAS[0]:g} to {ALPHAS[-1]:g}, as the best one lies at the edge of -2 to 2.",
    )


def _entry(found: Found) -> dict[str, Any]:
    searches = [asdict(search) | {"gap": search.gap, "proven": search.proven} for search in found.searches]
    return {"gap": found.gap, "searches": searches}
