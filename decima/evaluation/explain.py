"""Explain a decision of a policy: observation, probabilities, influence of features, counterfactual outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.decisions import effect_of, replay
from decima.evaluation.documents import json_text
from decima.evaluation.guarantee_metrics import check_tenants
from decima.evaluation.metrics import Interval, mean_interval
from decima.policy.compiled.graphs import Graphs
from decima.policy.files import load_policy
from decima.policy.policy import Policy
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler
from decima.schedulers.guarantees import Guarantees, guarded
from decima.schedulers.guarded import Guarded
from simulator.cluster.base import BaseCluster
from simulator.cluster.episode import DecidesStages
from simulator.cluster.estimates import Estimate, has_plan
from simulator.cluster.kept import Overruled
from simulator.cluster.observation import Decision, Observation

__all__ = ["Explanation", "explain", "explain_first"]

#: Heuristics to compare a policy with, in order of preference: the first that decides differently is used.
RULES = ("srpt", "weighted-fair:-1", "fair")
RULES_OF_CLASSES = ("srpt", "tetris", "fair")
#: Default number of futures: forks with other task noise.
FUTURES = 16


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanation of one decision of a policy.

    Attributes:
        number: index of the decision in its episode.
        time_ms: simulated time, ms.
        offered: number of offered executors.
        source: index of the job that held the offered executors; -1 for free executors.
        jobs: live jobs; columns ``job`` (index in the sequence), ``name``, ``executors`` (held), ``tasks_left``,
            ``work_left_s``, ``log_sd`` (uncertainty of the estimate), ``waited_s``; ``predicted_from`` (``DAG``, or
            ``DAG and plan`` if operators or bytes are known; empty if the job was not estimated at its arrival); and,
            NaN in that case, ``predicted_s`` (median of its work), ``predicted_low_s`` and ``predicted_high_s`` (ends
            of the 50 % interval).
        stages: schedulable stages by descending probability; columns ``job``, ``stage`` (index in the job), ``name``,
            ``tasks`` (unclaimed), ``mean_s``, ``probability``.
        limits: parallelism limits of the chosen stage's job (of the most probable stage, if the executors are left
            idle) by descending probability; columns ``limit``, ``probability``. A limit equal to the executors held
            leaves the offered ones idle.
        influences: features by descending effect; columns ``feature``, ``effect``: decrease of the log-probability
            of the chosen stage if the feature is replaced by its mean over all stages.
        chosen: the policy's decision, as (job, stage, limit); None if it left the executors idle.
        guarded: whether the guard changed the network's choice.
        guarantee: the guarantee that changed the decision; empty for none.
        overruled: all decisions of the episode that a guarantee changed.
        rule: name of the rule to compare with.
        by_rule: the rule's decision.
        mean_jct_s: mean JCT of the episode with the policy's decision, with the rule's decision (followed by the
            policy in both cases), and with the rule from this decision on.
        futures: number of futures (see ``BaseCluster.fork``) in which both decisions were compared; 0 if they have
            the same effect.
        difference_s: mean over the futures of the mean JCT with the rule's decision minus that with the policy's, s;
            the policy decides everything else. Positive if the policy's decision is better.
    """

    number: int
    time_ms: float
    offered: int
    source: int
    jobs: pd.DataFrame
    stages: pd.DataFrame
    limits: pd.DataFrame
    influences: pd.DataFrame
    chosen: tuple[int, int, int] | None
    guarded: bool
    guarantee: str
    overruled: tuple[Overruled, ...]
    rule: str
    by_rule: tuple[int, int, int] | None
    mean_jct_s: dict[str, float]
    futures: int
    difference_s: Interval

    @property
    def differs(self) -> bool:
        """Whether the rule decides differently."""
        return self.chosen != self.by_rule

    def to_json(self, **extra: Any) -> str:
        """Return the explanation as JSON; ``extra`` are further entries."""
        tables = {
            name: getattr(self, name).to_dict("records")
            for name in ("jobs", "stages", "limits", "influences")
        }
        content = {
            **extra,
            "decision": self.number,
            "time_s": self.time_ms / 1000,
            "offered": self.offered,
            "source": self.source,
            "chosen": self.chosen,
            "guarded": self.guarded,
            "guarantee": self.guarantee,
            "overruled": [decision._asdict() for decision in self.overruled],
            "rule": self.rule,
            "by_rule": self.by_rule,
            "mean_jct_s": self.mean_jct_s,
            "futures": self.futures,
            "difference_s": self.difference_s.mean if self.futures else None,
            "difference_ci95_s": self.difference_s.half_width if self.futures > 1 else None,
            **tables,
        }
        return json_text(content)


