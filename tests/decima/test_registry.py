"""Names of learned schedulers; ``schedulers/test_schedulers.py`` tests heuristics and custom ones."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import decima
from decima import policy as policies
from decima.policy import NeuralScheduler, load_actor, load_policy
from decima.registry import SCHEDULERS, make_scheduler, split_names
from decima.schedulers.base import Kind, SchedulerError
from decima.schedulers.entries import TUNED_RULES
from decima.schedulers.objectives import searched_constants
from decima.schedulers.packing import Tetris
from decima.schedulers.parameters import parameters
from decima.schedulers.srpt import Srpt, TunedSrpt
from simulator import Cluster, ClusterConfig, ExecutorClass, run_episode
from simulator.cluster.config import Knowledge
from tests.cases import cases
from tests.decima.conftest import save_small_policy
from tests.decima.evaluation.examples import CLUSTER, conditions
from tests.refusal import one_line
from workloads import poisson_arrivals, synthetic_profiles, uniform_memory

MINE = """
from decima.schedulers import Fair

class Mine(Fair):
    def __init__(self, most=6, share=0.5):
        super().__init__()
        self.most, self.share = most, share
"""


def test_policies_and_parameters_have_names(policy: Path, shipped: dict[str, Path]) -> None:
    ours = run_episode(CLUSTER, conditions().sequence(3), make_scheduler(f"decima:{policy}"))
    theirs = run_episode(CLUSTER, conditions().sequence(3), NeuralScheduler(load_policy(policy)))
    assert ours.completion_ms.tolist() == theirs.completion_ms.tolist()
    for name, path in shipped.items():
        assert _weights(make_scheduler(f"decima:{name}")) == _weights(make_scheduler(f"decima:{path}"))
    assert isinstance(make_scheduler("decima"), TunedSrpt)
    text = "fifo, srpt:price_in_batch=1,useful_multiple=2,decima:tpch-batch,guard=off,fair"
    parts = ["fifo", "srpt:price_in_batch=1,useful_multiple=2", "decima:tpch-batch,guard=off", "fair"]
    assert split_names(text) == parts


def test_an_episode_takes_a_name_an_object_a_class_and_a_function() -> None:
    sequence = conditions().sequence(3)
    forms = ("srpt", Srpt(), Srpt, Srpt().decide)
    completions = [decima.run_episode(CLUSTER, sequence, scheduler).completion_ms.tolist() for scheduler in forms]
    assert completions == [completions[0]] * 4
    seeds = [
        decima.run_episode(CLUSTER, replace(sequence, seed=seed), "random").completion_ms.tolist() for seed in (3, 3, 4)
    ]
    assert seeds[0] == seeds[1] != seeds[2]
    with pytest.raises(SchedulerError, match="unknown scheduler 'sprt'"):
        decima.run_episode(CLUSTER, sequence, "sprt")


def test_the_network_of_a_policy_is_a_module_with_which_it_decides(policy: Path) -> None:
    scheduler, other = decima.load_policy(policy), decima.load_policy(policy)
    before = decima.run_episode(CLUSTER, conditions().sequence(3), scheduler)
    assert isinstance(scheduler.network, torch.nn.Module)
    after = decima.run_episode(CLUSTER, conditions().sequence(3), scheduler)
    assert after.completion_ms.tolist() == before.completion_ms.tolist()
    observation = Cluster(CLUSTER, conditions().sequence(3)).observe()
    stages, limits = scheduler.network.probabilities(scheduler.graph(observation))
    assert stages.sum().item() == pytest.approx(1)
    assert len(limits) == observation.num_schedulable
    assert stages.argmax() == scheduler.decide(observation).stage

    with torch.no_grad():
        for parameter in scheduler.network.parameters():
            parameter.neg_()
    changed = decima.run_episode(CLUSTER, conditions().sequence(3), scheduler)
    assert changed.completion_ms.tolist() != before.completion_ms.tolist()
    unchanged = decima.run_episode(CLUSTER, conditions().sequence(3), other)
    assert unchanged.completion_ms.tolist() == before.completion_ms.tolist()


def _weights(scheduler: Any) -> list[float]:
    return scheduler.policy.arrays["stage_head.0.weight"].ravel().tolist()  # type: ignore[no-any-return]


def test_a_policy_is_read_once_unless_it_changes(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(policies, "load_actor", lambda path: read.append(path) or load_actor(path))
    first, again = (make_scheduler(f"decima:{policy}") for _ in range(2))
    assert first is not again
    assert read == [policy]
    save_small_policy(policy, seed=2)
    os.utime(policy, ns=(0, 7))
    assert _weights(make_scheduler(f"decima:{policy}")) != _weights(first)
    assert len(read) == 2


@cases(
    "spec, message",
    ("decima:packing-tpch", "the policy 'packing-tpch' is missing in this installation"),
    ("decima:", "the policy '' is neither a file nor a shipped policy: expected a policy file or one of tpch-batch"),
    ("decima:batch", "the policy 'batch' is neither a file nor a shipped policy"),
    ("decima:no/such.npz", "the policy 'no/such.npz' is neither a file nor a shipped policy"),
    ("decima:.", "the policy '.' is neither a file nor a shipped policy"),
    ("decima:text.npz", "text.npz: not a policy, or truncated: expected a NumPy archive of arrays"),
    ("Decima", "unknown scheduler 'Decima' (did you mean 'decima'?): expected one of random, fifo"),
)
@pytest.mark.usefixtures("not_shipped")
def test_what_is_no_policy_is_refused_in_one_line(
    spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npz").write_text("no policy")
    said = one_line(SchedulerError, make_scheduler, spec)
    assert message in said
    assert repr(spec) in said


def test_parameters_go_by_their_names() -> None:
    tetris, srpt = map(make_scheduler, ("tetris:fairness=0.25", "srpt:price_in_batch=1.5,useful_multiple=3"))
    assert isinstance(tetris, Tetris)
    assert (tetris.remaining, tetris.fairness) == (Tetris().remaining, 0.25)
    assert isinstance(srpt, Srpt)
    assert (srpt.constants.price_in_batch, srpt.constants.useful_multiple) == (1.5, 3.0)


@pytest.mark.parametrize("constant", sorted(parameters("srpt").keys() - {"source_per_log_sd", "idle_multiple"}))  # rare
def test_each_parameter_changes_decisions(constant: str) -> None:
    """Parameters change decisions in a stream or a batch, with one or two executor classes and uncertain estimates."""
    value = parameters("srpt")[constant] / 20 or 0.25
    changed = f"srpt:{constant}={value}"
    assert any(mean_jct_ms("srpt", setting) != mean_jct_ms(changed, setting) for setting in range(4))


@cache
def mean_jct_ms(spec: str, setting: int) -> float:
    two_classes = ExecutorClass(6, memory=0.5), ExecutorClass(6)
    stream = poisson_arrivals(synthetic_profiles()[:8], 30, 10_000.0, 2)
    jobs, error = ((stream, 2.0), (replace(stream, arrival_ms=np.zeros(30)), 0.7))[setting % 2]
    classes = (two_classes, (ExecutorClass(12),))[setting // 2]
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=2000.0, knowledge=Knowledge(error))
    return run_episode(config, uniform_memory(jobs), make_scheduler(spec)).mean_jct_ms


def test_parameters_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tuned.json").write_text('{"rule": "srpt", "parameters": {"price_in_batch": 2}, "runs": []}')
    scheduler = make_scheduler("srpt:tuned.json")
    assert isinstance(scheduler, Srpt)
    assert scheduler.constants.price_in_batch == 2.0


@cases(
    "spec, message",
    ("srpt:price_in_bach=1", "no parameter 'price_in_bach' (did you mean 'price_in_batch'?), only jitter, "),
    ("srpt:price_in_batch=", "expected srpt:JITTER, numbers from -100 to 100"),
    ("srpt:price_in_batch=1e9", "expected srpt:JITTER, numbers from -100 to 100"),
    ("srpt:price_in_batch=0", "the price_in_batch must be positive, got 0"),
    ("srpt:source_factor=-1", "the source_factor must be positive, got -1"),
    ("srpt:missing.json", "missing.json: No such file or directory"),
    ("srpt:text.json", "text.json: line 1, column 1: Expecting value"),
    ("srpt:deep.json", "deep.json: too many levels of brackets"),
    ("srpt:pipe.json", "pipe.json: a pipe, socket or device, expected results of decima tune"),
    ("srpt-tuned:other.json", "other.json: expected the entries rule, 'srpt-tuned', and parameters"),
    ("srpt:other.json", "other.json: parameters.price_in_batch: expected a number, got 'high'"),
    ("packed-srpt:2:0.5", "scheduler 'packed-srpt:2:0.5': packed-srpt is now srpt"),
    ("srpt:doubtful=1", "scheduler 'srpt:doubtful=1': the parameter 'doubtful' is now 'exact_log_sd'"),
    ("srpt:old.json", "old.json: the rule 'priced-srpt' is now 'srpt'"),
    ("adaptive-srpt", "scheduler 'adaptive-srpt': adaptive-srpt is now srpt-tuned"),
    ("fifo:a=1", "unknown scheduler 'fifo:a=1'"),
)
def test_parameters_that_make_no_sense(
    spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.json").write_text("no JSON")
    Path("deep.json").write_text("[" * 100_000)
    os.mkfifo("pipe.json")
    Path("old.json").write_text('{"rule": "priced-srpt", "parameters": {"doubtful": 1}}')
    Path("other.json").write_text('{"rule": "srpt", "parameters": {"price_in_batch": "high"}}')
    assert message in one_line(SchedulerError, make_scheduler, spec)


@cases(
    "spec, expected",
    ("mine:Mine", (6, 0.5)),
    ("mine:Mine:4", (4, 0.5)),
    ("mine:Mine:4:0.25", (4, 0.25)),
    ("mine:Mine:share=1", (6, 1)),
)
def test_numbers_after_a_custom_class_are_its_arguments(
    spec: str, expected: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    made: Any = make_scheduler(spec)
    assert (made.most, made.share) == expected


@cases(
    "spec, message",
    ("mine:Mine:four", "scheduler 'mine:Mine:four': expected numbers after the class, got 'four'"),
    ("mine:Mine:", "scheduler 'mine:Mine:': expected numbers after the class, got ''"),
    ("mine:Mine:share=inf", "expected numbers after the class, got 'inf'"),
    ("mine:Mine:1:2:3", "'mine:Mine' cannot be loaded: TypeError"),
    ("mine:Mine:nope=1", "'mine:Mine' cannot be loaded: TypeError"),
)
def test_bad_arguments_of_a_custom_class_are_refused(
    spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    assert message in one_line(SchedulerError, make_scheduler, spec)


def test_workers_of_a_training_do_not_load_pytorch(tmp_path: Path) -> None:
    """So they start in two seconds instead of six; ``tests/test_imports.py`` has commands and programs."""
    code = """
