"""Explained decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.explain import explain
from decima.evaluation.run import run_scheduler
from decima.policy.config import GENERAL_POLICY, PROFILED_POLICY
from decima.policy.files import save_policy
from decima.policy.policy import Policy
from decima.show.explanation import shown
from tests.decima.evaluation.examples import CLUSTER, conditions

SEED = 5


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    save_policy(tmp_path / "policy.npz", Policy(PROFILED_POLICY, 3), {})
    return tmp_path / "policy.npz"


def test_a_decision_is_told_with_all_that_could_have_been_done(policy: Path) -> None:
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


def test_what_comes_of_it_is_what_the_episodes_say(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, decision=0, rule="fair")
    sequence = conditions(seed=SEED).sequence(SEED)
    whole = run_scheduler(CLUSTER, sequence, f"decima:{policy}").mean_jct_ms / 1000
    rest = run_scheduler(CLUSTER, sequence, "fair").mean_jct_ms / 1000
    assert found.mean_jct_s["as the policy decided"] == whole
    assert found.mean_jct_s["as fair from here on"] == rest


def test_the_first_decision_that_differs_is_found(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, differing=True)
    assert found.differs
    for number in range(found.number):
        assert not explain(conditions(seed=SEED), policy, decision=number).differs
    later = explain(conditions(seed=SEED), policy, decision=found.number + 1, differing=True)
    assert later.number > found.number


def test_a_moment_is_the_first_decision_from_then_on(policy: Path) -> None:
    first = explain(conditions(seed=SEED), policy, decision=4)
    assert explain(conditions(seed=SEED), policy, at_ms=first.time_ms).time_ms == first.time_ms
    assert explain(conditions(seed=SEED), policy, at_ms=first.time_ms + 1e-3).number > first.number


def test_a_policy_that_does_as_the_rule_never_differs(tmp_path: Path) -> None:
    save_policy(tmp_path / "told.npz", Policy(GENERAL_POLICY, 1), {})
    cluster = replace(CLUSTER, warmup_delay_ms=0.0)
    with pytest.raises(CompareError, match="priced-srpt decides as the policy does, from there to the end"):
        explain(conditions(seed=SEED, cluster=cluster), tmp_path / "told.npz", differing=True)


def test_a_decision_that_never_comes_is_refused(policy: Path) -> None:
    with pytest.raises(CompareError, match=r"the episode has \d+ decisions and ends at"):
        explain(conditions(seed=SEED), policy, decision=10**6)


def test_a_feature_that_tells_no_stage_from_another_has_no_effect(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, decision=0)  # all jobs are new: none is local
    effects = dict(found.influences.itertuples(index=False, name=None))
    assert effects["local"] == pytest.approx(0, abs=1e-6)
    assert np.abs(found.influences["effect"]).max() > 0


def test_it_is_told_in_words_and_as_json(policy: Path) -> None:
    found = explain(conditions(seed=SEED), policy, decision=2)
    told = shown(found, "decima explain")
    document = json.loads(told.json)
    assert document["decision"] == 2
    assert len(document["stages"]) == len(found.stages)
    assert len(told.tables) == 4
    assert any(note.startswith("priced-srpt: ") for note in told.notes)
