"""Deep controlled learning; ``test_loop`` has resumed runs and numbers of workers."""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from decima.learning import ClusterTraining, read_metrics
from decima.learning.cluster.dcl import Candidate, Counts, Labeller, changed, select
from decima.learning.cluster.rollout import Episode
from decima.learning.cluster.sections import DCLSection
from decima.policy.compiled.graphs import NO_GUARD, Graphs, Guard
from decima.policy.config import SHORTCUT_POLICY
from decima.policy.scheduler import Actor, Choices
from simulator import ClusterConfig, Decision, Observation, run_episode
from tests.cases import cases
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.examples import small
from tests.decima.learning.examples import assert_same_run
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads.arrivals import JobSequence

OWN, *OTHERS = (Candidate(place, 1) for place in range(6))
#: The long job has arrived first.
LONG, SHORT = job(stage(40, 1000.0), name="long"), job(stage(4, 1000.0), name="short")


class FirstJobFirst:
    """A policy that prefers the first job in the cluster, but draws the others, too."""

    config = SHORTCUT_POLICY

    def act(self, graphs: Graphs, uniforms: np.ndarray | None = None, guard: Guard = NO_GUARD) -> Choices:
        stages, limits = [], []
        for graph in range(graphs.num_graphs):
            first, last = graphs.first_stage[graph : graph + 2]
            rows = first + np.flatnonzero(graphs.high[first:last] > graphs.low[first:last])
            row = rows[0 if uniforms is None else int(uniforms[graph, 0] * len(rows))]
            stages.append(graphs.place[row])
            limits.append(graphs.high[row])
        zeros = np.zeros(len(stages))
        return Choices(np.array(stages, np.int32), np.array(limits, np.int32), zeros.astype(np.float32), zeros > 0)


def at_the_start(sequence: JobSequence) -> tuple[Episode, Graphs]:
    episode = Episode(SHORTCUT_POLICY, ClusterConfig(num_executors=2), sequence)
    graph = episode.advance()
    assert graph is not None
    return episode, graph


def labeller(counts: Counts | None = None, **settings: Any) -> Labeller:
    actor = cast("Actor", FirstJobFirst())
    section = DCLSection(**{"rollout": "policy", "futures": 4, **settings})
    return Labeller(actor, section, 0, Counts() if counts is None else counts)


@cases(
    "settings", {"hold": 0.0}, {"decisions": 0}, {"decisions": 0, "horizon": 10.0}, {"decisions": 0, "rollout": "fifo"}
)
def test_the_label_is_the_short_job_where_the_policy_begins_with_the_long_one(settings: dict[str, Any]) -> None:
    counts = Counts()
    episode, graph = at_the_start(jobs(LONG, SHORT))
    before = float(episode.cluster.clock.now)
    label = labeller(counts, **settings).label(episode, graph, np.random.default_rng(0))
    assert label.stage == 1
    assert (counts.labels, float(episode.cluster.clock.now)) == (1, before)
    assert counts.gain_ms > 0
    assert counts.rollouts > 8


def test_labels_and_costs_of_candidates() -> None:
    counts = Counts()
    episode, graph = at_the_start(jobs(SHORT, LONG))
    label = labeller(counts).label(episode, graph, np.random.default_rng(0))
    assert (label, counts.labels, counts.gain_ms) == (Candidate(0, 2), 0, 0.0)
    # Without noise the cost is that of the episode; a job that arrives later counts from its arrival on.
    counts, sequence = Counts(), jobs(LONG, SHORT, at=[0, 5000])
    episode, _ = at_the_start(sequence)
    record = run_episode(ClusterConfig(num_executors=2), sequence, _First())
    cost_ms = labeller(counts, rollout="fifo").cost_ms(episode, Candidate(0, 2), 3)
    assert cost_ms == pytest.approx(float(record.jct_ms.sum()))
    assert (counts.rollouts, counts.tasks) == (1, 44)
    episode, _ = at_the_start(jobs(LIBRARY.profiles[1]))
    find = labeller(rollout="fifo")
    one, again, other = (find.cost_ms(episode, Candidate(0, 2), future) for future in (3, 3, 4))
    assert one == again != other
    episode, _ = at_the_start(jobs(SHORT, LONG))
    whole, cut = (
        labeller(horizon=horizon, rollout="fifo").cost_ms(episode, Candidate(0, 1), 3) for horizon in (None, 0.5)
    )
    assert cut == pytest.approx(whole, rel=0.3)
    assert cut != whole


class _First:
    def reset(self, config: ClusterConfig) -> None:
        pass

    def decide(self, observation: Observation) -> Decision:
        place = int(np.argmax(observation.schedulable))
        return Decision(place, observation.num_executors)


