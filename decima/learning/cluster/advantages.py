"""Advantages: how much more each decision earned than was to be expected (Decima, section 5.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning.baselines import Baseline, Curve, HeuristicBaseline, NoBaseline, SequenceBaseline
from decima.learning.cluster.critic import LIVE_JOBS, NUM_SUMS, LinearCritic, relative_scale
from decima.learning.cluster.curriculum import EpisodePlan, episode_specs
from decima.learning.cluster.rollout import Trajectories, roll_out_scheduler
from decima.learning.part import TrainingPart, wrong_part
from decima.learning.returns import DifferentialReturns, DiscountedReturns, Returns, TotalReturns
from decima.policy.parts import build_part, is_own
from decima.registry import make_scheduler

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.learning.cluster.config import TrainingConfig
    from decima.policy.policy import Policy

__all__ = ["Advantages"]

#: What the unit of relative returns counts as, ms.
UNIT_MS = 1000.0


class Advantages:
    """Returns less their baseline; or, with a critic, its GAE advantages less the same baseline of them.

    With ``returns.relative``, the mean time that jobs spend in the system counts as 1 s, of each group its own: a
    horizon of 8 s is eight times as long as it. Where all times are longer by some factor, advantages are the same.

    Args:
        config: which returns, critic and baseline.
        conditions: for the baseline of a heuristic, which is run on the same sequences.
    """

    def __init__(self, config: TrainingConfig, conditions: Conditions) -> None:
        self._heuristic = config.baseline.scheduler if config.baseline.kind == "heuristic" else None
        self._baseline = _make_baseline(config)
        self._fixed_sequences = config.episodes.fixed_sequences
        self._conditions = conditions
        self._relative = config.returns.relative
        self._returns = _make_returns(config)
        critic = config.critic
        self._critic = None if critic is None else LinearCritic(critic.gae_horizon * 1000, critic.decay)

    def __call__(
        self, policy: Policy, samples: Trajectories, groups: Sequence[Sequence[EpisodePlan]]
    ) -> NDArray[np.float64]:
        """The advantages of an iteration's samples, float64 [n].

        Args:
            policy: what chose; a heuristic's run is seen as it would see it.
            samples: n of them.
            groups: the episodes, in order, in groups that have one baseline.
        """
        episodes = range(samples.num_episodes)
        units_ms = self._units_ms(samples, groups)
        if self._relative:
            samples = _in_units(samples, np.repeat(units_ms, [len(group) for group in groups]))
        for episode in episodes:
            self._returns.observe(*_rewards(samples, episode))
        curves = [self._returns_of(samples, episode) for episode in episodes]
        if self._critic is not None:
            self._teach(self._critic, samples, curves, groups)
            curves = [self._gae(self._critic, samples, episode) for episode in episodes]
        parts = []
        for group, unit_ms in zip(groups, units_ms, strict=True):
            own = [curves[plan.episode] for plan in group]
            parts += _less(own, self._expected(policy, group, own, unit_ms))
        return np.concatenate(parts)

    def _units_ms(self, samples: Trajectories, groups: Sequence[Sequence[EpisodePlan]]) -> list[float]:
        """Of each group, the mean time that a job spends in the system until the end of an episode, ms."""
        units_ms = []
        for group in groups:
            own = [plan.episode for plan in group]
            spent = -sum(float(samples.reward[samples.samples(episode)].sum()) for episode in own)
            arrived = float((samples.num_completed[own] + samples.end_load[own, LIVE_JOBS]).sum())
            mean_ms = spent * self._conditions.cluster.reward_scale_ms / max(arrived, 1.0)
            units_ms.append(mean_ms if mean_ms > 0 else UNIT_MS)
        return units_ms

    def state(self) -> dict[str, Any]:
        """What was learned of the rewards so far.

        ``window`` (float64 [n, 2]) and ``critic`` (float64 [7, 8]); and of ``returns`` and ``baseline`` of the user's
        own what they remember.
        """
        recent = self._returns.recent if isinstance(self._returns, DifferentialReturns) else ()
        moments = (self._critic or LinearCritic(math.inf)).moments
        return {
            "window": torch.tensor(list(recent), dtype=torch.float64).reshape(-1, 2),
            "critic": torch.from_numpy(moments.copy()),
            **{name: part.state() for name, part in self._parts.items() if part.state()},
        }

    @property
    def _parts(self) -> dict[str, TrainingPart]:
        return {"returns": self._returns, "baseline": self._baseline}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave.

        Raises:
            AttributeError, KeyError, RuntimeError, TypeError, ValueError: it is of something else, or damaged.
        """
        for name, shape in (("window", (len(state["window"]), 2)), ("critic", (NUM_SUMS, NUM_SUMS + 1))):
            if state[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}")
        if isinstance(self._returns, DifferentialReturns):
            self._returns.recent.extend((reward, duration) for reward, duration in state["window"].tolist())
        if self._critic is not None:
            self._critic.moments = state["critic"].numpy().copy()
        for name, part in self._parts.items():
            if name in state:
                part.restore(state[name])

    def _returns_of(self, samples: Trajectories, episode: int) -> Curve:
        """The returns of an episode."""
        bootstrap_value = 0.0 if self._critic is None else _bootstrap_value(self._critic, samples, episode)
        return self._over_time(samples, episode, self._returns(*_rewards(samples, episode), bootstrap_value))

    def _gae(self, critic: LinearCritic, samples: Trajectories, episode: int) -> Curve:
        """The critic's advantages of an episode; a baseline takes from them what its sequence does to all."""
        load, bootstrap_value = (
            samples.load[samples.samples(episode)],
            _bootstrap_value(critic, samples, episode),
        )
        value = critic.advantages(self._returns, load, *_rewards(samples, episode), bootstrap_value)
        return self._over_time(samples, episode, value)

    def _over_time(self, samples: Trajectories, episode: int, value: NDArray[np.float64]) -> Curve:
        """Values of an episode's samples; where sequences are not fixed, their arrivals have nothing in common."""
        own = samples.samples(episode)
        arrived = samples.arrived[own]
        if not self._fixed_sequences:
            arrived = np.zeros_like(arrived)
        return Curve(samples.time_ms[own], value, float(samples.end_ms[episode]), arrived)

    def _teach(
        self,
        critic: LinearCritic,
        samples: Trajectories,
        curves: Sequence[Curve],
        groups: Sequence[Sequence[EpisodePlan]],
    ) -> None:
        """Show the critic how returns differ within each group, and the loads that did it."""
        both = [
            curve._replace(value=np.column_stack([samples.load[samples.samples(episode)], curve.value]))
            for episode, curve in enumerate(curves)
        ]
        parts = []
        for group in groups:
            own = [both[plan.episode] for plan in group]
            parts += _less(own, SequenceBaseline()(own))
        difference = np.concatenate(parts)
        critic.observe(difference[:, :-1], difference[:, -1])

    def _expected(
        self, policy: Policy, group: Sequence[EpisodePlan], curves: Sequence[Curve], unit_ms: float
    ) -> list[NDArray[np.float64]]:
        """The baseline of the episodes of a group."""
        if self._heuristic is not None:
            return HeuristicBaseline(self._heuristic_runs(policy, group, unit_ms, self._heuristic))(curves)
        expected, shapes = self._baseline(curves), [curve.value.shape for curve in curves]
        if not isinstance(expected, list | tuple) or [np.shape(each) for each in expected] != shapes:
            raise wrong_part("baseline.kind", self._baseline, "an array like the values of each episode")
        return list(expected)

    def _heuristic_runs(
        self, policy: Policy, group: Sequence[EpisodePlan], unit_ms: float, heuristic: str
    ) -> list[Curve]:
        """What the heuristic makes of the sequence of each episode."""
        runs: dict[int, Curve] = {}  # the same sequence need not be run twice
        specs = episode_specs(self._conditions, group)
        for spec in specs:
            seed = spec.sequence.seed
            if seed not in runs:
                scheduler = make_scheduler(heuristic, seed)
                run = roll_out_scheduler(scheduler, policy.config, [spec])
                if self._relative:
                    run = _in_units(run, np.array([unit_ms]))
                runs[seed] = (
                    self._returns_of(run, 0) if self._critic is None else self._gae(self._critic, run, 0)
                )
        return [runs[spec.sequence.seed] for spec in specs]


