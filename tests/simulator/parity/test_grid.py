"""Recorded episodes of the published code match, and every error in a recording is detected."""

import copy
import gzip
import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from simulator.grid import DEEPRM, GridConfig
from simulator.parity import first_difference_in
from tests.simulator.grid.naive import Naive, Written
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
    without,
    write,
)

#: Enter, duration, demand. The first job never enters, the fifth is dropped.
JOBS: list[Written] = [(0, 1, (1, 1)), (1, 2, (2, 1)), (1, 1, (2, 0))]
JOBS += [(1, 2, (1, 1)), (1, 4, (1, 1)), (3, 4, (2, 2))]
ACTIONS = [2, 0, 0, 1, 1, 2, 0, 0, 2, 2, 2, 2]


@lru_cache
def hashes() -> list[dict[str, str]]:
    """Return hashes of the pictures by the plain rules: the first picture, and the picture after each action."""
    sizes = {"units": 3, "visible_jobs": 2, "slot_width": 2, "horizon": 5, "backlog": 1}
    config = GridConfig(**sizes, picture="coloured", arrival_column=True, semantics=DEEPRM)
    naive = Naive(config, JOBS, 4)
    pictures = [naive.picture()]
    for action in ACTIONS:
        naive.step(action)
        pictures.append(naive.picture())
    result = []
    for picture in pictures:
        coloured = np.array(picture, dtype="<f4")
        inside = np.where(coloured > 0, np.float32(1), np.float32(0))[:, :-1]
        kinds = {
            "f32": np.hstack([inside, coloured[:, -1:]]),
            "f32_colour": coloured,
            "f32_noextra": inside,
            "u8_noextra": inside.astype(np.uint8),
        }
        digests = {name: hashlib.sha256(np.ascontiguousarray(kind)) for name, kind in kinds.items()}
        result.append({name: digest.hexdigest() for name, digest in digests.items()})
    return result


def recording() -> Recording:
    """Return an episode written by hand from the published code's rules.

    Three units of two resources, two slots, a backlog of one. Jobs 1 and 3 run from 1 to 3, job 2 after them, and
    then job 5, which needs four of the five rows and cannot have the last. At 3 job 3 remains in the list of running
    jobs, at 4 job 2.
    """
    states = [
        # outcome, reward, clock, running, slots, backlog
        ("V", -2.0, 1, 0, 2, 1),
        ("A", 0.0, 1, 1, 2, 0),
        ("A", 0.0, 1, 2, 1, 0),
        ("A", 0.0, 1, 3, 0, 0),
        ("E", -2.0, 2, 3, 0, 0),
        ("V", -1.75, 3, 2, 1, 0),
        ("F", -1.25, 4, 1, 1, 0),
        ("A", 0.0, 4, 2, 0, 0),
        ("V", -0.25, 5, 1, 0, 0),
        ("V", -0.25, 6, 1, 0, 0),
        ("V", -0.25, 7, 1, 0, 0),
        ("V", 0.0, 8, 0, 0, 0),
    ]
    outcomes, rewards, clock, running, slots, backlog = (list(column) for column in zip(*states, strict=True))
    runs = [(1, 1, 3), (2, 3, 4), (3, 1, 3), (5, 4, 8)]
    return {
        "name": "by hand",
        "params": {
            "num_res": 2, "res_slot": 3, "num_nw": 2, "max_job_size": 2, "time_horizon": 5, "backlog_size": 1,
            "simu_len": 4, "episode_max_length": 9, "end": "all_done", "delay_penalty": -1, "hold_penalty": -1,
            "dismiss_penalty": -1,
        },
        "jobs_in": [
            {"arrival_step": enter, "duration": duration, "res": list(demand)} for enter, duration, demand in JOBS
        ],
        "jobs_out": [
            {"id": number, "start": start, "finish": finish}
            | {"enter": JOBS[job][0], "duration": JOBS[job][1], "res": list(JOBS[job][2])}
            for number, (job, start, finish) in enumerate(runs)
        ],
        "actions": list(ACTIONS),
        "status": "".join(outcomes),
        "rewards": rewards,
        "clock_after": clock,
        "running_list_after": running,
        "slots_filled_after": slots,
        "backlog_after": backlog,
        "done": True,
        "obs_hashes": copy.deepcopy(hashes()),
    }  # fmt: skip


