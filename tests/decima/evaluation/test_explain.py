"""Explanation of decisions: tables, counterfactual outcomes, guards and guarantees."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decima.evaluation import CompareError, mean_interval, run_scheduler
from decima.evaluation.decisions import replay
from decima.evaluation.explain import explain, explain_first
from decima.policy import Featurizer, Policy, load_policy as load_network, save_policy
from decima.policy.presets import PACKING_POLICY, PROFILED_POLICY
from decima.registry import make_scheduler
from decima.registry.policies import load_policy
from decima.show.explanation import notes, shown, tables
from simulator import ClusterConfig, Decision, Observation
from simulator.cluster.config import Knowledge
from tests.decima.evaluation.examples import CLUSTER, conditions
from tests.decima.policy.examples import policy_of, probabilities, two_networks

SEED = 5


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    save_policy(tmp_path / "policy.npz", Policy(PROFILED_POLICY, 3), {})
    return tmp_path / "policy.npz"


def test_decisions_are_told_and_what_comes_of_them(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, decision=3)
    assert found.number == 3
    assert found.stages["probability"].sum() == pytest.approx(1, abs=1e-5)
    assert found.limits["probability"].sum() == pytest.approx(1, abs=1e-5)
    assert found.stages["probability"].is_monotonic_decreasing
    assert set(found.stages["job"]) <= set(found.jobs["job"])
    assert {feature.name for feature in PROFILED_POLICY.stage_features} == set(found.influences["feature"])
    assert (found.influences["effect"].abs().diff().dropna() <= 1e-9).all()
    if found.chosen is not None and not found.guarded:
        job, stage, limit = found.chosen
        likeliest = found.stages.iloc[0]
        assert (job, stage) == (likeliest["job"], likeliest["stage"])
        by_limit = found.limits.sort_values("limit")
        middle = by_limit["limit"][(by_limit["probability"].cumsum() >= 0.5)].iloc[0]
        assert limit == middle
    found = explain(conditions(seed=SEED), policy, decision=0, rule="fair")
    sequence = conditions(seed=SEED).sequence(SEED)
    whole = run_scheduler(CLUSTER, sequence, f"decima:{policy}").mean_jct_ms / 1000
    rest = run_scheduler(CLUSTER, sequence, "fair").mean_jct_ms / 1000
    assert found.mean_jct_s["as the policy decided"] == whole
    assert found.mean_jct_s["as fair from here on"] == rest
    assert found.source == -1, "in the beginning all executors are free"
    alike = explain(conditions(seed=SEED), policy, decision=9, rule=f"decima:{policy}")
    assert set(alike.mean_jct_s.values()) == {whole}
    assert not alike.differs
    assert alike.source in [-1, *alike.jobs["job"]]


def test_the_network_that_decides_is_explained(tmp_path: Path) -> None:
    """Only the second network may wait, so that only its lowest limit is the executors that the job holds."""
    both = two_networks()
    assert both.few_jobs is not None
    save_policy(tmp_path / "both.npz", both)
    networks = {}
    for is_few, each in ((False, both), (True, both.few_jobs.policy)):
        networks[is_few] = Policy(each.config)
        networks[is_few].take(each.arrays)
    here, few = conditions(seed=SEED), set()
    for number, (_, seen, _) in enumerate(replay(here, SEED, load_policy(tmp_path / "both.npz"))):
        is_few = len(seen.jobs) <= 2
        if (is_few, seen.num_schedulable > 1) not in few:
            few.add((is_few, seen.num_schedulable > 1))
            found = explain(here, tmp_path / "both.npz", decision=number, futures=0)
            stages, _ = probabilities(networks[is_few], Featurizer(networks[is_few].config).graph(seen))
            np.testing.assert_allclose(found.stages["probability"].max(), stages.max(), rtol=1e-5)
    assert {is_few for is_few, _ in few} == {True, False}


class RuleFirst:
    """Scheduler whose first decision is that of a rule, and whose other decisions are those of a policy."""

    def __init__(self, policy: Path, rule: str) -> None:
        self.schedulers = [load_policy(policy), make_scheduler(rule)]

    def reset(self, config: ClusterConfig) -> None:
        for each in self.schedulers:
            each.reset(config)

    def decide(self, observation: Observation) -> Decision | None:
        scheduler = self.schedulers.pop() if len(self.schedulers) > 1 else self.schedulers[0]
        return scheduler.decide(observation)


def test_both_decisions_are_compared_in_other_futures(policy: Path) -> None:
    """Futures of the first decision equal episodes of the same jobs with other task noise."""
    here = conditions(seed=7)
    found = explain(here, policy, rule="fair", futures=3)
    assert found.differs
    assert found.futures == 3
    sequence, differences = here.sequence(7), []
    for seed in range(3):
        other = replace(sequence, seed=seed)
        jct_ms = [
            run_scheduler(CLUSTER, other, each).mean_jct_ms for each in (RuleFirst(policy, "fair"), f"decima:{policy}")
        ]
        differences.append((jct_ms[0] - jct_ms[1]) / 1000)
    assert found.difference_s == pytest.approx(mean_interval(differences))
    assert 0 not in differences
    once = run_scheduler(CLUSTER, sequence, RuleFirst(policy, "fair"))
    assert found.mean_jct_s["as fair here"] == once.mean_jct_ms / 1000
    assert len(set(found.mean_jct_s.values())) == 3
    [note] = [note for note in notes(found) if "futures" in note]
    assert note.startswith("In 3 other futures, the decision of fair here changes it by")
    document = json.loads(found.to_json())
    assert document["difference_s"] == pytest.approx(np.mean(differences))


def test_decisions_that_are_alike_have_no_other_futures(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, rule=f"decima:{policy}", futures=2)
    assert not found.differs
    assert found.futures == 0
    assert json.loads(found.to_json())["difference_s"] is None
    assert not any("future" in note for note in notes(found))


def test_differing_decisions_and_tables(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, differing=True)
    assert found.differs
    for number in range(found.number):
        assert not explain(conditions(seed=SEED), policy, decision=number).differs
    later = explain(conditions(seed=SEED), policy, decision=found.number + 1, differing=True)
    assert later.number > found.number
    # At the start of a batch no task has finished, so all work of each job remains.
    here = conditions(seed=SEED)
    found = explain(here, policy, decision=0)
    profiles = here.sequence(SEED).profiles
    assert found.jobs["name"].tolist() == [profile.name for profile in profiles]
    assert found.jobs["tasks_left"].tolist() == [profile.num_tasks for profile in profiles]
    assert found.jobs["work_left_s"].tolist() == pytest.approx([each.work_ms / 1000 for each in profiles])
    assert found.jobs["waited_s"].tolist() == [0.0] * len(profiles)
    assert found.jobs["executors"].tolist() == [0] * len(profiles)
    for job, stage, tasks, mean_s in found.stages[["job", "stage", "tasks", "mean_s"]].itertuples(index=False):
        of = profiles[job].stages[stage]
        assert tasks == of.num_tasks
        assert mean_s == pytest.approx(of.durations.mean_ms / 1000)
    for table in (found.jobs, found.stages, found.limits):
        assert table.index.tolist() == list(range(len(table)))
    again = explain(here, policy, decision=0)
    assert found != again, "explanations hold tables, and are compared by identity"


def test_an_explanation_is_of_its_observation(policy: Path) -> None:
    """A job has ended, an executor leaves its job, some tasks are claimed, and the rule's limit is out of reach."""
    cluster = ClusterConfig(num_executors=12, knowledge=Knowledge(job_error=0.5))
    here, rule = conditions(seed=SEED, num_jobs=12, cluster=cluster), make_scheduler("srpt")
    rule.reset(cluster)
    for number, (_, seen, decision) in enumerate(replay(here, SEED, load_policy(policy))):  # noqa: B007
        candidates = np.flatnonzero(seen.schedulable)
        claimed = (seen.remaining_tasks > seen.unclaimed_tasks)[candidates]
        by_rule = rule.decide(seen)
        if not (decision and by_rule and seen.source >= 0 and claimed.any()):
            continue
        gets_less = by_rule.limit > seen.held(int(seen.stage_job[by_rule.stage])) + seen.offered
        if gets_less and seen.job_id[seen.source] != seen.source:
            break
    else:
        pytest.fail("the episode has no such decision")
    found = explain(here, policy, decision=number, futures=0)
    assert (found.number, found.offered, found.source) == (number, seen.offered, seen.job_id[seen.source])
    assert found.jobs["job"].tolist() == seen.job_id.tolist()
    assert found.jobs["executors"].tolist() == seen.job_executors.tolist()
    assert found.jobs["waited_s"].tolist() == ((seen.time_ms - seen.job_arrival_ms) / 1000).tolist()
    assert found.jobs["log_sd"].tolist() == seen.job_log_sd.tolist()
    assert found.jobs["log_sd"].min() > 0
    places = [
        seen.job_first_stage[np.flatnonzero(seen.job_id == job)[0]] + stage
        for job, stage in zip(found.stages["job"], found.stages["stage"], strict=True)
    ]
    assert sorted(places) == candidates.tolist()
    assert found.stages["tasks"].tolist() == seen.unclaimed_tasks[places].tolist()
    assert found.stages["mean_s"].tolist() == (seen.mean_task_ms[places] / 1000).tolist()
    for told, made in ((found.chosen, decision), (found.by_rule, by_rule)):
        job = seen.stage_job[made.stage]
        more = min(made.limit - seen.held(job), seen.offered, seen.unclaimed_tasks[made.stage])
        assert told == (seen.job_id[job], made.stage - seen.job_first_stage[job], seen.held(job) + more)
    # The effect of each feature on the log-probability of the chosen stage.
    model = load_network(policy)
    graph = Featurizer(model.config).graph(seen)
    [node], valid = np.flatnonzero(graph.stage_index == decision.stage), graph.high > graph.low
    effects = dict(found.influences.itertuples(index=False, name=None))
    for column, feature in enumerate(model.config.stage_features):
        features = graph.features.copy()
        features[:, column] = features[valid, column].mean()
        (before, _), (after, _) = (probabilities(model, each) for each in (graph, graph._replace(features=features)))
        assert effects[feature.name] == pytest.approx(np.log(before[node] / after[node]), abs=1e-5)
    assert len({round(effect, 6) for effect in effects.values()}) > 2


