"""Advantages: returns minus a baseline, optionally with a critic and GAE (Decima, section 5.3).

In the order of the computation: *returns* (the total later reward; ``returns.py`` has others), their *baseline* (the
input-dependent baseline of Decima: the mean over the other episodes of the same job sequence), and, with a critic,
generalised advantage estimation (*GAE*; Schulman et al., 2016) in continuous time. ``Advantages`` combines them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning.checkpoint import TrainingPart
from decima.learning.cluster.rollout import (
    NUM_LOADS,
    EpisodePlan,
    Trajectories,
    start_episodes,
)
from decima.registry import make_scheduler

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.learning.cluster.config import TrainingConfig
    from decima.learning.cluster.sections import BaselineSection, ReturnsSection
    from decima.policy.policy import Policy

__all__ = [
    "Advantages", "Baseline", "Curve", "Floats", "LinearCritic", "Returns", "SequenceBaseline", "accumulate", "gae",
    "mean_at",
]  # fmt: skip

Floats = NDArray[np.float64]

#: Time added at each job arrival of a curve, ms; longer than any episode, so that no value is interpolated across one.
APART_MS = 1e9
#: Ridge of the critic's least squares, so that the fit is defined before loads have varied.
RIDGE = 1e-6

# Returns.


def accumulate(values: Floats, factors: Floats, bootstrap_value: float = 0.0) -> Floats:
    """Compute ``result[i] = values[i] + factors[i] * result[i + 1]``, where ``result[n]`` is the bootstrap value.

    Rewards and discounts give returns; TD errors and discounts times GAE lambda give GAE advantages.
    """
    result = np.empty_like(values)
    later: Any = bootstrap_value
    for index in range(len(values) - 1, -1, -1):
        later = result[index] = values[index] + factors[index] * later
    return result


class Returns(TrainingPart):
    """Total reward: the sum of all later rewards (Decima, for batches). Base class of custom returns.

    Attributes:
        recent: reward and duration (ms) of the last samples, from which ``DifferentialReturns`` takes an average.
    """

    recent: deque[tuple[float, float]] = deque(maxlen=0)  # noqa: RUF012  # stays empty

    def observe(self, reward: Floats, time_ms: Floats, end_ms: float) -> None:
        """Observe an episode; called for all episodes of an iteration before ``steps``, with the same arguments."""

    def steps(self, reward: Floats, time_ms: Floats, end_ms: float) -> tuple[Floats, Floats]:
        """Compute the rewards and discounts that define the returns of one episode.

        The return of a sample is its reward plus its discount times the return of the next sample.

        Args:
            reward: float64 [n], reward from each sample to the next.
            time_ms: float64 [n], time of each sample, ms.
            end_ms: end of the episode, ms.

        Returns:
            Rewards, float64 [n], and discounts, float64 [n].
        """
        return reward, np.ones_like(reward)

    def checked_steps(self, reward: Floats, time_ms: Floats, end_ms: float) -> tuple[Floats, Floats]:
        """Call ``steps``, and raise ``PartError`` unless the result is two arrays of shape [n]."""
        steps = self.steps(reward, time_ms, end_ms)
        shapes = [np.shape(array) for array in steps] if isinstance(steps, tuple) else []
        if shapes != [reward.shape] * 2:
            got = ", ".join(str(list(shape)) for shape in shapes) or type(steps).__name__
            raise self.wrong("returns.kind", f"two arrays of shape {list(reward.shape)}, returned {got}")
        return steps


# Baselines.


class Curve(NamedTuple):
    """Values of one episode over time, such as returns.

    Attributes:
        time_ms: float64 [n], times of the samples, ascending, ms.
        value: float64 [n] or [n, k], values.
        end_ms: end of the episode, ms; values are 0 after it.
        arrived: int64 [n], number of jobs that had arrived; values may jump when a job arrives.
    """

    time_ms: Floats
    value: Floats
    end_ms: float
    arrived: NDArray[np.int64]


class Baseline(TrainingPart):
    """No baseline (0). Base class of custom baselines."""

    def __call__(self, curves: Sequence[Curve]) -> list[Floats]:
        """Compute the baselines of a group of episodes of one job sequence.

        Args:
            curves: returns of the episodes, or their GAE advantages if there is a critic.

        Returns:
            One array per episode, float64, in the shape of the episode's values.
        """
        return [np.zeros_like(curve.value) for curve in curves]


class SequenceBaseline(Baseline):
    """Input-dependent baseline: the mean of the other episodes of the same job sequence, at the same time.

    These episodes have the same arrivals and task noise (common random numbers) and differ only by decisions (Decima,
    section 5.3, challenge 2; Mao et al., 2019). The mean excludes the episode itself, so that the gradient is unbiased.
    A single episode has the baseline 0.
    """

    def __call__(self, curves: Sequence[Curve]) -> list[Floats]:
        """See ``Baseline``."""
        if len(curves) < 2:
            return super().__call__(curves)
        remaining = ([*curves[:index], *curves[index + 1 :]] for index in range(len(curves)))
        return [mean_at(curve, other_curves) for curve, other_curves in zip(curves, remaining, strict=True)]


def mean_at(curve: Curve, other_curves: Sequence[Curve]) -> Floats:
    """Average other curves at an episode's times: those with a sample between the same arrivals, or all if none."""
    comparable = np.array([np.isin(curve.arrived, other.arrived) for other in other_curves])
    weight = np.where(comparable.any(axis=0), comparable, True)
    values = np.array([_at(curve, other) for other in other_curves])
    weight = weight.reshape(weight.shape + (1,) * (values.ndim - weight.ndim))
    mean: Floats = (values * weight).sum(axis=0) / weight.sum(axis=0)
    return mean


