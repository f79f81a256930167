"""Training on clusters: an iteration of reinforcement learning from top to bottom, and ``train_policy``.

``ClusterTraining.learn`` rolls out the planned episodes, computes advantages and updates the policy. The loop around
``learn``, with validation and checkpoints, is ``decima.learning.loop``.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from decima.evaluation.variants import HINDSIGHT
from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.learning.cluster.ppo import PPO
from decima.learning.cluster.reinforce import Reinforce, sequence_gradients, signal_of
from decima.learning.cluster.rollout import (
    Shared,
    Trajectories,
    plan_iteration,
    roll_out_plans,
)
from decima.learning.cluster.validation import (
    evaluate_weights,
    reference_results,
    reference_row,
    scheduler_ms,
)
from decima.learning.display import training_progress
from decima.learning.loop import CONFIG, TrainingLoop, check_resumable
from decima.learning.metrics import (
    CLUSTER_METRICS,
    IterationReport,
    TrainingResult,
    Validation,
    objective_title,
    validation_metric,
)
from decima.policy.distribution import summarise
from decima.policy.file_format import TRAINED_ON
from decima.policy.policy import Policy
from decima.policy.save import save_policy
from decima.policy.scheduler import Actor
from decima.settings import (
    CLONING,
    SHUFFLE,
    VALIDATION,
    Progress,
    TrainingError,
    check_overrides,
)
from workloads.arrivals import RandomStream, random_stream
from workloads.custom import is_custom
from workloads.errors import PolicyFileError

if TYPE_CHECKING:
    from decima.learning.cluster.sections import UpdateSection
    from decima.policy.few_jobs import ManyJobs

__all__ = ["ClusterTraining", "train_policy"]

Item = TypeVar("Item")

#: Number of sequences from which the training distribution is estimated: without, and with ``settings``.
MEASURED, MEASURED_SETTINGS = 100, 300
#: Maximum number of validation sequences in a work item; progress is reported after each work item.
FEW = 4
#: Maximum number of episodes in which a custom network decides in lock step.
TOGETHER = 10
#: Added to the standard deviation in the normalisation of advantages.
TINY = 1e-9
HEURISTICS = "heuristics on the validation sequences"


class ClusterTraining(TrainingLoop[TrainingConfig]):
    """Training run on clusters, see ``TrainingLoop``.

    Results are objectives on each validation sequence, [n], ms, see ``decima.evaluation.sweeps.objective_ms``.

    Attributes:
        average: exponential moving average of the policy's weights, which is less noisy; it is validated and saved.
    """

    policy: Policy
    average: Policy
    advantages: Advantages

    METRICS: Mapping[str, str] = CLUSTER_METRICS
    NAME: str = "decima"

    def _build(self) -> None:
        config = self.config
        self._conditions = config.conditions()
        self.policy = Policy(config.policy.build(), seed=config.seed).to(self._device)
        self.average = copy.deepcopy(self.policy)
        self._many_jobs: ManyJobs | None = None
        if config.few_jobs is not None:
            from decima.policy.few_jobs import ManyJobs
            from decima.policy.files import load_actor

            assert config.start is not None
            start = load_actor(config.start)
            self._many_jobs = ManyJobs(config.few_jobs, Actor(start.config, start.arrays))
        self.advantages = Advantages(config, self._conditions)
        self._algorithm = _make_algorithm(config.update)
        self._optimiser: torch.optim.Optimizer = torch.optim.Adam(
            self.policy.parameters(), lr=config.update.learning_rate, fused=True
        )
        if config.search is not None:
            from decima.learning.cluster.search import make_optimiser

            self._optimiser = make_optimiser(self.policy)
        self.networks = torch.nn.ModuleDict({"policy": self.policy, "average": self.average})
        self.optimisers, self.kept = {"policy": self._optimiser}, self.average

    # An iteration.

    def learn(self, iteration: int) -> dict[str, float]:
        """Run the episodes of an iteration, compute advantages, and update the policy; see ``TrainingLoop.learn``."""
        config, update, progress = self.config, self.config.update, iteration / self.config.iterations
        if config.search is not None:
            from decima.learning.cluster.search import improve

            searched = improve(self.policy, self._optimiser, config, iteration, self._map)
            self._move_average()
            return searched
        begun_s = self.cpu_s
        groups = plan_iteration(config, iteration)
        plans = [plan for group in groups for plan in group]
        shares = self._episode_shares(plans)
        samples = Trajectories.concatenate(self._map(partial(roll_out_plans, self.policy.arrays), shares))
        rolled_out_s = self.cpu_s

        advantage = self.advantages(self.policy, samples, groups)
        spread = float(advantage.std()) if len(samples) else math.nan
        ends = samples.first[np.cumsum([len(group) for group in groups])]
        sequences = [slice(*bounds) for bounds in itertools.pairwise([0, *ends.tolist()])]
        if update.normalise == "std":
            advantage = _standardised(advantage)
        elif update.normalise == "sequence":
            advantage = np.concatenate([_standardised(advantage[sequence]) for sequence in sequences])
        measured: dict[str, float] = {}
        if len(sequences) > 1 and len(samples) and self._is_validated(iteration + 1):
            gradients = sequence_gradients(self.policy, samples, advantage, sequences)
            measured["gradient_signal"] = signal_of(gradients)

        self._optimiser.param_groups[0]["lr"] = update.learning_rate_at(progress)
        updated: dict[str, float] = {}
        if len(samples):
            updated = self._algorithm.update(
                self.policy,
                self._optimiser,
                samples,
                advantage,
                random=random_stream(config.seed, RandomStream.TRAINING, SHUFFLE, iteration),
                entropy_weight=update.entropy_weight_at(progress),
                max_gradient_norm=update.max_gradient_norm,
            )
            self._check_updated(updated)
        self._move_average()

        completed = samples.mean_jct_ms[samples.num_completed > 0]
        num_decisions = int(samples.num_decisions.sum())
        rollout_s = rolled_out_s - begun_s
        metrics = {
            "mean_jct_s": float(completed.mean()) / 1000 if completed.size else math.nan,
            "return": float(samples.reward.sum()) / samples.num_episodes,
            "advantage_std": spread,
            **measured,
            "learning_rate": update.learning_rate_at(progress),
            "entropy_weight": update.entropy_weight_at(progress),
            "samples": len(samples),
            "decisions": num_decisions,
            "completed_jobs": int(samples.num_completed.sum()),
            "rollout_cpu_s": rollout_s,
            "update_cpu_s": self.cpu_s - rolled_out_s,
            "rollout_ms_per_decision": 1000 * rollout_s / max(1, num_decisions),
        }
        if config.curriculum is not None:
            metrics["mean_end_s"] = config.curriculum.mean_end_s(progress)
        return metrics | updated

    def _move_average(self) -> None:
        with torch.no_grad():
            for mean, weight in zip(self.average.parameters(), self.policy.parameters(), strict=True):
                mean.lerp_(weight, 1 - self.config.update.ema_decay)

    def _check_updated(self, updated: object) -> None:
        """Raise if a metric of a custom algorithm is not a number or has an unknown name."""
        expected = "metrics by name, such as loss, entropy, gradient_norm and steps"
        if not isinstance(updated, dict):
            raise self._algorithm.wrong("update.algorithm", f"{expected}, returned {type(updated).__name__}")
        for name, value in updated.items():
            if name not in self.METRICS or not isinstance(value, int | float):
                raise self._algorithm.wrong("update.algorithm", f"{expected}, returned {name}: {value!r:.60}")

    # Before the first iteration.

    def _start_from(self, start: str) -> Mapping[str, Any]:
        from decima.policy.about import read_about
        from decima.policy.files import load_actor, policy_path

        path = policy_path(start)
        policy = load_actor(path)
        if policy.few_jobs is not None:
            if self.config.few_jobs is None:
                raise PolicyFileError(f"{path}: has a second network for few jobs: expected few_jobs")
            policy = policy.few_jobs.policy
        # Waiting is a choice among the same limits, so the weights of a policy without it fit, too.
        here, there = (network.config.model_dump(exclude={"wait"}) for network in (self.policy, policy))
        if other := [name for name in here if here[name] != there[name]]:
            raise PolicyFileError(f"{path}: a policy of other settings: {', '.join(other)}")
        for network in (self.policy, self.average):
            network.take(policy.arrays)
        return read_about(start)

    def _begin(self) -> Iterator[dict[str, float]]:
        if self.config.restarts is not None:
            from decima.learning.cluster.restarts import begin

            make = partial(ClusterTraining, resume=True, device=self._device, workers=self._num_workers)
            yield from begin(self, make, self._progress)

    def _run_heuristics(self) -> dict[str, Any]:
        seeds, progress = self.config.validation_seeds, partial(self._progress, HEURISTICS)
        if self.config.settings is None:
            return reference_results(np.array(self._map(reference_row, seeds, progress)))
        from decima.learning.cluster.cells import references

        names = references(self.config)
        work = [(name, seed) for name in names for seed in seeds]
        table = np.array(self._map(scheduler_ms, work, progress)).reshape(len(names), len(seeds))
        return dict(zip(names, table.tolist(), strict=True))

    def _clone(self, epochs_done: int) -> Iterator[dict[str, float]]:
        from decima.learning.cluster.clone import clone_epochs, split
        from decima.learning.cluster.demonstrations import record_sequence

        cloning = self.config.behaviour_cloning
        assert cloning is not None
        work = partial(record_sequence, cloning.scheduler, cloning.jobs, self.config.episodes.share)
        phase = f"episodes of {cloning.scheduler} to clone"
        seeds = self.config.cloning_seeds
        samples = Trajectories.concatenate(self._map(work, seeds, partial(self._progress, phase)))
        random = random_stream(self.config.seed, RandomStream.TRAINING, CLONING)
        # The learning rate decays linearly to a tenth.
        decay = [1 - 0.9 * epoch / max(1, cloning.epochs - 1) for epoch in range(cloning.epochs)]
        for metrics in clone_epochs(
            partial(samples.evaluate, self.policy),
            self.policy,
            self._cloning_optimiser(),
            lambda: split(random.permutation(len(samples)), cloning.minibatch) if len(samples) else [],
            [cloning.learning_rate * factor for factor in decay],
            epochs_done,
            self._progress,
            entropy_weight=cloning.entropy,
            max_gradient_norm=self.config.update.max_gradient_norm,
        ):
            self.average.load_state_dict(self.policy.state_dict())
            yield metrics

    def _episode_shares(self, episodes: Sequence[Item], most: int | None = None) -> list[list[Item]]:
        """Divide episodes among workers, at most ``most`` in a work item.

        A custom network evaluates a batch of observations of the episodes that run together. These do not depend on the
        number of workers, so that results do not either.
        """
        if self.policy.config.is_compiled:
            return _shares(episodes, self._workers.count, most)
        return _shares(episodes, 1, TOGETHER)

    # Validation.

    def _validate(self) -> Validation:
        shares = self._episode_shares(self.config.validation_seeds, FEW)
        work, progress = partial(evaluate_weights, self.average.arrays), partial(self._progress, VALIDATION)
        table = np.concatenate(self._map(work, shares, progress, map(len, shares))).T.copy()
        jct_ms, makespan_ms, objective = table
        if self.config.settings is not None:
            from decima.learning.cluster.cells import validate_cells

            return validate_cells(self.config, objective, self._reference)
        mean = float(objective.mean())
        measured = {
            "validation_mean_jct_s": float(jct_ms.mean()) / 1000,
            "validation_makespan_s": float(makespan_ms.mean()) / 1000,
        }
        if (name := validation_metric(self.config.cluster.reward)) not in measured:
            measured[name] = mean / 1000
        reference = float(np.mean(self._reference[HINDSIGHT]))
        # A reference objective such as tardiness may be 0: then the improvement is absolute, in s.
        improvement = 1 - mean / reference if reference else -mean / 1000
        return Validation(mean / 1000, reference / 1000, improvement, objective.tolist(), measured)

    # Checkpoints and the policy file.

    def _shared(self) -> Shared:
        return Shared(self._conditions, self.policy.config, self.config.seed, self._many_jobs)

    def state(self) -> dict[str, Any]:
        """See ``TrainingLoop.state``."""
        algorithm = self._algorithm.state()
        state = {**super().state(), "advantages": self.advantages.state()}
        return {**state, "algorithm": algorithm} if algorithm else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """See ``TrainingLoop.restore``."""
        super().restore(state)
        self.advantages.restore(state["advantages"])
        if "algorithm" in state:
            self._algorithm.restore(state["algorithm"])

    def _restore(self, path: Path) -> None:
        super()._restore(path)
        # A fingerprint of workload and simulator.
        work = "fair", self.config.validation_seeds[0]
        if scheduler_ms(self._shared(), work) != self._reference["fair"][0]:
            raise TrainingError(f"{path}: belongs to a run on another workload: results of fair differ")

    def _describe(self, results: Mapping[str, Any]) -> dict[str, Any]:
        validation = self.config.validation
        objective = objective_title(self.config.cluster.reward)
        described = {
            "set": f"{validation.sequences} validation sequences; times are seconds",
            "objective": objective,
            "against": "weighted fair with the best alpha of each sequence",
            "shown": [objective],
            "results": {name: {objective: fmean(values) / 1000} for name, values in results.items()},
        }
        if self.config.settings is None:
            return described
        from decima.learning.cluster.cells import describe_cells

        return described | describe_cells(self.config, self.NAME, results)

    @cached_property
    def _trained_on(self) -> dict[str, Any]:
        """Training distribution; cached, since the measurement is slow and the same at every checkpoint.

        A policy with a second network has that of the first, which decides in most states with many jobs.
        """
        if self.config.few_jobs is not None and self.config.start is not None:
            from decima.policy.about import read_about

            if (of_first := read_about(self.config.start).get(TRAINED_ON)) is not None:
                return dict(of_first)
        measured = MEASURED if self.config.settings is None else MEASURED_SETTINGS
        seeds = self.config.training_seeds[:measured]
        samples = ((self._conditions.cluster_of(seed), self._conditions.sequence(seed)) for seed in seeds)
        return summarise(samples).model_dump(mode="json", exclude_none=True)

    def _about(self) -> dict[str, Any]:
        return {TRAINED_ON: self._trained_on}

    def _write(self, path: Path, network: Policy, about: Mapping[str, Any]) -> None:
        save_policy(path, self._many_jobs.and_few(network) if self._many_jobs else network, about)


def _shares(items: Sequence[Item], count: int, most: int | None = None) -> list[list[Item]]:
    """Split items, in order, into ``count`` parts, or more parts so that no part has more than ``most`` items."""
    num_parts = count if most is None else max(count, -(-len(items) // most))
    parts = np.array_split(np.arange(len(items)), min(num_parts, len(items)))
    return [[items[index] for index in part] for part in parts]


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normalise values to mean 0 and standard deviation 1 (0 if the values are equal)."""
    return (values - values.mean()) / (values.std() + TINY) if values.size else values