def explain(
    conditions: Conditions,
    policy: Path,
    *,
    decision: int = 0,
    at_ms: float = 0.0,
    differing: bool = False,
    rule: str = "srpt",
    futures: int = FUTURES,
    guarantees: Guarantees | None = None,
    overruled: bool = False,
) -> Explanation:
    """Explain the first decision of a policy in the first experiment that meets the conditions below.

    Args:
        decision: smallest index of the decision in the episode.
        at_ms: earliest time, ms.
        differing: whether the rule must decide differently.
        rule: scheduler to compare with.
        futures: number of futures in which both decisions are compared, if they differ.
        overruled: whether a guarantee must have changed the decision.

    Raises:
        CompareError: the episode has no such decision.
        PolicyFileError: the file cannot be read.
        SchedulerError: the rule or a tenant does not exist.
    """
    network = load_policy(policy)
    scheduler: DecidesStages = NeuralScheduler(network)
    other = make_scheduler(rule, conditions.seed)
    if guarantees:
        scheduler = guarded(scheduler, guarantees)
        check_tenants(conditions, [guarantees.suffix])
    if overruled:
        decision, at_ms = _overruled_first(conditions, scheduler, decision, at_ms), 0.0
    if differing:
        differing_decisions = _differences(conditions, scheduler, rule, decision, at_ms)
        if not differing_decisions:
            raise CompareError(f"{rule} agrees with the policy in all later decisions of the episode")
        decision, at_ms = differing_decisions[0][0], 0.0
    for index, (cluster, seen, chosen) in enumerate(replay(conditions, conditions.seed, scheduler)):  # noqa: B007
        if index >= decision and seen.time_ms >= at_ms:
            break
    else:
        end_s = cluster.now_ms / 1000
        asked = f"decision {decision}" + (f" at or after {at_ms / 1000:g} s" if at_ms else " or later")
        raise CompareError(f"no {asked}: the episode has {index + 1} decisions and ends at {end_s:g} s")
    other.reset(seen.config)
    by_rule = other.decide(seen)
    rest = _go_on(cluster.fork(), by_rule, other).record()
    to_the_end = _fork(scheduler)
    whole = _go_on(cluster.fork(), chosen, to_the_end).record()
    once = _go_on(cluster.fork(), by_rule, _fork(scheduler)).record()
    alike = effect_of(seen, chosen) == effect_of(seen, by_rule)
    differences = [
        _mean_jct_s(_go_on(cluster.fork(seed, log=False), by_rule, _fork(scheduler)))
        - _mean_jct_s(_go_on(cluster.fork(seed, log=False), chosen, _fork(scheduler)))
        for seed in range(0 if alike else futures)
    ]
    # Decisions of the network with and without its guard.
    with_guard, plain = (NeuralScheduler(network, guard=guard) for guard in (True, False))
    graph, deciding = plain.graph(seen), cast("Policy", plain.deciding(seen)[1])
    stages, limits = _probabilities(deciding, graph)
    with_guard.reset(seen.config)
    plain.reset(seen.config)
    all_overruled = _overruled(to_the_end)
    node = _node(graph, stages, chosen)
    return Explanation(
        number=index,
        time_ms=seen.time_ms,
        offered=seen.offered,
        source=int(seen.job_id[seen.source]) if seen.source >= 0 else -1,
        jobs=_jobs(seen, cluster.estimates),
        stages=_stages(seen, graph, stages),
        limits=_limits(graph, limits, node),
        influences=_influences(deciding, graph, node),
        chosen=_named(seen, chosen),
        guarded=plain.decide(seen) != with_guard.decide(seen),
        guarantee=next(
            (overruled.guarantee for overruled in all_overruled if overruled.decision == index), ""
        ),
        overruled=all_overruled,
        rule=rule,
        by_rule=_named(seen, by_rule),
        mean_jct_s={
            "as the policy decided": whole.mean_jct_ms / 1000,
            f"as {rule} here": once.mean_jct_ms / 1000,
            f"as {rule} from here on": rest.mean_jct_ms / 1000,
        },
        futures=len(differences),
        difference_s=mean_interval(differences),
    )


