"""Report of a comparison: tables, notes and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from decima.evaluation.comparison import Comparison
from decima.evaluation.metrics import METRICS, RELATIVE, Interval, paired_change
from decima.evaluation.variants import TUNED, fair_rule
from decima.registry import ANY_POLICY, FALLBACK, policy_named, split_guarantees
from decima.schedulers.base import Kind
from decima.schedulers.entries import PARAMETERS
from decima.show.tables import Report, interval_text, metric_text, overruled_text, table_of
from simulator.cluster.config import ClusterConfig, ExecutorClass

if TYPE_CHECKING:
    import pandas as pd

#: Metrics in the table, in order.
COLUMNS = ("mean_jct_s", "p95_jct_s", "slowdown", "utilisation")


def comparison_report(
    comparison: Comparison,
    command: str,
    notes: Sequence[str] = (),
    *,
    by: Literal["query", "tenant"] | None = None,
    with_json: bool = True,
) -> Report:
    """Return tables, notes and JSON of a comparison with at least one finished experiment.

    ``by`` adds a table of the mean JCT of groups of jobs. Without ``with_json`` the JSON is empty, so that the times of
    jobs alone are computed only if a table shows the slowdown.
    """
    return Report(
        tables=[
            comparison_table(comparison),
            *([] if by is None else [group_table(comparison, by)]),
        ],
        notes=[*comparison_notes(comparison), *notes],
        json=comparison.to_json(command=command) if with_json else "",
    )


def comparison_table(comparison: Comparison) -> Table:
    """Return a comparison as a table, in seconds; it fits 80 columns unless a scheduler's name is long.

    Columns are ``COLUMNS``, or the metrics that the comparison shows with intervals. The last column compares the mean
    JCT, or the first metric shown, with the best rule.
    """
    best, columns = comparison.best_heuristic, comparison.shown or COLUMNS
    rows: dict[str, tuple[object, ...]] = {}
    for name, row in comparison.compared.items() if comparison.shown else ():
        first = row[comparison.compared_by]
        versus = first.difference if METRICS[comparison.compared_by].is_share else first.change
        rows[name] = (*(row[column].mean for column in columns), versus)
    for name, means in () if comparison.shown else comparison.summary.items():
        versus = Interval(means["difference"], means["difference_ci95"])
        rows[name] = (*(metric_text(means, column) for column in columns), versus)
    headings = ("Scheduler", *(METRICS[column].heading for column in columns), "vs best")
    cells = ((name, *row[:-1], "best" if name == best else row[-1]) for name, row in rows.items())
    forms = (*(METRICS[column].form for column in columns), "+.1%")
    return table_of(_title(comparison), headings, cells, forms, bold={best or ""})


def group_table(comparison: Comparison, by: Literal["query", "tenant"] = "query") -> Table:
    """Return the mean JCT of each query's or tenant's jobs, largest groups first.

    Columns are the best rule and the networks (without these, all others), with the difference from the best rule.
    """
    best, jobs = comparison.best_heuristic, comparison.measured_jobs
    schedulers = [name for name in comparison.schedulers if name != best]
    networks = [name for name in schedulers if comparison.kinds.get(name) == Kind.NETWORK]
    shown = ([] if best is None else [best]) + (networks or schedulers)
    means = jobs.pivot_table(index=by, columns="scheduler", values="jct_s", observed=True)
    sizes = jobs.groupby(by, observed=True).size().sort_values(ascending=False, kind="stable")

    def text(row: pd.Series[float], name: str) -> str:
        versus = "" if name == best or best is None else f" ({row[name] / row[best] - 1:+.0%})"
        return f"{row[name]:.1f}{versus}"

    rows = (
        (str(group), str(size // len(comparison.schedulers)), *(text(row, name) for name in shown))
        for (group, row), size in zip(means.reindex(sizes.index).iterrows(), sizes, strict=True)
    )
    return table_of(f"Mean JCT by {by}, s", (by.capitalize(), "Jobs", *shown), rows)


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return notes on the table, one sentence each."""
    schedulers, best = comparison.schedulers, comparison.best_heuristic
    runs = {str(name): mine for name, mine in comparison.measured.groupby("scheduler", sort=False)}
    first = METRICS[comparison.compared_by]
    what = "mean JCT" if comparison.compared_by == "mean_jct_s" else first.heading
    tails = (
        ", for quantiles and maxima a bootstrap"
        if any(METRICS[name].is_tail for name in comparison.shown)
        else ""
    )
    notes = [
        *_gain_note(comparison),
        f"Times are seconds; ± is half a 95 % confidence interval (Student's t{tails}).",
    ]
    if best is not None:
        points = " in percentage points" if first.is_share else ""
        notes.append(
            f"vs best: difference of the {what}{points} from that of {best}, the best of the rules; "
            "paired by experiment."
        )
    if shows_slowdown(comparison):
        notes += _slowdown_notes(comparison)
    notes += [_tuning(comparison, name, runs[name]) for name, spec in schedulers.items() if spec in TUNED]
    notes += [
        f"No stage fits executors of {_class_text(kind)}." for kind in comparison.conditions.idle_classes
    ]
    notes += _kind_notes(comparison)
    for name, mine in runs.items():
        guarded, decisions = mine[["guarded", "decisions"]].sum()
        if guarded:
            notes.append(
                f"{name}: its guard changed {guarded:,} of {decisions:,} decisions, which would have left executors "
                "idle while work waits."
            )
        notes += _guarantee_notes(comparison, name, mine)
        if failed := int(mine["failed_jobs"].sum()):
            jobs = sum(len(comparison.conditions.sequence(seed)) for seed in comparison.finished)
            notes.append(f"{name}: {failed:,} of {jobs:,} jobs failed; the times are those of the others.")
    notes += [
        f"{name} may do badly here, its policy is out of its training distribution: {'; '.join(misfits)}."
        for name, misfits in comparison.misfits.items()
        if misfits
    ]
    return notes


