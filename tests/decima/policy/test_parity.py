"""The network replays the published agent's episodes, and every difference is detected."""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.policy import Featurizer, NeuralScheduler, Policy, load_policy, save_policy
from decima.policy.config import PolicyConfig
from decima.policy.messages import message_order
from decima.policy.parity import AgentReplay
from decima.policy.presets import DECIMA_SIM_POLICY
from decima.policy.published_messages import published_message_order
from simulator import DECIMA_SIM, Cluster, ClusterConfig, Decision, run_episode
from simulator.cluster.parity import Recording, stage_names
from simulator.parity import first_difference_in, read_recording
from tests.cases import cases
from tests.simulator.cluster.build import chain, job, jobs, stage
from tests.simulator.parity.damage import Recording as Content, Shared, refused as difference, write
from workloads import JobProfile, JobSequence

WEIGHTS = "reference/decima-sim-20000.npz"
RECORDINGS = "parity/decima-sim-agent"


def published(shared: Shared, name: str) -> Recording:
    recording = read_recording(shared(RECORDINGS) / name)
    assert isinstance(recording, Recording)
    return recording


@pytest.mark.parametrize("name", ["000_small_e10_batch", "001_medium_e10_stream", "002_medium_e10_mixed"])
def test_as_a_scheduler_it_reaches_the_same_completions(shared: Shared, name: str) -> None:
    recording = published(shared, f"{name}.json.gz")
    policy = load_policy(shared(WEIGHTS))
    record = run_episode(recording.config(), recording.sequence, NeuralScheduler(policy))
    assert record.completion_ms.tolist() == recording.completions_ms


def test_messages_are_sent_in_the_recorded_order(shared: Shared) -> None:
    """In DAGs with paths of more than 8 edges, the published order was arbitrary."""
    compared = 0
    for path in shared(RECORDINGS).glob("*.json.gz"):
        recording = published(shared, path.name)
        assert recording.msg_paths is not None
        for profile, steps in zip(recording.sequence.profiles, recording.msg_paths, strict=True):
            recorded = sorted([step, *pair] for step, pairs in enumerate(steps) for pair in pairs)
            order = message_order(profile).tolist()
            if not order or order[-1][0] < 8:
                assert order == recorded
                assert published_message_order(profile).tolist() == recorded
                compared += 1
    assert compared > 50


def test_in_deep_dags_eight_messages_reach_up_from_the_leaves() -> None:
    """In a chain of ten stages the last two send first, and the first two receive nothing from the last."""
    ten = chain(*(stage(1, 10) for _ in range(10)))
    expected = [[0, 7, 8], [0, 8, 9], *([step, 7 - step, 8 - step] for step in range(1, 8))]
    assert published_message_order(ten).tolist() == expected
    assert message_order(ten).tolist() == [[step, 8 - step, 9 - step] for step in range(9)]
    nine = chain(*(stage(1, 10) for _ in range(9)))
    assert published_message_order(nine).tolist() == message_order(nine).tolist()


def two_jobs() -> JobSequence:
    """Two jobs, one of which arrives later, whose stages wait for each other."""
    slow = stage(4, 100, fresh_ms=150)
    durations = replace(slow.durations, mean_ms=float(slow.durations.values.mean()))  # as the published simulator
    first = job(replace(slow, durations=durations), stage(3, 70), stage(2, 120), edges=[(0, 2), (1, 2)])
    return jobs(first, chain(stage(2, 50), stage(5, 30)), at=[0, 2500])


def likeliest(probabilities: np.ndarray, tie: int = 0) -> int:
    """Return the most likely choice, or one of several equally likely ones."""
    equal = np.flatnonzero(probabilities > probabilities.max() - 1e-9)
    return int(equal[tie % equal.size])