import sys
from decima.evaluation.conditions import Conditions
from decima.learning.cluster.demonstrations import record_sequence
from decima.learning.cluster.rollout import EpisodePlan, Shared, roll_out_plans
from decima.learning.cluster.validation import evaluate_weights
from decima.policy.files import load_actor
from workloads.sources.open import SYNTHETIC, open_workload
actor = load_actor("tpch-batch")
shared = Shared(Conditions(open_workload(SYNTHETIC), num_jobs=2), actor.config)
samples = roll_out_plans(actor.arrays, shared, [EpisodePlan(0, 1e9, 0, 0, 0)])
recorded = record_sequence("fair", None, 1.0, shared, 0)
print(len(samples) > 0, len(recorded) > 0, evaluate_weights(actor.arrays, shared, [0]).shape)
print([name for name in ("torch", "torch_geometric") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == ["True True (1, 3)", "[]"]


def test_every_scheduler_says_what_makes_its_decisions() -> None:
    tuned = {name for name, rule in SCHEDULERS.items() if rule.kind == Kind.TUNED_RULE}
    assert tuned == {*TUNED_RULES}
    assert {rule.kind for rule in SCHEDULERS.values()} == {Kind.RULE, Kind.TUNED_RULE}
    assert make_scheduler("pcaps:gamma=0.5,base=srpt-tuned").kind == Kind.TUNED_RULE


def test_searched_constants_of_atc_differ_by_objective() -> None:
    misses, weighted = (searched_constants(name) for name in ("misses", "weighted"))
    assert make_scheduler("atc-misses").own.lookahead == misses["lookahead"] != parameters("atc")["lookahead"]
    assert make_scheduler("atc-weighted").own.weighted == weighted["weighted"] != parameters("atc")["weighted"]
    assert {*misses, *weighted} <= {*parameters("atc")}