def _in_units(samples: Trajectories, unit_ms: NDArray[np.float64]) -> Trajectories:
    """The same episodes, as if each one's unit were ``UNIT_MS``.

    Args:
        samples: E episodes.
        unit_ms: float64 [E].
    """
    factor = UNIT_MS / unit_ms
    scale = relative_scale(factor, samples.num_executors)
    of_sample = np.repeat(np.arange(samples.num_episodes), np.diff(samples.first))
    return replace(
        samples,
        time_ms=samples.time_ms * factor[of_sample],
        reward=samples.reward * factor[of_sample],
        load=samples.load * scale[of_sample],
        end_ms=samples.end_ms * factor,
        end_load=samples.end_load * scale,
    )


def _bootstrap_value(critic: LinearCritic, samples: Trajectories, episode: int) -> float:
    """The return to expect after the end of an episode: 0 unless it was truncated."""
    return float(critic.expect(samples.end_load[episode]))


def _less(curves: Sequence[Curve], expected: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The curves' values less what was expected of each."""
    return [curve.value - each for curve, each in zip(curves, expected, strict=True)]


def _rewards(samples: Trajectories, episode: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Rewards and times of an episode's samples, and its end."""
    own = samples.samples(episode)
    return samples.reward[own], samples.time_ms[own], float(samples.end_ms[episode])


def _make_returns(config: TrainingConfig) -> Returns:
    returns = config.returns
    if is_own(returns.kind):
        own: Returns = build_part(returns.kind, Returns, **(returns.options or {}))
        return own
    if returns.kind == "discounted":
        return DiscountedReturns(returns.horizon * 1000)
    return DifferentialReturns(returns.window) if returns.kind == "differential" else TotalReturns()


def _make_baseline(config: TrainingConfig) -> Baseline:
    """That of the settings; a heuristic's runs are another one for each group."""
    baseline = config.baseline
    if is_own(baseline.kind):
        own: Baseline = build_part(baseline.kind, Baseline, **(baseline.options or {}))
        return own
    return SequenceBaseline() if baseline.kind == "sequence" else NoBaseline()