def _go_on(cluster: BaseCluster, decision: Decision | None, scheduler: DecidesStages) -> BaseCluster:
    """Carry out a decision, then follow a scheduler to the end of the episode; return the cluster."""
    cluster.decide(decision)
    while not cluster.done:
        seen = cluster.observe()
        cluster.decide(scheduler.decide(seen) if seen.num_schedulable else None)
    return cluster


def _fork(scheduler: DecidesStages) -> DecidesStages:
    """Return a scheduler for a fork of the cluster, with state of its own."""
    return scheduler.fork() if isinstance(scheduler, Guarded) else scheduler


def _overruled(scheduler: DecidesStages) -> tuple[Overruled, ...]:
    """Return the decisions of an episode that the guarantees of its scheduler changed."""
    return scheduler.kept.overruled if isinstance(scheduler, Guarded) else ()


def _overruled_first(conditions: Conditions, scheduler: DecidesStages, decision: int, at_ms: float) -> int:
    """Return the index of the first decision that a guarantee changed, from an index and a time (ms) on."""
    for _ in replay(conditions, conditions.seed, scheduler):
        pass
    indices = [
        overruled.decision
        for overruled in _overruled(scheduler)
        if overruled.decision >= decision and overruled.time_ms >= at_ms
    ]
    if not indices:
        raise CompareError("no guarantee changes a later decision of the episode")
    return indices[0]


def _mean_jct_s(cluster: BaseCluster) -> float:
    return float(np.nanmean(cluster.completion_ms - cluster.sequence.arrival_ms)) / 1000


def explain_first(conditions: Conditions, policy: Path) -> Explanation:
    """Explain the first decision of a policy in which a heuristic chooses another stage, see ``explain``.

    If the heuristic always chooses the same stages, the first decision with another limit is explained. If it always
    agrees with the policy, the next heuristic of ``RULES`` is used; if all agree, the first decision is explained.
    """
    rules = RULES if len(conditions.cluster.executor_classes) == 1 else RULES_OF_CLASSES
    network = load_policy(policy)
    for rule in rules:
        differences = _differences(conditions, NeuralScheduler(network), rule)
        if differences:
            index = next((index for index, other_stage in differences if other_stage), differences[0][0])
            return explain(conditions, policy, decision=index, rule=rule, futures=0)
    return explain(conditions, policy, rule=rules[0], futures=0)


def _differences(
    conditions: Conditions, scheduler: DecidesStages, rule: str, decision: int = 0, at_ms: float = 0.0
) -> list[tuple[int, bool]]:
    """Return indices of decisions in which the rule decides differently, with whether it chooses another stage."""
    other = make_scheduler(rule, conditions.seed)
    other.reset(conditions.cluster_of(conditions.seed))
    differences: list[tuple[int, bool]] = []
    for index, (_, seen, ours) in enumerate(replay(conditions, conditions.seed, scheduler)):
        theirs = other.decide(seen)
        if index >= decision and seen.time_ms >= at_ms:
            one, another = effect_of(seen, ours), effect_of(seen, theirs)
            if one != another:
                differences.append((index, one is None or another is None or one[0] != another[0]))
    return differences


def _named(seen: Observation, decision: Decision | None) -> tuple[int, int, int] | None:
    """Return job, stage, and the number of executors that the job holds after the decision; None if left idle."""
    effect = effect_of(seen, decision)
    if effect is None:
        return None
    stage, count = effect
    job = int(seen.stage_job[stage])
    return int(seen.job_id[job]), stage - int(seen.job_first_stage[job]), seen.held(job) + count