def test_episodes_made_by_hand_match_with_and_without_pictures(tmp_path: Path) -> None:
    short = [damaged(recording(), change) for change in (without("obs_hashes"), at("obs_hashes", None))]
    for episode, name in zip([recording()] * 2 + short, ("1.json", "2.json.gz", "3.json", "4.json"), strict=True):
        assert first_difference_in(write(tmp_path / name, episode)) is None


LAST = "the replay is over, the recording continues"
LENGTHS = ("rewards", "clock_after", "running_list_after", "slots_filled_after", "backlog_after")

#: Damage and expected message by name.
DAMAGES: dict[str, tuple[Damage, str]] = {
    # Actions and states.
    "action": (at("actions.6", 2), "action 6: the outcome: V, recorded F"),
    "no action": (at("actions.3", 3), "action 3: there is no action 3"),
    "outcome": (at("status", "VAAAVVFAVVVV"), "action 4: the outcome: E, recorded V"),
    "reward": (at("rewards.5", -1.25), "action 5: reward -1.75, recorded -1.25"),
    "reward that is none": (at("rewards.0", float("nan")), "action 0: reward -2, recorded nan"),
    "swapped actions": (swap("actions", 0, 1), "action 0: the outcome: E, recorded V"),
    "dropped action": (lambda e: e["actions"].pop(), "rewards: 12 entries after 11 actions"),
    "extra action": (lambda e: e["actions"].append(2), "rewards: 12 entries after 13 actions"),
    "dropped outcome": (at("status", lambda s: s[:-1]), "status: 11 entries after 12 actions"),
    "extra outcome": (at("status", lambda s: s + "V"), "status: 13 entries after 12 actions"),
    "dropped picture": (lambda e: e["obs_hashes"].pop(), "obs_hashes: 11 entries after 12 actions"),
    "extra picture": (lambda e: e["obs_hashes"].append({}), "obs_hashes: 13 entries after 12 actions"),
    "no pictures": (at("obs_hashes", []), "at the start: the picture 'f32' differs"),
    **{
        f"dropped entry of {name}": (at(name, lambda c: c[1:]), f"{name}: 11 entries after 12 actions")
        for name in LENGTHS
    },
    **{
        f"extra entry of {name}": (at(name, lambda c: [*c, 0]), f"{name}: 13 entries after 12 actions")
        for name in LENGTHS
    },
    **{
        f"picture {kind}": (at(f"obs_hashes.3.{kind}", "0" * 64), f"action 2: the picture '{kind}' differs")
        for kind in ("f32", "f32_colour", "f32_noextra", "u8_noextra")
    },
    "first picture": (swap("obs_hashes", 0, 1), "at the start: the picture 'f32' differs"),
    "picture without its hash": (
        at("obs_hashes.12", lambda h: {"f32": h["f32"]}),
        "action 11: the picture 'f32_colour' differs",
    ),
    # The outcome.
    "done": (at("done", False), "after 12 actions: the recording is not over, the replay is over"),
    "dropped job": (lambda e: e["jobs_out"].pop(), "a job's number, .*: 4 entries, recorded 3"),
    "job not booked": (
        at("jobs_out.3", lambda job: job | {"start": -1, "finish": -1}),
        r".* \(3, 3, 4, 2, 2, 4, 8\), recorded \(3, 3, 4, 2, 2, -1, -1\)",
    ),
    "swapped jobs": (swap("jobs_out", 0, 1), r".*: \(0, .*\), recorded \(1, .*"),
    # Jobs.
    "dropped arrival": (lambda e: e["jobs_in"].pop(1), "action 0: .*"),
    "end": (at("params.end", "no_new_job"), f"action 7: {LAST}"),
    "cut": (at("params.episode_max_length", 6), f"action 11: {LAST}"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_noticed_where_it_is(tmp_path: Path, damage: Damage, message: str) -> None:
    line = refused(write(tmp_path / "damaged.json", damaged(recording(), damage)))
    assert re.fullmatch(message, line), line


#: Numbers that need not matter: of jobs that never enter, how long jobs may enter, and when an episode is truncated.
UNSEEN = {("jobs_in", 0), ("jobs_in", 4), ("params", "simu_len"), ("params", "episode_max_length")}


def test_every_single_number_of_an_episode_counts(tmp_path: Path) -> None:
    places = [place for place in numbers(recording()) if place[:2] not in UNSEEN]
    assert len(places) > 100
    assert unnoticed(recording(), places, tmp_path / "damaged.json") == []


#: Numbers that follow from others, or need not matter in an episode.
ASIDE = frozenset({"return", "n_actions", "params"})


@pytest.mark.parametrize("name", ["busy_A_3", "busy_res1", "hand_simultaneous_finish_lag", "sjf_B_1"])
def test_every_kind_of_number_of_a_real_episode_counts(shared: Shared, tmp_path: Path, name: str) -> None:
    good = json.loads(gzip.decompress((shared("parity/deeprm") / f"{name}.json.gz").read_bytes()))
    places = last_of_each_kind(numbers(good, aside=ASIDE))
    assert unnoticed(good, places, tmp_path / "damaged.json") == []


#: Contents and expected message by file name.
MALFORMED: dict[str, tuple[bytes, str]] = {
    **malformed(recording(), "name", "obs_hashes", "jobs_in"),
    "only-jobs.json": (b'{"jobs_in": []}', "params: Field required"),
    # It is taken for a recording of a cluster.
    "without-jobs_in.json": (json.dumps(damaged(recording(), without("jobs_in"))).encode(), "format: Field required"),
}

#: Damage and expected message by name, for episodes that cannot be simulated.
IMPOSSIBLE: dict[str, tuple[Damage, str]] = {
    "action": (at("actions.0", -1), "actions.0: Input should be greater than or equal to 0"),
    "word": (at("rewards.0", "much"), "rewards.0: Input should be a valid number"),
    "fraction": (at("clock_after.0", 0.5), "clock_after.0: Input should be a valid integer"),
    "job": (at("jobs_in.2", 7), "jobs_in.2: Input should be an object"),
    "params": (at("params", []), "params: Input should be an object"),
    "end": (at("params.end", "soon"), "params.end: Input should be 'all_done' or 'no_new_job'"),
    "hash": (at("obs_hashes.0.f32", 1), "obs_hashes.0.f32: Input should be a valid string"),
    "nothing": (at("jobs_in", []), "expected at least one job"),
    "demands": (at("jobs_in.1.res", [1]), "expected .* demands of the same resources from each"),
    "resources": (at("params.num_res", 3), "the jobs need 2 resources, the grid has 3"),
    "large": (at("jobs_in.5.res.0", 4), "job 5 of set 0 needs 4 units of a resource, a machine has 3"),
    "slots": (at("params.num_nw", 0), "visible_jobs: expected a number of at least 1, got 0"),
    "weight": (at("params.hold_penalty", float("inf")), "queue_weight: expected a number of at least 0, got -inf"),
    "huge": (at("params.time_horizon", 10**30), "params.time_horizon: Input should be less than 1000000"),
    "picture": (at("params", lambda p: p | dict.fromkeys(HUGE, 9999)), "a picture of 9999 x .* has more than"),
}

HUGE = ("res_slot", "num_nw", "max_job_size", "time_horizon")


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_one_line(tmp_path: Path, name: str) -> None:
    content, message = MALFORMED[name]
    (tmp_path / name).write_bytes(content)
    line = refused(tmp_path / name)
    assert re.match(message, line), line


@pytest.mark.parametrize(("damage", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_recording_that_cannot_be_is_one_line(tmp_path: Path, damage: Damage, message: str) -> None:
    line = refused(write(tmp_path / "impossible.json", damaged(recording(), damage)))
    assert re.match(message, line), line