def _gain_note(comparison: Comparison) -> list[str]:
    """Return a sentence on the scheduler with the shortest mean JCT; empty if fair sharing is not compared."""
    jct_s = comparison.measured.groupby("scheduler")["mean_jct_s"].mean()
    name, fair = str(jct_s.idxmin()), "fair"
    if fair not in jct_s or comparison.shown or name == fair:
        return []
    return [
        f"Jobs complete {1 - jct_s[name] / jct_s[fair]:.0%} sooner under {name} than under fair sharing, on average."
    ]


def _kind_notes(comparison: Comparison) -> list[str]:
    """Return notes that name the rules with searched weights and the networks, and how these were trained."""
    notes = [
        f"{name}: the rule {FALLBACK}, as no shipped network was trained for such jobs on such a cluster."
        for name in ANY_POLICY
        if comparison.schedulers.get(name) == FALLBACK
    ]
    tuned = [
        name for name, kind in comparison.kinds.items() if kind == Kind.TUNED_RULE and name not in ANY_POLICY
    ]
    if tuned:
        what = "a rule" if len(tuned) == 1 else "rules"
        notes.append(f"{', '.join(tuned)}: {what} with weights that a search found.")
    for name, kind in comparison.kinds.items():
        policy = policy_named(comparison.schedulers[name])
        if kind == Kind.NETWORK and policy is not None:
            from decima.policy.about import read_about

            differing, decisions = comparison.differences(name, FALLBACK)
            notes.append(
                f"{name}: the network {policy}, {_training_text(read_about(policy))}. It decided otherwise than "
                f"{FALLBACK} in {differing / max(decisions, 1):.0%} of {decisions:,} decisions of the first experiment."
            )
    return notes


def _training_text(about: Mapping[str, Any]) -> str:
    """Return how a policy was trained, in a few words, from the information in its file, possibly malformed."""
    config = about.get("config")
    if not isinstance(config, Mapping):
        return "whose training is unknown"
    cloning, iterations = config.get("behaviour_cloning"), about.get("iteration")
    if isinstance(cloning, Mapping):
        from decima.schedulers.former_names import present_rule

        rule = present_rule(str(cloning.get("scheduler")))
        text = f"cloned from {rule:.40}, then improved by reinforcement learning"
    elif about.get("before"):
        text = "trained from another policy by reinforcement learning"
    else:
        text = "trained from nothing by reinforcement learning"
    if cloning is not None and iterations == 0:
        text = text.partition(",")[0]
    return f"{text}; one training seed"


def shows_slowdown(comparison: Comparison) -> bool:
    """Return whether the table of a comparison needs the times of the jobs alone."""
    return not RELATIVE.keys().isdisjoint(comparison.shown or COLUMNS)


def _slowdown_notes(comparison: Comparison) -> list[str]:
    """Return a note on estimated times of jobs alone; empty if all were simulated."""
    jobs, estimated, error = comparison.times_alone.values()
    if not estimated:
        return []
    return [
        f"Slowdown: for {estimated:,} of {jobs:,} jobs the time alone is an estimate; 95 % of such estimates are "
        f"within {error:.0%}."
    ]


