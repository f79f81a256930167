"""Recorded episodes match, and every error in a recording is detected."""

import gzip
import json
import re
from pathlib import Path

import pytest

from simulator.parity import first_difference_in
from tests.cases import cases
from tests.simulator.parity.damage import (
    Damage,
    Recording,
    Shared,
    at,
    damaged,
    last_of_each_kind,
    malformed,
    numbers,
    refused,
    swap,
    unnoticed,
    write,
)

#: Mean duration of the stages of the episode below, ms, by (job, stage).
MEAN_MS = {(0, 0): 20.0, (0, 1): 4.0, (1, 0): 5.0}


def features(
    offered: int, source: int | None, jobs: dict[int, tuple[int, int]], stages: dict[tuple[int, int], tuple[int, str]]
) -> Recording:
    """Return inputs and outputs of the published agent.

    Args:
        offered: number of offered executors.
        source: job whose executors are offered.
        jobs: number of executors and smallest limit of each live job.
        stages: remaining tasks of each stage, and whether it is valid ("v") and unfinished ("u").
    """
    inputs = {job: [count / 20, 2 if job == source else -2, offered / 20] for job, (count, _) in jobs.items()}
    return {
        "jobs": list(jobs),
        "exec_map": [executors for executors, _ in jobs.values()],
        "min_level_per_job": [limit for _, limit in jobs.values()],
        "node_order": [list(stage) for stage in stages],
        "job_inputs": list(inputs.values()),
        "node_inputs": [
            [*inputs[stage[0]], left * MEAN_MS[stage] / 100_000, left / 200] for stage, (left, _) in stages.items()
        ],
        "valid_nodes": [place for place, (_, marks) in enumerate(stages.values()) if "v" in marks],
        "unfinished_nodes": [int("u" in marks) for _, marks in stages.values()],
    }


def decision(
    time_ms: int,
    source: tuple[int | None, int | None],
    offered: int,
    turn: list[int],
    answer: tuple[int | None, int | None, int, int],
    reward: float,
    seen: Recording,
) -> Recording:
    """Return one decision; ``answer``: job, stage, executors requested, executors committed."""
    return {
        "time_ms": time_ms,
        "source_job": source[0],
        "source_stage": source[1],
        "num_source_executors": offered,
        "executors_now": turn,
        "schedulable": [seen["node_order"][place] for place in seen["valid_nodes"]],
        "job": answer[0],
        "stage": answer[1],
        "num_executors": answer[2],
        "num_committed": answer[3],
        "reward": reward,
        "features": seen,
    }