def record(policy: Policy, sequence: JobSequence, executors: int = 3, tie: int = 0) -> Content:
    """Record an episode of a policy in the published semantics."""
    config = ClusterConfig(num_executors=executors, moving_delay_ms=20, semantics=DECIMA_SIM)
    cluster, policy = Cluster(config, sequence), copy.deepcopy(policy).double()
    featurizer = Featurizer(policy.config)
    decisions = []
    while not cluster.done:
        decisions.append(_decision(policy, featurizer, cluster, tie))
    completion = cluster.record().completion_ms
    return {
        "format": 1,
        "executors": executors,
        "moving_delay_ms": config.moving_delay_ms,
        "reward_objective": "mean",
        "reward_scale": config.reward_scale_ms,
        "jobs": [_job(*each) for each in zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True)],
        "decisions": decisions,
        "completions_ms": completion.tolist(),
        "makespan_ms": completion.max(),
        "avg_jct_ms": np.mean(completion - sequence.arrival_ms),
    }


def _job(profile: JobProfile, arrival_ms: float) -> Content:
    stages = [
        {
            "num_tasks": each.num_tasks,
            **{f"{wave}_ms": each.durations.values[at] for at, wave in enumerate(("fresh", "first", "rest"))},
        }
        for each in profile.stages
    ]
    return {"arrival_ms": arrival_ms, "stages": stages, "edges": profile.edges.tolist()}


def _decision(policy: Policy, featurizer: Featurizer, cluster: Cluster, tie: int) -> Content:
    observation = cluster.observe()
    names = stage_names(observation)
    graph = featurizer.graph(observation)
    source_job, source_stage = cluster.source
    content: Content = {
        "time_ms": observation.time_ms,
        "source_job": source_job,
        "source_stage": source_stage,
        "num_source_executors": observation.offered,
        "executors_now": cluster.acting,
        "schedulable": [names[place] for place in np.flatnonzero(observation.schedulable)],
    }
    if not (graph.high > graph.low).any():
        content |= {"job": None, "stage": None}
        content["num_executors"] = content["num_committed"] = observation.offered
        cluster.decide(None)
        return {**content, "reward": cluster.reward()}
    with torch.no_grad():
        stages, limits = policy.probabilities(graph)
    node = likeliest(stages.numpy(), tie)
    of_limits = np.zeros(observation.num_executors)
    candidate = int(np.count_nonzero((graph.high > graph.low)[:node]))
    of_limits[graph.low[node] : graph.high[node]] = limits[candidate]
    of_stages = np.zeros(len(names))
    of_stages[graph.stage_index] = stages
    place, limit = int(graph.stage_index[node]), int(of_limits.argmax()) + 1
    content["num_executors"] = content["num_committed"] = min(
        limit - observation.held(int(observation.stage_job[place])),
        observation.offered,
        int(observation.unclaimed_tasks[place]),
    )
    cluster.decide(Decision(place, limit))
    return {
        **content, "job": names[place][0], "stage": names[place][1], "node_order": names,
        "stage_probabilities": of_stages.tolist(), "limit_probabilities": of_limits.tolist(), "limit": limit,
        "reward": cluster.reward(),
    }  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "policy.npz"
    policy = Policy(DECIMA_SIM_POLICY, seed=3)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter *= 2  # a trained network has its opinions
    save_policy(path, policy)
    return path


@pytest.fixture(scope="module")
def recorded(weights: Path) -> Content:
    return record(load_policy(weights), two_jobs())


@pytest.fixture
def episode(recorded: Content) -> Content:
    return copy.deepcopy(recorded)


def refused(weights: Path, path: Path) -> str:
    return difference(path, AgentReplay(load_policy(weights)).differences)


def assert_matches(weights: Path, path: Path) -> None:
    assert first_difference_in(path, AgentReplay(load_policy(weights)).differences) is None


def test_what_was_recorded_matches(weights: Path, episode: Content, tmp_path: Path) -> None:
    assert sum("stage_probabilities" in decision for decision in episode["decisions"]) > 5
    agent = AgentReplay(load_policy(weights))
    for name in ("a.json", "b.json.gz"):
        assert first_difference_in(write(tmp_path / name, episode), agent.differences) is None
    assert 0 <= agent.largest_difference < 1e-6


def other_stage(decision: Content) -> None:
    decision["job"], decision["stage"] = next(
        name for name in decision["schedulable"] if list(name) != [decision["job"], decision["stage"]]
    )