def _guarantee_notes(comparison: Comparison, scheduler: str, runs: pd.DataFrame) -> list[str]:
    """Return notes on a scheduler's guarantees, one sentence each; empty for a scheduler without guarantees.

    ``runs`` are its rows in the comparison's, which has at least one finished experiment.
    """
    base, guarantees = split_guarantees(comparison.schedulers[scheduler])
    if not guarantees:
        return []
    changed, decisions = int(runs["overruled"].sum()), int(runs["decisions"].sum())
    text = f"{scheduler}: guarantees changed {changed:,} of {decisions:,} decisions"
    episode = comparison.episodes.get(scheduler)
    if episode is not None and episode.kept is not None:
        where = overruled_text(episode.kept.overruled)
        text += f" (in the first experiment {where})" if where else ""
    plain = next((name for name, spec in comparison.schedulers.items() if spec == base), None)
    if plain is not None:
        jct_s = comparison.measured.set_index("scheduler")["mean_jct_s"]
        cost = paired_change(jct_s[[scheduler]], jct_s[[plain]])
        text += f"; mean JCT {interval_text(cost, '+.1%')} against {plain}"
    notes = [f"{text}."]
    if math.isfinite(guarantees.no_later_than):
        notes.append(_lateness(comparison, scheduler, guarantees.no_later_than, runs))
    if guarantees.floor:
        below_s = runs["below_floor_s"].max()
        notes.append(
            f"{scheduler}: a tenant that could use executors had fewer than its floor for at most {below_s:.1f} s."
        )
    if guarantees.ceiling:
        above = int(runs["above_ceiling"].max())
        kept = f"was exceeded by at most {above} executors" if above else "was never exceeded"
        notes.append(f"{scheduler}: the ceiling {kept}.")
    return notes


def _lateness(comparison: Comparison, scheduler: str, factor: float, runs: pd.DataFrame) -> str:
    """Describe the number and lateness of jobs that are later than the factor allows."""
    late, rule = int(runs["late_jobs"].sum()), fair_rule(comparison.conditions.cluster)
    jobs = sum(len(comparison.conditions.sequence(seed)) for seed in comparison.finished)
    allowed = f"{factor:g} times their JCT under {rule}"
    if not late:
        return f"{scheduler}: none of {jobs:,} jobs is later than {allowed}."
    return (
        f"{scheduler}: the guarantee is not kept for {late:,} of {jobs:,} jobs, which are later than {allowed}: by at "
        f"most {runs['lateness_s'].max():.1f} s, at worst {runs['latest_ratio'].max():.2f} times that JCT."
    )


def _tuning(comparison: Comparison, scheduler: str, runs: pd.DataFrame) -> str:
    """Describe how the parameters of a tuned scheduler were found, and their values."""
    how = TUNED[comparison.schedulers[scheduler]]
    if how.once:
        setting, training = comparison.tuned[how.name], len(comparison.training_seeds)
        return f"{scheduler}: {setting}, tuned on training sequences ({training})."
    chosen = [map(float, setting.split(":")[1:]) for setting in runs["setting"]]
    ranges = (
        f"{name} {min(values):g} to {max(values):g}, median {median_low(values):g}"
        for name, values in zip(PARAMETERS[how.name], zip(*chosen, strict=True), strict=True)
    )
    return f"{scheduler}: the best of each experiment, known only in hindsight; {'; '.join(ranges)}."


def _title(comparison: Comparison) -> str:
    settings = comparison.conditions
    jobs = len(settings.sequence(settings.seed))
    if settings.window_ms is not None:
        what = f"windows of {settings.window_ms / 1000:g} s of {settings.workload.name}"
    elif settings.workload.sequence is not None:
        what = f"the {jobs} jobs of {settings.workload.name}"
    elif settings.arrivals == "poisson":
        what = f"{jobs} {settings.workload.name} jobs, Poisson, {settings.interval_ms / 1000:g} s apart"
        what += "" if settings.drift is None else f", {settings.drift}"
    else:
        what = f"batch of {jobs} {settings.workload.name} jobs"
    finished = len(comparison.finished)
    what += f", {settings.attributes}" if settings.attributes else ""
    if not settings.cluster.knowledge.is_exact:
        what += f", {settings.cluster.knowledge}"
    if settings.cluster.signal is not None:
        what += f", carbon of {settings.cluster.signal.name}"
    if settings.cluster.faults.active:
        what += f", {settings.cluster.faults}"
    count = f"{finished}" if comparison.complete else f"{finished} of {settings.num_experiments}"
    return f"{what}, {_executors(settings.cluster)}, {count} experiments"


def _executors(cluster: ClusterConfig) -> str:
    text = f"{cluster.num_executors} executors"
    if len(cluster.executor_classes) == 1:
        return text
    sizes = "; ".join(f"{kind.count} of {_class_text(kind)}" for kind in cluster.executor_classes)
    return f"{text} ({sizes})"


def _class_text(kind: ExecutorClass) -> str:
    return f"cpu {kind.cpu:g}, memory {kind.memory:g}"