def recording() -> Recording:
    """Return an episode written by hand from the published rules.

    Two executors, moving delay 10 ms. Job 0: three tasks, then one. Job 1, at 25 ms: one task.

    * 10: both executors start stage 0 of job 0, fresh, 30 ms. At 40 executor 0 takes the third task, 10 ms.
    * 40: executor 1 becomes idle; two executors are offered: one goes to job 1, the other one to stage 1.
    * 50: executor 0 completes stage 0 and starts stage 1, first wave, 4 ms; executor 1 starts job 1, 7 ms.
    """
    first = features(2, None, {0: (0, 1)}, {(0, 0): (3, "vu"), (0, 1): (1, "u")})
    dry = features(2, 0, {0: (2, 1), 1: (0, 1)}, {(0, 0): (0, "u"), (0, 1): (1, "vu"), (1, 0): (1, "vu")})
    again = features(1, 0, {0: (2, 2), 1: (1, 2)}, {(0, 0): (0, "u"), (0, 1): (1, "vu"), (1, 0): (1, "u")})
    over = features(1, 0, {1: (1, 2)}, {(1, 0): (0, "u")})
    return {
        "format": 1,
        "executors": 2,
        "moving_delay_ms": 10,
        "reward_objective": "mean",
        "reward_scale": 100.0,
        "jobs": [
            {
                "arrival_ms": 0,
                "initial": True,
                "stages": [
                    {"num_tasks": 3, "fresh_ms": 30, "first_ms": 20, "rest_ms": 10},
                    {"num_tasks": 1, "fresh_ms": 5, "first_ms": 4, "rest_ms": 3},
                ],
                "edges": [[0, 1]],
            },
            {
                "arrival_ms": 25,
                "initial": False,
                "stages": [{"num_tasks": 1, "fresh_ms": 7, "first_ms": 6, "rest_ms": 2}],
                "edges": [],
            },
        ],
        "decisions": [
            decision(0, (None, None), 2, [0, 1], (0, 0, 2, 2), -0.55, first),
            decision(40, (0, 0), 2, [1], (1, 0, 2, 1), 0.0, dry),
            decision(40, (0, 0), 1, [1], (0, 1, 1, 1), -0.28, again),
            decision(54, (0, None), 1, [0], (None, None, 1, 1), -0.03, over),
            decision(57, (1, None), 1, [1], (None, None, 1, 1), 0.0, features(1, None, {}, {})),
        ],
        "completions_ms": [54, 57],
        "makespan_ms": 57,
        "avg_jct_ms": 43.0,
        "tasks": [
            [0, 0, 0, 0, 10, 40], [0, 0, 1, 1, 10, 40], [0, 0, 2, 0, 40, 50], [0, 1, 0, 0, 50, 54],
            [1, 0, 0, 1, 50, 57],
        ],
        "events": [
            [10, "executor", 0], [10, "executor", 1], [25, "job", 1], [40, "task", 0, 0, 0, 0],
            [40, "task", 0, 0, 1, 1], [50, "task", 0, 0, 2, 0], [50, "executor", 1], [54, "task", 0, 1, 0, 0],
            [57, "task", 1, 0, 0, 1],
        ],
    }  # fmt: skip


def test_recordings_without_details_and_every_number_count(tmp_path: Path) -> None:
    for name in ("episode.json", "episode.json.gz"):
        assert first_difference_in(write(tmp_path / name, recording())) is None
    short = recording()
    del short["tasks"], short["events"]
    for each in short["decisions"]:
        del each["features"]
    assert first_difference_in(write(tmp_path / "short.json", short)) is None
    places = numbers(recording(), aside=ASIDE)
    assert unnoticed(recording(), places, tmp_path / "damaged.json") == []


@cases(
    "stage, wave, message",
    (0, "fresh_ms", "decision 0: reward -0.57, recorded -0.55"),
    (0, "rest_ms", "decision 2: reward -0.3, recorded -0.28"),
    (1, "first_ms", "decision 2: reward -0.3, recorded -0.28"),
)
def test_durations_show_in_what_happens_too(tmp_path: Path, stage: int, wave: str, message: str) -> None:
    episode = recording()
    episode["jobs"][0]["stages"][stage][wave] += 1
    for each in episode["decisions"]:
        del each["features"]
    assert refused(write(tmp_path / "damaged.json", episode)) == message