def test_a_decision_commits_no_more_executors_than_there_are_tasks(policy: Path) -> None:
    cluster = ClusterConfig(num_executors=30)
    here, rule = conditions(seed=SEED, cluster=cluster), make_scheduler("srpt")
    rule.reset(cluster)
    for number, (_, seen, _) in enumerate(replay(here, SEED, load_policy(policy))):  # noqa: B007
        made = rule.decide(seen)
        if made:
            job, unclaimed = seen.stage_job[made.stage], seen.unclaimed_tasks[made.stage]
            if min(made.limit - seen.held(job), seen.offered) > unclaimed:
                break
    else:
        pytest.fail("the episode has no such decision")
    found = explain(here, policy, decision=number, futures=0)
    assert found.by_rule is not None
    assert found.by_rule[2] == seen.held(job) + unclaimed


def test_moments_and_decisions_that_never_come(policy: Path, tmp_path: Path) -> None:
    first = explain(conditions(seed=SEED), policy, decision=4)
    assert explain(conditions(seed=SEED), policy, at_ms=first.time_ms).time_ms == first.time_ms
    assert explain(conditions(seed=SEED), policy, at_ms=first.time_ms + 1e-3).number > first.number
    record = run_scheduler(CLUSTER, conditions(seed=SEED).sequence(SEED), f"decima:{policy}")
    told = rf"no decision 1000000 or later: the episode has \d+ decisions and ends at {record.end_ms / 1000:g} s$"
    with pytest.raises(CompareError, match=told):
        explain(conditions(seed=SEED), policy, decision=10**6)
    with pytest.raises(CompareError, match="agrees with the policy in all later decisions"):
        explain(conditions(seed=SEED), policy, rule=f"decima:{policy}", differing=True)