def _probabilities(policy: Policy, graph: Graphs) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    with torch.no_grad():
        stages, limits = policy.probabilities(graph)
    return stages.double().numpy(), [tensor.double().numpy() for tensor in limits]


def _node(graph: Graphs, probability: NDArray[np.float64], decision: Decision | None) -> int:
    """Return the row of the chosen stage, or of the most probable one if the executors are left idle."""
    if decision is None:
        return int(probability.argmax())
    [node] = np.flatnonzero(graph.stage_index == decision.stage)
    return int(node)


def _jobs(seen: Observation, estimates: Sequence[Estimate]) -> pd.DataFrame:
    predicted_ms = np.full((len(seen.jobs), 3), np.nan)
    for row, job in enumerate(seen.job_id.tolist()):
        if estimates and estimates[job].is_predicted:
            predicted_ms[row] = estimates[job].first_work_ms, *estimates[job].work_interval_ms()
    left = np.bincount(seen.stage_job, seen.remaining_tasks, minlength=len(seen.jobs)).astype(np.int64)
    return pd.DataFrame(
        {
            "job": seen.job_id.copy(),
            "name": [profile.name for profile in seen.profiles],
            "executors": seen.job_executors.copy(),
            "tasks_left": left,
            "work_left_s": seen.work_ms(seen.remaining_tasks) / 1000,
            "log_sd": seen.job_log_sd.copy(),
            "predicted_from": [
                ("DAG and plan" if has_plan(profile) else "DAG") if is_predicted else ""
                for profile, is_predicted in zip(seen.profiles, ~np.isnan(predicted_ms[:, 0]), strict=True)
            ],
            "waited_s": (seen.time_ms - seen.job_arrival_ms) / 1000,
            **dict(
                zip(
                    ("predicted_s", "predicted_low_s", "predicted_high_s"), predicted_ms.T / 1000, strict=True
                )
            ),
        }
    )


def _stages(seen: Observation, graph: Graphs, probability: NDArray[np.float64]) -> pd.DataFrame:
    nodes = np.flatnonzero(graph.high > graph.low)
    stages = graph.stage_index[nodes]
    jobs = seen.stage_job[stages]
    in_job = stages - seen.job_first_stage[jobs]
    table = pd.DataFrame(
        {
            "job": seen.job_id[jobs],
            "stage": in_job,
            "name": [seen.profiles[job].stages[stage].name for job, stage in zip(jobs, in_job, strict=True)],
            "tasks": seen.unclaimed_tasks[stages],
            "mean_s": seen.mean_task_ms[stages] / 1000,
            "probability": probability[nodes],
        }
    )
    return table.sort_values("probability", ascending=False, kind="stable", ignore_index=True)


def _limits(graph: Graphs, limits: list[NDArray[np.float64]], node: int) -> pd.DataFrame:
    candidate = int(np.count_nonzero(graph.high[:node] > graph.low[:node]))
    allowed_limits = np.arange(graph.low[node] + 1, graph.high[node] + 1)
    table = pd.DataFrame({"limit": allowed_limits, "probability": limits[candidate]})
    return table.sort_values("probability", ascending=False, kind="stable", ignore_index=True)


def _influences(policy: Policy, graph: Graphs, node: int) -> pd.DataFrame:
    """Return effects of features on the log-probability of a stage, largest effect first; see ``influences``."""
    candidates = graph.high > graph.low
    before = math.log(max(_probabilities(policy, graph)[0][node], 1e-300))

    def effects() -> Iterator[tuple[str, float]]:
        for column, feature in enumerate(policy.config.stage_features):
            features = graph.features.copy()
            features[:, column] = features[candidates, column].mean()
            changed = _probabilities(policy, graph._replace(features=features))[0][node]
            yield feature.name, before - math.log(max(changed, 1e-300))

    table = pd.DataFrame(effects(), columns=["feature", "effect"])
    return table.sort_values("effect", key=abs, ascending=False, kind="stable", ignore_index=True)