#: Damage and expected message by name; a test below changes each single number.
DAMAGES: dict[str, tuple[Damage, str]] = {
    # Decision points.
    "time": (at("decisions.1.time_ms", 41), "decision 1 at 41 ms: the time in ms is 40.0, recorded 41.0"),
    "no source job": (at("decisions.1.source_job", None), "decision 1 .* the source job is 0, recorded None"),
    "source pool": (at("decisions.0.source_stage", 0), "decision 0 .* the source stage is None, recorded 0"),
    "order of turn": (
        at("decisions.0.executors_now", [1, 0]),
        r"decision 0 .* acting executors is \[0, 1\], recorded \[1, 0\]",
    ),
    "stage too many": (at("decisions.2.schedulable", lambda s: [*s, [1, 0]]), "decision 2 .* schedulable"),
    "stage too few": (at("decisions.1.schedulable", lambda s: s[1:]), "decision 1 .* schedulable"),
    "stages shuffled": (at("decisions.1.schedulable", lambda s: s[::-1]), "decision 1 .* schedulable"),
    # Decisions.
    "stage chosen": (at("decisions.0.stage", 1), "decision 0 .* stage 1 of job 0 is not schedulable"),
    "stage that is not there": (at("decisions.0.stage", 99), "decision 0 .* no stage 99 of job 0"),
    "stage below the first": (at("decisions.0.stage", -1), "decision 0 .* no stage -1 of job 0"),
    "job that has not arrived": (at("decisions.0.job", 1), "decision 0 .* job 1 is not in the system"),
    "idle instead": (at("decisions.2.job", None), "decision 2|decision 3"),
    "count": (at("decisions.0.num_executors", 1), "decision 0: 1 executors committed, recorded 2"),
    "count too high": (at("decisions.0.num_executors", 3), "decision 0 .* 3 executors requested, 2 offered"),
    "too many idle": (at("decisions.3.num_executors", 2), "decision 3 .* 2 executors left idle, 1 offered"),
    "reward": (at("decisions.2.reward", lambda r: r + 1e-6), "decision 2: reward -0.28, recorded -0.279999"),
    "reward that is none": (at("decisions.2.reward", float("nan")), "decision 2: reward -0.28, recorded nan"),
    "dropped decision": (lambda e: e["decisions"].pop(2), "decision 2 at 54 ms: the time"),
    "dropped last decision": (lambda e: e["decisions"].pop(), "after 4 decisions: the recording is over"),
    "no decisions": (at("decisions", []), "after 0 decisions: the recording is over"),
    "extra decision": (
        lambda e: e["decisions"].append(e["decisions"][-1]),
        "decision 5: the replay is over, the recording continues",
    ),
    "swapped decisions": (swap("decisions", 1, 2), "decision 1 .* executors offered is 2, recorded 1"),
    # Inputs of the agent.
    "order of live jobs": (at("decisions.1.features.jobs", [1, 0]), "decision 1 .* live jobs"),
    "order": (at("decisions.0.features.node_order", [[0, 1], [0, 0]]), "decision 0 .* the order of stages"),
    "mask": (at("decisions.1.features.valid_nodes", [1]), "decision 1 .* mask of stages"),
    # The outcome.
    "completion": (at("completions_ms.0", 55), "completion of job 0: 54 ms, recorded 55 ms"),
    "early completion": (at("completions_ms.0", 53), "completion of job 0: 54 ms, recorded 53 ms"),
    "dropped completion": (lambda e: e["completions_ms"].pop(), "2 completions, recorded 1"),
    "extra completion": (lambda e: e["completions_ms"].append(57), "2 completions, recorded 3"),
    "dropped task": (lambda e: e["tasks"].pop(), "task runs: 5 entries, recorded 4"),
    "extra task": (lambda e: e["tasks"].append([1, 0, 1, 1, 57, 59]), "task runs: 5 entries, recorded 6"),
    "kind of an event": (at("events.6.1", "job"), "events"),
    "dropped event": (lambda e: e["events"].pop(2), "events"),
    "extra event": (lambda e: e["events"].append([57, "executor", 0]), "events"),
    "order of events": (swap("events", 2, 5), "events: they are not in order of time"),
    # Task runs and events.
    "fresh duration": (at("jobs.0.stages.0.fresh_ms", 31), "decision 0 .* input of the stages"),
    "first-wave duration": (at("jobs.0.stages.1.first_ms", 5), "decision 0 .* input of the stages"),
    "duration of the rest": (at("jobs.0.stages.0.rest_ms", 9), "decision 0 .* input of the stages"),
    "number of tasks": (at("jobs.0.stages.0.num_tasks", 4), "decision"),
    "arrival": (at("jobs.1.arrival_ms", 26), "decision 0: reward"),
    "dropped edge": (at("jobs.0.edges", []), "decision 0 .* schedulable"),
    "dropped job": (lambda e: e["jobs"].pop(), "decision 0: reward"),
    "objective": (at("reward_objective", "makespan"), "decision 0: reward -0.4, recorded -0.55"),
}