def test_settings_bound_the_number_of_candidates() -> None:
    episode, graph = at_the_start(jobs(*(job(stage(tasks, 1000.0)) for tasks in (10, 5, 4, 8, 6, 7))))

    def candidates(**settings: Any) -> list[Candidate]:
        own, others = labeller(**settings)._candidates(episode, graph, np.random.default_rng(0))
        assert own == Candidate(0, 2)
        return others

    for decisions, first_jobs in ((1, 3), (4, 2), (0, 0)):
        found = candidates(decisions=decisions, jobs=first_jobs)
        assert sum(each.job < 0 for each in found) == decisions
        shortest = [(each.stage, each.job) for each in found if each.job > 0]
        assert shortest == [(2, 2), (1, 1), (4, 4)][:first_jobs]
        # The policy gives its job all executors, so that only half of its limit is another choice.
        assert [each for each in found if each.factor] == [Candidate(0, 1, 0, 0.5)]
    assert all(each.job < 0 for each in candidates(hold=0.0))


def test_a_change_is_held_as_long_as_is_set() -> None:
    """The policy prefers the long job; only a long hold also gives executors to the other job's second stage."""
    short = chain(stage(2, 1000.0), stage(2, 1000.0))
    episode, _ = at_the_start(jobs(LONG, short))
    first = Candidate(1, 2, job=1)
    brief, held = (labeller(rollout="fifo", hold=hold).cost_ms(episode, first, 0) for hold in (0.5, 10.0))
    assert brief > held + 10_000


def test_both_meet_the_same_futures_and_the_test_uses_others() -> None:
    asked: dict[Candidate, list[int]] = {each: [] for each in (OWN, *OTHERS)}

    def cost_ms(candidate: Candidate, future: int) -> float:
        asked[candidate].append(future)
        return 100.0 * (future % 3) - (candidate.stage == 3)

    best, gain = select(OWN, OTHERS, 8, cost_ms)
    assert (best, gain) == (OTHERS[2], 1.0)
    assert asked[OWN] == asked[best] == list(range(16))
    assert sorted(len(asked[each]) for each in OTHERS) == [2, 2, 4, 8, 16]


def test_a_gain_within_two_standard_errors_is_no_label() -> None:
    """Gains of the test are 1 on average; their standard error is 0.4 or 0.6."""
    for spread, best in ((0.4, OTHERS[0]), (0.6, OWN)):
        wide = spread * math.sqrt(15)

        def cost_ms(candidate: Candidate, future: int, wide: float = wide) -> float:
            gain = 1.0 + (wide if future % 2 else -wide)
            return 0.0 if candidate is OWN else -gain

        assert select(OWN, OTHERS[:1], 16, cost_ms)[0] is best


def test_luck_in_the_selection_is_no_gain() -> None:
    """Every candidate is better on the futures of the selection, none on those of the test."""
    assert select(OWN, OTHERS, 8, lambda each, future: -float(each is not OWN and future < 8)) == (OWN, 0.0)
    assert select(OWN, [], 8, lambda *_: 0.0) == (OWN, 0.0)


def test_held_changes() -> None:
    episode, _ = at_the_start(jobs(LONG, SHORT))
    seen = episode.cluster.observe()
    assert changed(seen, Decision(0, 2), 1, 0.0) == Decision(1, 2)
    assert changed(seen, Decision(0, 2), 0, 0.5) == Decision(0, 1)
    assert changed(seen, Decision(0, 1), 0, 2.0) == Decision(0, 2)
    assert changed(seen, Decision(0, 1), 1, 2.0) == Decision(0, 1)
    assert changed(seen, None, 0, 2.0) is None
    assert changed(seen, Decision(0, 2), 7, 0.0) == Decision(0, 2)


def test_training_says_what_the_simulations_cost(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1, update={"algorithm": "dcl"}, dcl={"futures": 2})
    ClusterTraining(config, tmp_path / "run").run()
    row = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert row["rollouts"] > row["samples"] > row["labels"] > 0
    assert row["label_gain_s"] > 0
    assert row["rollout_tasks_per_s"] > 1000
    hours = row["rollout_cpu_s"] / 3600
    assert row["labels_per_cpu_hour"] == pytest.approx(row["labels"] / hours, rel=1e-3)


def test_the_labels_are_learned(tmp_path: Path) -> None:
    config = small(
        tmp_path,
        iterations=4,
        update={"algorithm": "dcl", "epochs": 6, "learning_rate": 0.01, "ema_decay": 0.0},
        dcl={"futures": 4, "rollout": "fair"},
        validation={"every": 4, "sequences": 10},
    )
    ClusterTraining(config, tmp_path / "run").run()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert rows[-1]["validation_mean_jct_s"] < 0.97 * rows[0]["validation_mean_jct_s"]


@pytest.mark.usefixtures("other_process")
def test_workers_do_not_change_the_result(tmp_path: Path) -> None:
    config = small(
        tmp_path,
        iterations=1,
        update={"algorithm": "dcl"},
        dcl={"futures": 2},
        episodes={"sequences": 1, "per_sequence": 2},
    )
    ClusterTraining(config, tmp_path / "one").run()
    ClusterTraining(config, tmp_path / "two", workers=2).run()
    assert_same_run(tmp_path / "one", tmp_path / "two")
