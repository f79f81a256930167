"""Training: episodes, advantages, updates, validation and checkpoints, until a policy is as good as it gets.

What an iteration does follows from the settings and its number, so that a run that was killed and goes on from its last
checkpoint ends, on a CPU, with the very bits of one that was not; nor does the number of processes matter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.agent.config import PolicyConfig
from decima.agent.files import save_policy
from decima.agent.policy import Policy
from decima.experiments import ExperimentSettings
from decima.outputs import atomic_path, make_folder
from decima.schedulers import make_scheduler
from decima.training.baselines import Curve, NoBaseline, SequenceBaseline, curve_baseline
from decima.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from decima.training.config import TrainingConfig, TrainingError
from decima.training.critic import NUM_SUMS, LinearCritic
from decima.training.curriculum import (
    EpisodePlan,
    episode_specs,
    imitation_seeds,
    imitation_shuffling,
    mean_end_ms,
    plan_iteration,
    shuffling,
    validation_seeds,
)
from decima.training.metrics import MetricsLog
from decima.training.returns import DifferentialReturns, DiscountedReturns, Returns, TotalReturns
from decima.training.rollout import EpisodeSpec, NotFiniteError, Trajectories, roll_out, roll_out_scheduler
from decima.training.updates import UpdateReport, imitate, ppo, reinforce
from decima.training.validation import Outcome, Reference, judge, reference_row
from decima.workers import Workers

__all__ = ["CHECKPOINT", "CONFIG", "POLICY", "IterationReport", "Trainer", "TrainingResult"]

CHECKPOINT, CONFIG, POLICY = "checkpoint.pt", "config.yaml", "policy.npz"
#: Settings that a run may be gone on with although they differ: how long it is, and how it is watched over.
MAY_CHANGE = ("iterations", "checkpoint_every")
#: Samples per pass of REINFORCE, which bounds memory.
CHUNK = 1024
#: Added to the standard deviation that advantages are divided by.
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class IterationReport:
    """One iteration.

    Attributes:
        iteration: iterations that are over.
        iterations: how many there will be.
        metrics: see ``decima.training.metrics.METRICS``.
        improvement: of the best policy so far over the tuned weighted fair.
    """

    iteration: int
    iterations: int
    metrics: Mapping[str, float]
    improvement: float


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What came of a training run.

    Attributes:
        config: its settings.
        iteration: iterations that are over; fewer than asked for after Ctrl-C.
        policy_file: the best policy.
        best_iteration: when it was found.
        improvement: over the tuned weighted fair, on the validation sequences.
        results: mean JCT (or makespan, if that is rewarded) of each validation sequence by scheduler, float64 [n], ms;
            the best policy is ``decima``.
        interrupted: whether Ctrl-C ended it.
        cpu_s: CPU time over all processes, s.
    """

    config: TrainingConfig
    iteration: int
    policy_file: Path
    best_iteration: int
    improvement: float
    results: Mapping[str, NDArray[np.float64]]
    interrupted: bool
    cpu_s: float


@dataclass(frozen=True, eq=False)
class _Shared:
    """What every process needs."""

    settings: ExperimentSettings
    policy: PolicyConfig