def _at(curve: Curve, other: Curve) -> Floats:
    """Interpolate another curve linearly at an episode's times, but not across a job arrival."""
    if not other.time_ms.size:
        return np.zeros_like(curve.value)
    points = np.append(other.time_ms, other.end_ms) + APART_MS * np.append(other.arrived, other.arrived[-1])
    wanted = curve.time_ms + APART_MS * curve.arrived
    columns = other.value.reshape(other.time_ms.size, -1).T
    values = [np.interp(wanted, points, np.append(column, 0.0)) for column in columns]
    return np.column_stack(values).reshape(curve.value.shape)


# A critic, and GAE.


class LinearCritic:
    """Linear critic (value function): a least-squares fit of returns to the load (see ``rollout.load_of``).

    A few sums over the work ahead of each job explain most of the returns. The fit is to differences between
    episodes of one job sequence, since the returns themselves vary mostly with future arrivals.

    Args:
        decay: factor by which the weight of earlier iterations in the fit decays per iteration.

    Attributes:
        moments: float64 [7, 8], weighted sums of products of loads with loads and with returns.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.moments = np.zeros((NUM_LOADS, NUM_LOADS + 1))

    def observe(self, load: Floats, returns: Floats) -> None:
        """Add samples to the fit: loads, float64 [n, 7], and returns, float64 [n], as differences to other episodes."""
        self.moments *= self.decay
        self.moments += load.T @ np.column_stack([load, returns])

    def expect(self, load: Floats) -> Floats:
        """Return the expected return of loads, float64 [n]; 0 before any observation."""
        gram, target = self.moments[:, :-1], self.moments[:, -1]
        ridge = np.diag(RIDGE * (np.diag(gram) + 1e-9))
        weights = np.linalg.solve(gram + ridge, target)
        return np.asarray(load @ weights, dtype=np.float64)


def gae(
    rewards: Floats, discounts: Floats, values: Floats, time_ms: Floats, end_ms: float, horizon_ms: float
) -> Floats:
    """Compute the GAE advantages of one episode in continuous time, float64 [n].

    Args:
        rewards: float64 [n], see ``Returns.steps``.
        discounts: float64 [n], see ``Returns.steps``.
        values: float64 [n + 1], the critic's values; the last is the bootstrap value.
        time_ms: float64 [n], times of the samples, ms.
        end_ms: end of the episode, ms.
        horizon_ms: time constant of GAE lambda, ``exp(-dt / horizon_ms)`` for samples dt apart.
    """
    td_error = rewards + discounts * values[1:] - values[:-1]
    gae_lambda = np.exp(-np.diff(time_ms, append=end_ms) / horizon_ms)
    return accumulate(td_error, discounts * gae_lambda)


class Advantages:
    """Computes advantages: returns (with a critic: GAE advantages) minus a baseline.

    With ``returns.relative``, the unit of time in a group of episodes is the mean time of its jobs in the system, so
    that advantages do not change if all times are scaled.

    Args:
        conditions: cluster and job sequences, for the baseline ``heuristic``.
    """

    def __init__(self, config: TrainingConfig, conditions: Conditions) -> None:
        self._config, self._conditions = config, conditions
        self._returns = _make_returns(config.returns)
        known_baselines = {"sequence": SequenceBaseline(), "none": Baseline(), "heuristic": Baseline()}
        self._baseline: Baseline = known_baselines.get(config.baseline.kind) or _custom_part(
            config.baseline, Baseline
        )
        self._parts: dict[str, TrainingPart] = {"returns": self._returns, "baseline": self._baseline}
        self._critic = LinearCritic() if config.critic is None else LinearCritic(config.critic.decay)

    def __call__(
        self, policy: Policy, samples: Trajectories, groups: Sequence[Sequence[EpisodePlan]]
    ) -> Floats:
        """Compute the advantages of an iteration's samples, float64 [n]; episodes of a group share a baseline."""
        units_ms = [0.0] * len(groups)
        if self._config.returns.relative:
            from decima.learning.cluster.returns import in_units, mean_times_ms

            units_ms = mean_times_ms(samples, groups, self._conditions.cluster.reward_scale_ms)
            samples = in_units(samples, np.repeat(units_ms, [len(group) for group in groups]))
        for episode in range(samples.num_episodes):
            self._returns.observe(*_rewards(samples, episode))
        if self._config.critic is not None:
            self._teach(samples, groups)
        parts: list[Floats] = []
        for group, unit_ms in zip(groups, units_ms, strict=True):
            curves = [self._curve(samples, plan.episode) for plan in group]
            expected = self._expected(policy, group, curves, unit_ms)
            parts += [curve.value - expectation for curve, expectation in zip(curves, expected, strict=True)]
        return np.concatenate(parts)

    def state(self) -> dict[str, Any]:
        """Return the state for checkpoints: average reward, critic, custom returns, custom baseline."""
        return {
            "window": torch.tensor(list(self._returns.recent), dtype=torch.float64).reshape(-1, 2),
            "critic": torch.from_numpy(self._critic.moments.copy()),
            **{name: part.state() for name, part in self._parts.items() if part.state()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state`` returned.

        Raises:
            AttributeError, KeyError, RuntimeError, TypeError, ValueError: the state is damaged or of another training.
        """
        for name, shape in (("window", (len(state["window"]), 2)), ("critic", (NUM_LOADS, NUM_LOADS + 1))):
            if state[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}")
        self._returns.recent.extend((reward, duration) for reward, duration in state["window"].tolist())
        self._critic.moments = state["critic"].numpy().copy()
        for name, part in self._parts.items():
            if name in state:
                part.restore(state[name])

    def _curve(self, samples: Trajectories, episode: int, with_critic: bool = True) -> Curve:
        """Return the returns of an episode over time, or its GAE advantages if there is a critic."""
        rows, critic = samples.samples(episode), self._config.critic
        reward, time_ms, end_ms = _rewards(samples, episode)
        rewards, discounts = self._returns.checked_steps(reward, time_ms, end_ms)
        # The bootstrap value of a truncated episode; 0 without a critic, and for a complete episode, with load 0.
        bootstrap_value = 0.0 if critic is None else float(self._critic.expect(samples.end_load[episode]))
        if critic is None or not with_critic:
            value = accumulate(rewards, discounts, bootstrap_value)
        else:
            values = np.append(self._critic.expect(samples.load[rows]), bootstrap_value)
            value = gae(rewards, discounts, values, time_ms, end_ms, critic.gae_horizon * 1000)
        arrived = samples.arrived[rows]
        if not self._config.episodes.fixed_sequences:  # episodes of a group have different arrivals
            arrived = np.zeros_like(arrived)
        return Curve(time_ms, value, end_ms, arrived)

    def _teach(self, samples: Trajectories, groups: Sequence[Sequence[EpisodePlan]]) -> None:
        """Fit the critic to differences of returns and loads within each group."""
        parts: list[Floats] = []
        returns = [
            self._curve(samples, episode, with_critic=False) for episode in range(samples.num_episodes)
        ]
        for group in groups:
            both = []
            for plan in group:
                curve, load = returns[plan.episode], samples.load[samples.samples(plan.episode)]
                both.append(curve._replace(value=np.column_stack([load, curve.value])))
            expected = SequenceBaseline()(both)
            parts += [curve.value - expectation for curve, expectation in zip(both, expected, strict=True)]
        difference = np.concatenate(parts)
        self._critic.observe(difference[:, :-1], difference[:, -1])

    def _expected(
        self, policy: Policy, group: Sequence[EpisodePlan], curves: Sequence[Curve], unit_ms: float
    ) -> list[Floats]:
        """Return the baselines of the episodes of a group."""
        if self._config.baseline.kind == "heuristic":
            seeds = [plan.sequence_seed for plan in group]
            unique = {plan.sequence_seed: plan for plan in group}.values()
            runs = {plan.sequence_seed: self._heuristic_run(policy, plan, unit_ms) for plan in unique}
            return [mean_at(curve, [runs[seed]]) for curve, seed in zip(curves, seeds, strict=True)]
        expected, shapes = self._baseline(curves), [curve.value.shape for curve in curves]
        if (
            not isinstance(expected, list | tuple)
            or [np.shape(expectation) for expectation in expected] != shapes
        ):
            raise self._baseline.wrong("baseline.kind", "an array like the values of each episode")
        return list(expected)

    def _heuristic_run(self, policy: Policy, plan: EpisodePlan, unit_ms: float) -> Curve:
        """Run the scheduler of the baseline ``heuristic`` on an episode's job sequence; return its returns."""
        from decima.learning.cluster.demonstrations import record_scheduler

        scheduler = make_scheduler(self._config.baseline.scheduler, plan.sequence_seed)
        run = record_scheduler(scheduler, start_episodes(policy.config, self._conditions, [plan]))
        if self._config.returns.relative:
            from decima.learning.cluster.returns import in_units

            run = in_units(run, np.array([unit_ms]))
        return self._curve(run, 0)


def _rewards(samples: Trajectories, episode: int) -> tuple[Floats, Floats, float]:
    """Return rewards and times of an episode's samples, and the end of the episode."""
    rows = samples.samples(episode)
    return samples.reward[rows], samples.time_ms[rows], float(samples.end_ms[episode])


def _make_returns(section: ReturnsSection) -> Returns:
    """Return the returns that the settings name."""
    if section.kind == "total":
        return Returns()
    if section.kind not in ("discounted", "differential"):
        return _custom_part(section, Returns)  # type: ignore[no-any-return]
    from decima.learning.cluster.returns import DifferentialReturns, DiscountedReturns

    if section.kind == "discounted":
        return DiscountedReturns(section.horizon * 1000)
    return DifferentialReturns(section.window)


def _custom_part(section: ReturnsSection | BaselineSection, base: type[TrainingPart]) -> Any:
    """Build the custom class that a section of the settings names."""
    from decima.policy.parts import build_part

    return build_part(section.kind, base, **(section.options or {}))
