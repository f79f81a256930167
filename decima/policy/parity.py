"""Parity with the published trained agent (decima-sim): replay its recorded episodes and compare every decision.

Our network schedules the recorded jobs with the semantics of the published simulator. Everything that
``simulator.cluster.parity`` compares must match. So must, at each decision, the probabilities of all stages, those of
the limits of the chosen stage's job, the chosen stage and the chosen limit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from decima.policy.messages import message_order
from decima.policy.policy import Policy
from decima.policy.published_messages import PUBLISHED_STEPS, published_message_order
from decima.policy.scheduler import Featurizer
from decima.policy.threads import one_thread
from simulator.cluster.base import BaseCluster
from simulator.cluster.observation import Decision
from simulator.cluster.parity import (
    DepartureError,
    RecordedDecision,
    Recording,
    carry_out,
    differences,
    stage_names,
)
from simulator.parity import RecordingError
from workloads.job import JobProfile

__all__ = ["TIE", "TOLERANCE", "AgentReplay"]

#: Largest accepted difference of a probability; rounding errors are smaller.
TOLERANCE = 1e-4
#: Choices are tied if their probabilities differ by less: rounding to single precision then decides.
TIE = 2e-5


class AgentReplay:
    """Replays recorded episodes with the decisions of a policy.

    Args:
        policy: policy to compare; its compiled code decides, its tensors compute probabilities in double precision.

    Attributes:
        largest_difference: largest difference of a probability so far; NaN before the first decision.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._exact = copy.deepcopy(policy).double()
        self.largest_difference = math.nan

    def differences(self, recording: Recording) -> Iterator[str]:
        """Yield differences as ``simulator.cluster.parity.differences``, including those of the policy's decisions.

        Raises:
            RecordingError: the recorded messages do not match the jobs.
        """
        messages = None
        if self.policy.config.message_order == "decima-sim" and recording.msg_paths is not None:
            messages = _messages(recording.sequence.profiles, recording.msg_paths).__getitem__
        featurizer = Featurizer(self.policy.config, messages)
        yield from differences(recording, partial(self._decide, featurizer))

    def _decide(
        self, featurizer: Featurizer, cluster: BaseCluster, recorded: RecordedDecision
    ) -> tuple[float, int]:
        """Compare the decision in the open round, carry it out, and return reward and number of committed executors."""
        observation = cluster.observe()
        names = stage_names(observation)
        graphs = featurizer.graph(observation)
        choices = self.policy.act(graphs)
        chosen = int(choices.stage[0])
        ours = None if chosen < 0 else names[chosen]
        theirs = None if recorded.job is None or recorded.stage is None else (recorded.job, recorded.stage)
        if ours is None or theirs is None:
            if ours != theirs:
                raise DepartureError(f"{_named(ours)} is chosen, recorded {_named(theirs)}")
            return carry_out(cluster, recorded)

        if recorded.node_order != names:
            raise DepartureError(f"node_order is {names}, recorded {recorded.node_order}")
        if (
            recorded.stage_probabilities is None
            or recorded.limit_probabilities is None
            or recorded.limit is None
        ):
            raise DepartureError("stage_probabilities, limit_probabilities and limit are not recorded")
        if theirs not in names:
            raise DepartureError(f"recorded {_named(theirs)}, which is not in the system")
        with torch.no_grad(), one_thread():
            of_nodes, of_limits = self._exact.probabilities(graphs)
        of_stages = np.zeros(len(names))
        of_stages[graphs.stage_index] = of_nodes
        stage = names.index(theirs)
        self._compare(
            of_stages, recorded.stage_probabilities, names.index(ours), stage, lambda at: _named(names[at])
        )

        # Among equally likely stages, the recorded one is as good as ours.
        limit = recorded.limit if ours != theirs else int(choices.limit[0])
        node = int(np.flatnonzero(graphs.stage_index == stage)[0])
        low, high = int(graphs.low[node]), int(graphs.high[node])
        candidate = np.count_nonzero(graphs.high[:node] > graphs.low[:node])
        limits = np.zeros(max(observation.num_executors, high))
        limits[low:high] = of_limits[candidate]
        self._compare(
            limits, recorded.limit_probabilities, limit - 1, recorded.limit - 1, lambda at: f"limit {at + 1}"
        )

        count = recorded.limit - observation.held(int(observation.stage_job[stage]))
        count = min(count, observation.offered, int(observation.unclaimed_tasks[stage]))
        if count != recorded.num_executors:
            raise DepartureError(f"{count} executors requested, recorded {recorded.num_executors}")
        cluster.decide(Decision(stage, recorded.limit))
        return cluster.reward(), count

    def _compare(
        self,
        ours: NDArray[np.float64],
        recorded: Sequence[float],
        our_choice: int,
        recorded_choice: int,
        name: Callable[[int], str],
    ) -> None:
        """Compare two distributions; both choices must be the most likely one or tied with it."""
        if len(recorded) != ours.size:
            raise DepartureError(f"{ours.size} probabilities, recorded {len(recorded)}")
        difference = np.abs(ours - recorded)
        worst, likeliest = int(difference.argmax()), int(ours.argmax())
        self.largest_difference = float(np.fmax(self.largest_difference, difference[worst]))
        if not difference[worst] <= TOLERANCE:
            raise DepartureError(
                f"the probability of {name(worst)} is {ours[worst]:.6g}, recorded {recorded[worst]:.6g}"
            )
        if ours[our_choice] < ours[likeliest] - TIE:
            raise DepartureError(f"{name(our_choice)} is chosen, but {name(likeliest)} is the likeliest")
        if not 0 <= recorded_choice < ours.size or ours[recorded_choice] < ours[likeliest] - TIE:
            raise DepartureError(f"{name(our_choice)} is chosen, recorded {name(recorded_choice)}")


def _named(stage: tuple[int, int] | None) -> str:
    return "no stage" if stage is None else f"stage {stage[1]} of job {stage[0]}"


def _messages(
    profiles: Sequence[JobProfile], paths: Sequence[Sequence[Sequence[tuple[int, int]]]]
) -> dict[JobProfile, NDArray[np.int32]]:
    """Return the messages of each profile as ``message_order`` does.

    In deep DAGs the messages of the published code depended on memory addresses of stages, so they are taken from the
    recording. Otherwise the messages follow from the DAG.
    """
    if len(paths) != len(profiles):
        raise RecordingError(f"msg_paths: {len(profiles)} jobs, recorded {len(paths)}")
    messages = {}
    for job, (profile, steps) in enumerate(zip(profiles, paths, strict=True)):
        if len(profile.edges) == 0 or message_order(profile)[:, 0].max() < PUBLISHED_STEPS:
            messages[profile] = published_message_order(profile)
            continue
        rows = sorted((step, *pair) for step, pairs in enumerate(steps) for pair in pairs)
        heard = {(step, receiver) for step, receiver, _ in rows if 0 <= receiver < profile.num_stages}
        if rows != sorted((*hears, child) for hears in heard for child in profile.children[hears[1]]):
            raise RecordingError(f"msg_paths.{job}: a stage receives from other stages than all its children")
        messages[profile] = np.array(rows, dtype=np.int32).reshape(-1, 3)
    return messages