def moved(name: str, by: float) -> Callable[[Content], None]:
    """Return probabilities in which the most likely one is changed."""

    def damage(decision: Content) -> None:
        values = decision[name]
        values[int(np.argmax(values))] += by

    return damage


def but(**changes: Any) -> Callable[[Content], None]:
    return lambda decision: decision.update(changes)


#: Name of the damage -> (damage to the first decision, expected message).
DAMAGES: dict[str, tuple[Callable[[Content], None], str]] = {
    "stage probability": (
        moved("stage_probabilities", 1.1e-4),
        r"decision 0 at 0 ms: the probability of stage \d of job 0 is 0.\d+, recorded 0.\d+",
    ),
    "limit probability": (
        moved("limit_probabilities", -1.1e-4),
        r"decision 0 at 0 ms: the probability of limit \d is 0.\d+, recorded 0.\d+",
    ),
    "no number": (but(limit_probabilities=[float("nan")] * 3), "decision 0 .* recorded nan"),
    "fewer stages": (lambda it: it["stage_probabilities"].pop(), "decision 0 .* 3 probabilities, recorded 2"),
    "order": (lambda it: it["node_order"].reverse(), r"decision 0 .* node_order is \[\(0, 0\)"),
    "no limit": (lambda it: it.pop("limit"), "decision 0 .* limit are not recorded"),
    "no probabilities": (
        lambda it: it.pop("stage_probabilities"),
        "decision 0 .* stage_probabilities, .* are not recorded",
    ),
    "stage": (other_stage, r"decision 0 .* stage \d of job 0 is chosen, recorded stage \d of job 0"),
    "no such stage": (but(stage=7), "decision 0 .* recorded stage 7 of job 0, which is not in the system"),
    "limit": (lambda it: it.update(limit=it["limit"] % 3 + 1), r"decision 0 .* limit \d is chosen, recorded limit \d"),
    "idle": (
        but(job=None, stage=None, num_executors=3, num_committed=3),
        r"decision 0 .* stage \d of job 0 is chosen, recorded no stage",
    ),
    "executors": (
        lambda it: it.update(num_executors=it["num_executors"] + 1),
        r"decision 0 .* \d executors requested, recorded \d",
    ),
    "reward": (but(reward=0.5), "decision 0: reward"),
    "time": (but(time_ms=1.0), "decision 0 at 1 ms: the time in ms is 0"),
    "type": (but(limit="all"), "decisions.0.limit: Input should be a valid integer"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_noticed_where_it_is(
    weights: Path, episode: Content, tmp_path: Path, damage: Callable[[Content], None], message: str
) -> None:
    damage(episode["decisions"][0])
    line = refused(weights, write(tmp_path / "damaged.json", episode))
    assert re.match(message, line), line


@pytest.mark.parametrize("name", ["stage_probabilities", "limit_probabilities"])
def test_rounding_is_no_difference(weights: Path, episode: Content, tmp_path: Path, name: str) -> None:
    moved(name, 9e-5)(episode["decisions"][0])
    agent = AgentReplay(load_policy(weights))
    assert first_difference_in(write(tmp_path / "rounded.json", episode), agent.differences) is None
    assert agent.largest_difference == pytest.approx(9e-5, rel=0.01)


def test_a_later_difference_and_the_outcome_count(weights: Path, episode: Content, tmp_path: Path) -> None:
    last = max(at for at, it in enumerate(episode["decisions"]) if "limit" in it)
    damaged = copy.deepcopy(episode)
    moved("stage_probabilities", -0.01)(damaged["decisions"][last])
    assert refused(weights, write(tmp_path / "a.json", damaged)).startswith(f"decision {last} at")
    episode["completions_ms"][1] += 1
    assert refused(weights, write(tmp_path / "b.json", episode)).startswith("completion of job 1")


def test_any_of_several_equal_stages_may_be_chosen(weights: Path, tmp_path: Path) -> None:
    """Between equal jobs only rounding decides."""
    one = chain(stage(2, 50))
    for tie in range(3):
        episode = record(load_policy(weights), jobs(one, one, one), executors=1, tie=tie)
        assert episode["decisions"][0]["job"] == tie
        assert episode["decisions"][0]["stage_probabilities"] == pytest.approx([1 / 3] * 3)
        assert_matches(weights, write(tmp_path / "tie.json", episode))


def test_where_no_stage_may_be_chosen_executors_stay_idle(tmp_path: Path) -> None:
    """The policy has no limit above 2: of three executors one is left over although there is work."""
    outputs = PolicyConfig(
        **{**DECIMA_SIM_POLICY.model_dump(), "limit": "outputs", "num_limits": 2}  # type: ignore[arg-type]
    )
    policy = Policy(outputs)
    save_policy(tmp_path / "two.npz", policy)
    episode = record(policy, jobs(job(*(stage(9, 100) for _ in range(3)))))
    idle = [it for it in episode["decisions"] if it["job"] is None and it["schedulable"]]
    assert idle
    assert_matches(tmp_path / "two.npz", write(tmp_path / "idle.json", episode))
    idle[0].update(job=0, stage=0, num_executors=1, num_committed=1)
    line = refused(tmp_path / "two.npz", write(tmp_path / "busy.json", episode))
    assert re.search("no stage is chosen, recorded stage 0 of job 0", line), line


def test_messages_in_deep_dags_are_those_recorded(weights: Path, tmp_path: Path) -> None:
    """A chain of ten stages; the published code may or may not update the last but one first."""
    ten = chain(*(stage(20, 1000 * number) for number in range(1, 11)))
    sequence = jobs(ten, chain(stage(9, 5000)))
    episode = record(load_policy(weights), sequence, executors=2)
    order = published_message_order(sequence.profiles[0]).tolist()
    paths = [[pair for at, *pair in order if at == step] for step in range(8)]
    assert_matches(weights, write(tmp_path / "ours.json", {**episode, "msg_paths": [paths, []]}))
    # In the other order, stage 7 receives again in the second step.
    again = [paths[0], [[7, 8], *paths[1]], *paths[2:]]
    line = refused(weights, write(tmp_path / "other.json", {**episode, "msg_paths": [again, []]}))
    assert re.match(r"decision \d+ .* the probability of", line), line


@cases(
    "paths, message",
    ([[[[7, 9]]]], "msg_paths.0: a stage receives from other stages than all its children"),
    ([[[[7, 8], [7, 8]]]], "msg_paths.0: a stage receives"),
    ([[[[10, 3]]]], "msg_paths.0: a stage receives"),
    ([[[[-1, 3]]]], "msg_paths.0: a stage receives"),
    ([[[[7, 8, 9]]]], "msg_paths.0.0.0: "),
    ([[[[10**30, 8]]]], "msg_paths.0.0.0.0: "),
    ([], "msg_paths: 1 jobs, recorded 0"),
)
def test_messages_that_cannot_be_are_refused(weights: Path, tmp_path: Path, paths: Any, message: str) -> None:
    """In a chain of ten stages."""
    sequence = jobs(chain(*(stage(1, 10) for _ in range(10))))
    content = {**record(load_policy(weights), sequence), "msg_paths": paths}
    assert refused(weights, write(tmp_path / "bad.json", content)).startswith(message)


def test_messages_of_flat_and_deeper_dags(weights: Path, tmp_path: Path, episode: Content) -> None:
    content = record(load_policy(weights), jobs(chain(*(stage(1, 10) for _ in range(12)))))
    line = refused(weights, write(tmp_path / "bad.json", {**content, "msg_paths": [[[[7, 9]]]]}))
    assert line.startswith("msg_paths.0: a stage receives from other stages than all its children")
    # The order does not depend on the recording.
    assert_matches(weights, write(tmp_path / "none.json", {**episode, "msg_paths": [[], []]}))


def test_without_its_network_an_episode_is_not_replayed(episode: Content, tmp_path: Path) -> None:
    line = first_difference_in(write(tmp_path / "episode.json", episode))
    assert line == "recorded from a trained agent: its network is needed (--weights FILE.npz)"