#: Numbers that need not matter: how the recording was made, and message paths, which follow from the DAG; requested
#: executors, which may be clipped; in some episodes the duration of a wave, an arrival or a number of tasks.
ASIDE = frozenset({"stats", "generator_seed", "p_null", "msg_paths", "num_executors"})
ASIDE |= {"fresh_ms", "first_ms", "rest_ms", "arrival_ms", "num_tasks"}


@pytest.mark.parametrize("prefix", ["004", "106", "138", "154"])
def test_every_kind_of_number_of_a_real_episode_counts(shared: Shared, tmp_path: Path, prefix: str) -> None:
    (path,) = shared("parity/decima-sim").glob(f"{prefix}_*.json.gz")
    good = json.loads(gzip.decompress(path.read_bytes()))
    places = last_of_each_kind(numbers(good, aside=ASIDE))
    assert unnoticed(good, places, tmp_path / "damaged.json") == []


GOOD = gzip.compress(json.dumps(recording()).encode())

#: Contents and expected message by file name.
MALFORMED: dict[str, tuple[bytes, str]] = {
    **malformed(recording(), "tasks", "events"),
    "checksum.json.gz": (GOOD[:-8] + b"\0" * 8, "cannot be read: CRC check failed"),
    "empty.json.gz": (b"", "Invalid JSON|cannot be read"),
    "binary.json": (bytes(range(256)), "Invalid JSON"),
    "gzipped.json": (GOOD, "Invalid JSON"),
    "list.json": (b"[]", "Input should be an object"),
    "nested.json": (b"[" * 100_000, "Invalid JSON"),
}

#: Damage and expected message by name, for episodes that cannot be simulated.
IMPOSSIBLE: dict[str, tuple[Damage, str]] = {
    "format": (at("format", 2), "format: Input should be 1"),
    "type": (at("decisions.0.time_ms", "noon"), "decisions.0.time_ms: Input should be a valid number"),
    "key": (at("decisions.1", {}), "decisions.1.time_ms: Field required"),
    "fraction": (at("executors", 2.5), "executors: Input should be a valid integer"),
    "unknown": (at("reward_objective", "fun"), "reward_objective: Input should be 'mean' or 'makespan'"),
    "cycle": (at("jobs.0.edges", [[0, 1], [1, 0]]), "the stages form a cycle"),
    "triple": (at("jobs.0.edges", [[0, 1, 1]]), "jobs.0.edges.0: "),
    "negative": (at("jobs.1.stages.0.fresh_ms", -1), "a task duration must be between 0"),
    "order": (at("jobs.0.arrival_ms", 30), "arrival times must ascend"),
    "zero": (at("executors", 0), "num_executors: expected a number of at least 1, got 0"),
    "huge": (at("executors", 10**30), "executors: Input should be less than"),
    "huge-edge": (at("jobs.0.edges", [[0, 10**30]]), "jobs.0.edges.0.1: Input should be less than"),
    "huge-stage": (at("jobs.1.stages.0.num_tasks", 10**30), "jobs.1.stages.0.num_tasks: "),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_one_line(tmp_path: Path, name: str) -> None:
    content, message = MALFORMED[name]
    (tmp_path / name).write_bytes(content)
    line = refused(tmp_path / name)
    assert re.match(message, line), line


@pytest.mark.parametrize(("damage", "message"), (WRONG := DAMAGES | IMPOSSIBLE).values(), ids=WRONG)
def test_damage_is_noticed_where_it_is(tmp_path: Path, damage: Damage, message: str) -> None:
    line = refused(write(tmp_path / "damaged.json", damaged(recording(), damage)))
    assert re.match(message, line), line


def test_a_missing_file_and_a_folder_are_one_line_each(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "missing.json.gz")
    assert "cannot be read" in refused(tmp_path)