class Trainer:
    """One training run and its folder.

    The folder gets ``config.yaml`` (all settings), ``metrics.jsonl`` and ``tensorboard/``, ``checkpoint.pt``, and
    ``policy.npz``, the policy that was best on the validation sequences.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint; from the beginning if the run was killed before the first one.
            Only the number of iterations and of those between checkpoints may differ from that run's settings. More
            iterations stretch whatever decays over the training, from the checkpoint on.
        device: where updates are computed, ``cpu`` or ``cuda``; episodes are always run on CPUs.
        processes: how many run episodes.
        command: the command line, kept in the policy file.

    Raises:
        TrainingError: the folder holds a training run already, its checkpoint is damaged or of other settings,
            or there is no such device.
        WorkloadError: the workload cannot be read.
        OutputError: the folder cannot be written.
    """

    def __init__(
        self,
        config: TrainingConfig,
        out: Path,
        *,
        resume: bool = False,
        device: str = "cpu",
        processes: int = 1,
        command: str = "",
    ) -> None:
        self.config = config
        self.out = Path(out)
        self.processes = processes
        self.command = command
        if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
            raise TrainingError(f"there is no device {device}")
        self._settings = config.settings()
        make_folder(self.out)
        path = self.out / CHECKPOINT
        if path.exists() and not resume:
            raise TrainingError(f"{self.out}: holds a training run already; --resume goes on with it")
        self._checkpoint = load_checkpoint(path) if path.exists() else None
        self._policy = Policy(config.policy.build(), seed=config.seed).to(device)
        self._optimiser = torch.optim.Adam(self._policy.parameters(), lr=config.update.learning_rate)
        self._returns = _make_returns(config)
        self._critic = (
            LinearCritic(config.critic.trace * 1000, config.critic.memory)
            if config.critic is not None
            else None
        )
        self._cpu_s = 0.0
        self._reference: Reference | None = None
        if self._checkpoint is not None:
            self._restore(self._checkpoint)

    def run(
        self,
        on_iteration: Callable[[IterationReport], None] | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> TrainingResult:
        """Train to the end, or until Ctrl-C.

        Args:
            on_iteration: called after each iteration; the first time for the policy before training.
            on_phase: told in a few words what begins.

        Raises:
            TrainingError: a loss or gradient is not finite; the last good checkpoint is kept.
            WorkerError: a worker process died.
        """
        say = on_phase or (lambda words: None)
        with atomic_path(self.out / CONFIG) as path:
            path.write_text(self.config.to_yaml(), encoding="utf-8")
        start = -1 if self._checkpoint is None else self._checkpoint.iteration
        interrupted = False
        shared = _Shared(self._settings, self._policy.config)
        with _one_thread(), MetricsLog(self.out, start) as log:
            try:
                with Workers(shared, self.processes) as workers:
                    if self._checkpoint is None:
                        self._begin(workers, log, say, on_iteration)
                    say("training")
                    self._iterate(workers, log, on_iteration)
            except KeyboardInterrupt:
                if self._checkpoint is None:
                    raise
                interrupted = True
            except NotFiniteError as error:
                done = self._checkpoint.iteration if self._checkpoint is not None else 0
                raise TrainingError(f"iteration {done + 1}: {error}; {self._kept()}") from None
            finally:
                # That of the last whole iteration, whatever the weights are now.
                if self._checkpoint is not None:
                    self._save(self._checkpoint)
        assert self._checkpoint is not None
        return self._result(self._checkpoint, interrupted)

    # Beginning and going on.

    def _begin(
        self,
        workers: Workers,
        log: MetricsLog,
        say: Callable[[str], None],
        on_iteration: Callable[[IterationReport], None] | None,
    ) -> None:
        """Everything before the first iteration: the classic schedulers, imitation, the first validation."""
        say("classic schedulers on the validation sequences")
        rows = _in_order(workers, _reference_row, validation_seeds(self.config))
        table = np.array([row for row, _ in rows])
        self._cpu_s += sum(cpu_s for _, cpu_s in rows)
        self._reference = Reference(table[:, 0], table[:, 1:])
        if self.config.imitation is not None:
            say(f"imitation of {self.config.imitation.scheduler}")
            self._imitate()
        self._validate(workers, {"iteration": 0.0}, log, on_iteration)

    def _restore(self, checkpoint: Checkpoint) -> None:
        old, new = checkpoint.config.model_dump(mode="json"), self.config.model_dump(mode="json")
        if place := _difference(old, new):
            raise TrainingError(
                f"{self.out / CHECKPOINT}: is of a run with another {place}; only "
                f"{' and '.join(MAY_CHANGE)} may change"
            )
        if checkpoint.iteration > self.config.iterations:
            raise TrainingError(
                f"{self.out / CHECKPOINT}: {checkpoint.iteration} iterations are over, more than the "
                f"{self.config.iterations} asked for"
            )
        checkpoint.config = self.config
        self._policy.load_state_dict(checkpoint.policy)
        self._optimiser.load_state_dict(checkpoint.optimiser)
        if isinstance(self._returns, DifferentialReturns):
            self._returns.recent.extend((reward, time) for reward, time in checkpoint.window.tolist())
        if self._critic is not None:
            self._critic.moments = checkpoint.critic.numpy().copy()
        table = checkpoint.reference.numpy()
        self._reference = Reference(table[:, 0], table[:, 1:])
        self._cpu_s = checkpoint.cpu_s

    def _imitate(self) -> None:
        """Learn the choices of a classic scheduler."""
        imitation = self.config.imitation
        assert imitation is not None
        begun = time.process_time()
        specs = [EpisodeSpec(self._settings.sequence(seed)) for seed in imitation_seeds(self.config)]
        scheduler = make_scheduler(imitation.scheduler)
        samples = roll_out_scheduler(scheduler, self._policy, self._settings.cluster, specs)
        optimiser = torch.optim.Adam(self._policy.parameters(), lr=imitation.learning_rate)
        for _ in imitate(
            self._policy,
            optimiser,
            samples,
            imitation_shuffling(self.config),
            entropy_weight=imitation.entropy,
            max_gradient_norm=self.config.update.max_gradient_norm,
            epochs=imitation.epochs,
            minibatch=imitation.minibatch,
        ):
            pass
        self._cpu_s += time.process_time() - begun

    # An iteration.

    def _iterate(
        self,
        workers: Workers,
        log: MetricsLog,
        on_iteration: Callable[[IterationReport], None] | None,
    ) -> None:
        assert self._checkpoint is not None
        config = self.config
        for iteration in range(self._checkpoint.iteration, config.iterations):
            metrics = self._learn(workers, iteration)
            done = iteration + 1
            metrics["iteration"] = float(done)
            if done % config.validation.every == 0 or done == config.iterations:
                self._validate(workers, metrics, log, on_iteration)
            else:
                self._finish(metrics, log, on_iteration, self._checkpoint)
            if done % config.checkpoint_every == 0:
                self._save(self._checkpoint)

    def _learn(self, workers: Workers, iteration: int) -> dict[str, float]:
        """Run an iteration's episodes and update the policy; what was measured."""
        config, progress = self.config, iteration / self.config.iterations
        groups = plan_iteration(config, iteration)
        samples, rollout_s = self._episodes(workers, [plan for group in groups for plan in group])
        begun = time.process_time()
        advantage, returns = self._advantages(samples, groups)
        spread = float(advantage.std()) if len(samples) else math.nan
        if config.update.normalise == "std" and len(samples):
            advantage = (advantage - advantage.mean()) / (spread + TINY)
        rate, entropy_weight = _learning_rate(config, progress), _entropy_weight(config, progress)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        report = self._update(samples, advantage, entropy_weight, iteration)
        update_s = time.process_time() - begun
        self._cpu_s += rollout_s + update_s
        completed = samples.mean_jct_ms[samples.num_completed > 0]
        metrics = {
            "jct_s": float(completed.mean()) / 1000 if completed.size else math.nan,
            "return": returns,
            "advantage_std": spread,
            "learning_rate": rate,
            "entropy_weight": entropy_weight,
            "samples": float(len(samples)),
            "decisions": float(samples.num_decisions.sum()),
            "completed_jobs": float(samples.num_completed.sum()),
            "rollout_cpu_s": rollout_s,
            "update_cpu_s": update_s,
            "rollout_ms_per_decision": 1000 * rollout_s / max(1, int(samples.num_decisions.sum())),
        }
        if config.curriculum is not None:
            metrics["mean_end_s"] = mean_end_ms(config.curriculum, progress) / 1000
        if report is not None:
            metrics |= {name: float(value) for name, value in vars(report).items()}
            if config.update.algorithm != "ppo":
                del metrics["kl"], metrics["clipped"]
        return metrics

    def _episodes(self, workers: Workers, plans: Sequence[EpisodePlan]) -> tuple[Trajectories, float]:
        """Run episodes, in all processes; and the CPU time that it took, s."""
        weights = _to_numpy(self._policy)
        parts = [part.tolist() for part in np.array_split(np.arange(len(plans)), self.processes) if part.size]
        results = _in_order(
            workers, _roll_out, [(weights, [plans[place] for place in part]) for part in parts]
        )
        return Trajectories.concatenate([part for part, _ in results]), sum(cpu_s for _, cpu_s in results)

    def _advantages(
        self, samples: Trajectories, groups: Sequence[Sequence[EpisodePlan]]
    ) -> tuple[NDArray[np.float64], float]:
        """What each decision earned more than was expected, float64 [n]; and the mean sum of rewards."""
        episodes = range(samples.num_episodes)
        rewards = [samples.reward[samples.samples(episode)] for episode in episodes]
        times = [samples.time_ms[samples.samples(episode)] for episode in episodes]
        if isinstance(self._returns, DifferentialReturns):
            for episode in episodes:
                self._returns.observe(rewards[episode], times[episode], float(samples.end_ms[episode]))
        curves: list[Curve] = []
        for episode in episodes:
            end_ms = float(samples.end_ms[episode])
            beyond = self._beyond(samples, episode)
            curves.append(
                (times[episode], self._returns(rewards[episode], times[episode], end_ms, beyond), end_ms)
            )
        if self._critic is not None:
            self._critic.observe(samples.load, np.concatenate([returns for _, returns, _ in curves]))
            curves = [self._judged(samples, episode) for episode in episodes]
        advantages = []
        for group in groups:
            own = [curves[plan.episode] for plan in group]
            expected = self._expected(group, own)
            advantages += [
                returns - baseline for (_, returns, _), baseline in zip(own, expected, strict=True)
            ]
        total = float(np.mean([reward.sum() for reward in rewards]))
        return np.concatenate(advantages), total

    def _beyond(self, samples: Trajectories, episode: int) -> float:
        """What would have followed, had the episode not been cut off; unknown, so 0, without a critic."""
        return 0.0 if self._critic is None else float(self._critic.expect(samples.end_load[episode]))

    def _judged(self, samples: Trajectories, episode: int) -> Curve:
        """What the critic thinks of an episode; a baseline takes from it what its sequence does to all."""
        assert self._critic is not None
        own, end_ms = samples.samples(episode), float(samples.end_ms[episode])
        times = samples.time_ms[own]
        return (
            times,
            self._critic.advantages(
                self._returns,
                samples.load[own],
                samples.reward[own],
                times,
                end_ms,
                self._beyond(samples, episode),
            ),
            end_ms,
        )

    def _expected(self, group: Sequence[EpisodePlan], curves: list[Curve]) -> list[NDArray[np.float64]]:
        """The baseline of the episodes of a group."""
        baseline = self.config.baseline
        if baseline.kind == "sequence":
            return SequenceBaseline()(curves)
        if baseline.kind == "none":
            return NoBaseline()(curves)
        specs = episode_specs(self._settings, group)
        different = {spec.sequence.seed: spec for spec in specs}
        known: dict[int, Curve] = {}
        for seed, spec in different.items():
            run = roll_out_scheduler(
                make_scheduler(baseline.scheduler, seed), self._policy, self._settings.cluster, [spec]
            )
            end_ms = float(run.end_ms[0])
            known[seed] = (
                self._judged(run, 0)
                if self._critic is not None
                else (run.time_ms, self._returns(run.reward, run.time_ms, end_ms), end_ms)
            )
        return [
            curve_baseline([curve], known[spec.sequence.seed])[0]
            for curve, spec in zip(curves, specs, strict=True)
        ]

    def _update(
        self, samples: Trajectories, advantage: NDArray[np.float64], entropy_weight: float, iteration: int
    ) -> UpdateReport | None:
        """Follow the advantages; nothing if there was nothing to choose."""
        if not len(samples):
            return None
        update = self.config.update
        if update.algorithm == "reinforce":
            return reinforce(
                self._policy,
                self._optimiser,
                samples,
                advantage,
                entropy_weight=entropy_weight,
                max_gradient_norm=update.max_gradient_norm,
                chunk=CHUNK,
            )
        return ppo(
            self._policy,
            self._optimiser,
            samples,
            advantage,
            shuffling(self.config, iteration),
            entropy_weight=entropy_weight,
            max_gradient_norm=update.max_gradient_norm,
            clip=update.clip,
            epochs=update.epochs,
            minibatches=update.minibatches,
            max_kl=update.max_kl,
        )

    # After an iteration.

    def _validate(
        self,
        workers: Workers,
        metrics: dict[str, float],
        log: MetricsLog,
        on_iteration: Callable[[IterationReport], None] | None,
    ) -> None:
        """Judge the policy, keep it if it is the best, and finish the iteration."""
        assert self._reference is not None
        weights = _to_numpy(self._policy)
        seeds = validation_seeds(self.config)
        parts = [part.tolist() for part in np.array_split(np.array(seeds), self.processes) if part.size]
        results = _in_order(workers, _judge, [(weights, part) for part in parts])
        outcome = Outcome(*np.concatenate([np.array(part) for part, _ in results], axis=1))
        self._cpu_s += sum(cpu_s for _, cpu_s in results)
        objective = outcome.objective(self._settings)
        improvement = self._reference.improvement(objective)
        metrics["validation_jct_s"] = float(outcome.jct_ms.mean()) / 1000
        metrics["validation_makespan_s"] = float(outcome.makespan_ms.mean()) / 1000
        metrics["improvement"] = improvement
        old = self._checkpoint
        iteration = int(metrics["iteration"])
        best = old
        if old is None or improvement > old.best_improvement:
            best = Checkpoint(
                config=self.config,
                iteration=iteration,
                policy={},
                optimiser={},
                reference=torch.from_numpy(np.column_stack([self._reference.fair, self._reference.sweep])),
                best_policy=_state(self._policy),
                best_iteration=iteration,
                best_outcome=torch.from_numpy(np.array(outcome)),
                best_improvement=improvement,
                window=torch.zeros(0, 2),
                critic=torch.zeros(NUM_SUMS, NUM_SUMS + 1),
                curve=old.curve if old is not None else [],
            )
        assert best is not None
        row = [float(iteration), float(objective.mean()) / 1000, improvement]
        best = replace(best, curve=[*best.curve, row])
        self._finish(metrics, log, on_iteration, best)
        if best.best_iteration == iteration:
            self._save(self._checkpoint)

    def _finish(
        self,
        metrics: dict[str, float],
        log: MetricsLog,
        on_iteration: Callable[[IterationReport], None] | None,
        best: Checkpoint,
    ) -> None:
        """An iteration is over: from here on, it is what a run goes on from."""
        metrics["best_improvement"] = best.best_improvement
        metrics["cpu_s"] = self._cpu_s
        log.write({"iteration": metrics["iteration"], **metrics})
        recent = self._returns.recent if isinstance(self._returns, DifferentialReturns) else ()
        moments = LinearCritic(math.inf).moments if self._critic is None else self._critic.moments
        self._checkpoint = replace(
            best,
            iteration=int(metrics["iteration"]),
            policy=_state(self._policy),
            optimiser=_optimiser_state(self._optimiser),
            window=torch.tensor(list(recent), dtype=torch.float64).reshape(-1, 2),
            critic=torch.from_numpy(moments.copy()),
            cpu_s=self._cpu_s,
        )
        if on_iteration is not None:
            report = IterationReport(
                self._checkpoint.iteration, self.config.iterations, metrics, best.best_improvement
            )
            on_iteration(report)

    def _save(self, checkpoint: Checkpoint | None) -> None:
        """Write the checkpoint and the best policy."""
        assert checkpoint is not None
        save_checkpoint(self.out / CHECKPOINT, checkpoint)
        best = Policy(self._policy.config)
        best.load_state_dict(checkpoint.best_policy)
        save_policy(self.out / POLICY, best, self._about(checkpoint))

    def _about(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What the policy file says of itself."""
        return {
            "command": self.command,
            "seed": self.config.seed,
            "config": self.config.model_dump(mode="json"),
            "iteration": checkpoint.best_iteration,
            "iterations_trained": checkpoint.iteration,
            "training_cpu_s": round(checkpoint.cpu_s, 1),
            "validation": {
                "objective": f"mean {self.config.cluster.reward}, s",
                "sequences": self.config.validation.sequences,
                "improvement_over_tuned_weighted_fair": checkpoint.best_improvement,
                "results": {
                    name: float(values.mean()) / 1000 for name, values in self._compared(checkpoint).items()
                },
            },
            "curve": {"columns": ["iteration", "validation, s", "improvement"], "rows": checkpoint.curve},
        }

    def _compared(self, checkpoint: Checkpoint) -> dict[str, NDArray[np.float64]]:
        assert self._reference is not None
        outcome = Outcome(*checkpoint.best_outcome.numpy())
        return {**self._reference.results(), "decima": outcome.objective(self._settings)}

    def _kept(self) -> str:
        if self._checkpoint is None:
            return "nothing was learned yet"
        return f"kept is iteration {self._checkpoint.iteration} in {self.out / CHECKPOINT}"

    def _result(self, checkpoint: Checkpoint, interrupted: bool) -> TrainingResult:
        return TrainingResult(
            config=self.config,
            iteration=checkpoint.iteration,
            policy_file=self.out / POLICY,
            best_iteration=checkpoint.best_iteration,
            improvement=checkpoint.best_improvement,
            results=self._compared(checkpoint),
            interrupted=interrupted,
            cpu_s=checkpoint.cpu_s,
        )


# What other processes do.


def _roll_out(
    shared: _Shared, work: tuple[dict[str, NDArray[np.float32]], list[EpisodePlan]]
) -> tuple[Trajectories, float]:
    begun = time.process_time()
    weights, plans = work
    specs = episode_specs(shared.settings, plans)
    result = roll_out(_from_numpy(shared.policy, weights), shared.settings.cluster, specs)
    return result, time.process_time() - begun


def _judge(shared: _Shared, work: tuple[dict[str, NDArray[np.float32]], list[int]]) -> tuple[Outcome, float]:
    begun = time.process_time()
    weights, seeds = work
    result = judge(shared.settings, _from_numpy(shared.policy, weights), seeds)
    return result, time.process_time() - begun


def _reference_row(shared: _Shared, seed: int) -> tuple[NDArray[np.float64], float]:
    begun = time.process_time()
    return reference_row(shared.settings, seed), time.process_time() - begun


def _numbered(shared: _Shared, work: tuple[Any, int, Any]) -> tuple[int, Any]:
    function, number, item = work
    return number, function(shared, item)


def _in_order(workers: Workers, function: Callable[[_Shared, Any], Any], items: Sequence[Any]) -> list[Any]:
    """Results in the order of the items."""
    work = [(function, number, item) for number, item in enumerate(items)]
    return [result for _, result in sorted(workers.map(_numbered, work), key=lambda pair: pair[0])]


# Small things.


@contextmanager
def _one_thread() -> Iterator[None]:
    """Networks this small gain nothing from threads, and sums keep their order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _make_returns(config: TrainingConfig) -> Returns:
    returns = config.returns
    if returns.kind == "discounted":
        return DiscountedReturns(returns.horizon * 1000)
    return DifferentialReturns(returns.window) if returns.kind == "differential" else TotalReturns()


def _learning_rate(config: TrainingConfig, progress: float) -> float:
    update = config.update
    return update.learning_rate + (update.final_learning_rate - update.learning_rate) * progress


def _entropy_weight(config: TrainingConfig, progress: float) -> float:
    update = config.update
    decayed = min(1.0, progress / update.entropy_decay)
    return update.entropy_start + (update.entropy_end - update.entropy_start) * decayed


def _difference(old: dict[str, Any], new: dict[str, Any], path: str = "") -> str:
    """The first key, dotted, that is not the same in both; empty if there is none."""
    for name in old.keys() | new.keys():
        key = f"{path}{name}"
        if key in MAY_CHANGE or old.get(name) == new.get(name):
            continue
        if isinstance(old.get(name), dict) and isinstance(new.get(name), dict):
            return _difference(old[name], new[name], f"{key}.")
        return key
    return ""


def _state(policy: Policy) -> dict[str, torch.Tensor]:
    """A copy of the weights, on the CPU."""
    return {name: weight.detach().cpu().clone() for name, weight in policy.state_dict().items()}


def _optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """A copy of what an optimiser knows, on the CPU."""
    state = optimiser.state_dict()
    return {
        "state": {
            number: {name: value.detach().cpu().clone() for name, value in each.items()}
            for number, each in state["state"].items()
        },
        "param_groups": [dict(group) for group in state["param_groups"]],
    }


def _to_numpy(policy: Policy) -> dict[str, NDArray[np.float32]]:
    return {name: weight.numpy() for name, weight in _state(policy).items()}


def _from_numpy(config: PolicyConfig, weights: Mapping[str, NDArray[np.float32]]) -> Policy:
    policy = Policy(config)
    policy.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    return policy