def _make_algorithm(update: UpdateSection) -> Reinforce:
    if is_custom(update.algorithm):
        from decima.policy.parts import build_part

        algorithm: Reinforce = build_part(update.algorithm, Reinforce, **(update.options or {}))
        return algorithm
    if update.algorithm == "reinforce":
        return Reinforce()
    return PPO(update.clip, update.epochs, update.minibatches, update.max_kl)


def train_policy(
    config: TrainingConfig | str | Path | None,
    out: str | Path | None = None,
    *,
    workload: str | Path | Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    device: str = "cpu",
    workers: int | str = 1,
    command: str = "",
    on_iteration: Callable[[IterationReport], None] | None = None,
    on_progress: Progress | None = None,
    **settings: Any,
) -> TrainingResult[TrainingConfig]:
    """Train a policy, as ``decima train`` does.

    The folder receives ``policy.npz`` (the best policy on the validation sequences), its card, all settings, metrics
    and a checkpoint. The same settings give the same policy, bit for bit on a CPU.

    Args:
        config: settings, name of a recipe such as ``quick``, or path of a YAML file; None for the settings in the
            folder of a run to resume.
        out: folder of the run; by default a new one in the current folder, such as ``quick-policy``.
        workload: workload instead of that of ``config``: ``tpch``, ``synthetic``, a workload file, or a folder of the
            published TPC-H profiles; or a dictionary of keys of ``workload``. With ``settings`` the only source.
        overrides: texts that replace settings of ``config``, such as ``"iterations=20"``.
        resume: whether to continue from the checkpoint in the folder, which must contain a run.
        device: device of the updates, ``cpu`` or ``cuda``; episodes always run on CPUs.
        workers: workers that run episodes, see ``check_workers``; they do not change the results.
        command: command line, saved in the policy file.
        on_iteration: called for the initial policy, and after each epoch of behaviour cloning and each iteration.
        on_progress: progress callback, called with the name of the phase, the finished part and the total; by default
            progress is shown on stderr. ``decima.settings.silent`` shows nothing.
        settings: other settings of ``config`` by their keys, such as ``iterations=20``; of a section a dictionary, as
            in ``cluster={"executors": 20}``.

    Raises:
        TrainingError: the settings are malformed; or see ``TrainingLoop``.
        KeyboardInterrupt: Ctrl-C before iteration 0 is validated; later, the result has ``interrupted`` set.
        DivergedError: a loss, gradient or probability is not finite.
        WorkloadError: the workload cannot be read.
        Exception: see ``TrainingLoop``.

    Examples:
        >>> import decima
        >>> result = decima.train("quick", "my-policy", iterations=20)  # doctest: +SKIP
        >>> decima.compare("fair,decima", checkpoint=result.policy_file)  # doctest: +SKIP
    """
    check_overrides(overrides)
    if out is None:
        if resume:
            raise TrainingError("resume needs the folder of the run, out")
        out = _new_folder(
            "policy" if isinstance(config, TrainingConfig) else f"{Path(config or '').stem}-policy"
        )
    if resume:
        check_resumable(Path(out))
    if isinstance(workload, Mapping):
        settings["workload"], workload = workload, None
    if not isinstance(config, TrainingConfig):
        config = read_config(Path(out) / CONFIG if config is None else config, overrides, settings, workload)
    elif overrides or settings or workload is not None:
        raise TrainingError("workload, overrides and settings need the name of a recipe or a file as config")
    training = ClusterTraining(config, out, resume=resume, device=device, workers=workers, command=command)
    if on_progress is not None:
        return training.run(on_iteration, on_progress)
    against = "tuned weighted fair"
    if config.settings is not None:
        against = f"{config.validation.against} over the settings"
    with training_progress(against, partial(_describe, config), on_iteration, config.work()) as callbacks:
        return training.run(*callbacks)


def _describe(config: TrainingConfig, metrics: Mapping[str, float]) -> Sequence[str]:
    """Describe the metrics of an iteration, or of an epoch of behaviour cloning, as text."""
    parts = []
    if "mean_jct_s" in metrics:
        entropy = f", entropy {metrics['entropy']:.2f}" if "entropy" in metrics else ""
        parts.append(f"training JCT {metrics['mean_jct_s']:.1f} s{entropy}")
    if "validation_change_mean" in metrics:
        parts.append(f"validation change {metrics['validation_change_mean']:+.1%} on average")
    elif "improvement" in metrics:
        reward = config.cluster.reward
        objective = {"jct": "JCT", "makespan": "makespan"}.get(reward, f"cost by {reward}")
        parts.append(f"validation {objective} {metrics[validation_metric(reward)]:.1f} s")
    return parts


def _new_folder(name: str) -> Path:
    """Return the path of a folder that does not exist, with a number after its name if necessary."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in map(Path, names) if not path.exists())