def test_a_decision_is_guarded_if_the_guard_changed_it(tmp_path: Path) -> None:
    path, note = tmp_path / "policy.npz", "The policy's guard changed what the network chose."
    save_policy(path, policy_of(PACKING_POLICY, seed=1), {})
    cluster = ClusterConfig(num_executors=8, moving_delay_ms=10.0, warmup_delay_ms=0.0)
    here, scheduler = conditions(seed=SEED, num_jobs=8, cluster=cluster), load_policy(path)
    changes = np.diff([scheduler.num_guarded for _ in replay(here, SEED, scheduler)], prepend=0)
    assert set(changes) == {0, 1}
    for number in (int(np.argmin(changes)), int(np.argmax(changes))):
        found = explain(here, path, decision=number, futures=0)
        is_guarded = bool(changes[number])
        assert (found.number, found.guarded, note in notes(found)) == (number, is_guarded, is_guarded)
        assert json.loads(found.to_json())["guarded"] == is_guarded


def test_influences_words_and_json(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, decision=0)  # all jobs are new: none is local
    effects = dict(found.influences.itertuples(index=False, name=None))
    assert effects["local"] == pytest.approx(0, abs=1e-6)
    assert np.abs(found.influences["effect"]).max() > 0
    found = explain(conditions(seed=SEED), policy, decision=2)
    told = shown(found, "decima explain")
    document = json.loads(told.json)
    assert (document["decision"], len(document["stages"])) == (2, len(found.stages))
    assert len(told.tables) == 4
    assert any(note.startswith("srpt: ") for note in told.notes)


def test_what_was_chosen_is_in_the_tables_though_they_are_cut(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.show.explanation.MOST_ROWS", 4)
    found = explain(conditions(seed=SEED), policy, differing=True)
    name = "Scan parquet > WholeStageCodegen ({}) > Exchange hashpartitioning"
    found.stages["name"] = [name.format(number) for number in range(len(found.stages))]
    # Without further requirements, the chosen jobs and stages would be the last rows.
    assert found.chosen is not None
    assert found.by_rule is not None
    chosen = [choice[:2] for choice in (found.chosen, found.by_rule)]
    is_chosen = [pair in chosen for pair in zip(found.stages["job"], found.stages["stage"], strict=True)]
    stages = found.stages.iloc[np.argsort(is_chosen, kind="stable")].reset_index(drop=True)
    jobs = found.jobs.assign(work_left_s=found.jobs["job"].isin([job for job, _ in chosen]).astype(float))
    jobs_table, stages_table, *_ = tables(replace(found, stages=stages, jobs=jobs))
    for table, places in ((jobs_table, (0,)), (stages_table, (0, 1))):
        columns = [list(column.cells) for column in table.columns[1:]]
        shown_there = {tuple(int(columns[place][row]) for place in places) for row in range(table.row_count)}
        assert {choice[: len(places)] for choice in chosen} <= shown_there
        by = ", ".join(map(str, columns[-1]))
        assert "policy" in by
        assert "srpt" in by
    assert len(set(stages_table.columns[0].cells)) == stages_table.row_count


def test_a_page_explains_a_decision_on_which_policy_and_rule_differ(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = explain_first(conditions(seed=SEED), policy)
    assert found.rule == "srpt"
    assert found.chosen is None or found.by_rule is None or found.chosen[:2] != found.by_rule[:2]
    here, alike = conditions(seed=SEED), f"decima:{policy}"
    monkeypatch.setattr("decima.evaluation.explain.RULES", (alike, "weighted-fair:-1"))
    found = explain_first(here, policy)
    assert found.differs
    assert found.rule == "weighted-fair:-1"
    half = "tests.decima.evaluation.test_comparison:Half"
    monkeypatch.setattr("decima.evaluation.explain.RULES", (alike, half))
    assert explain_first(here, policy).number == 0
    monkeypatch.setattr("decima.evaluation.explain.RULES", (alike,))
    found = explain_first(here, policy)
    assert found.number == 0
    assert "Policy and rule decide alike here." in notes(found)
