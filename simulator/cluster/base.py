"""Interface of a simulated cluster, common to both engines: observe, decide, step to the next scheduling event."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig, ConfigError
from simulator.cluster.observation import CLASS, Decision, Observation
from workloads.arrivals import JobSequence
from workloads.errors import SchedulingError, check_instance

if TYPE_CHECKING:
    import simpy

    from simulator.cluster.estimates import Estimate
    from simulator.cluster.record import EpisodeRecord
    from simulator.cluster.reward import RewardMeter
    from workloads.job import JobProfile

__all__ = ["BaseCluster", "SchedulingError"]

#: Losses per executor after which the episode ends with an error, if no job has arrived or ended meanwhile.
MOST_LOSSES = 1000


class BaseCluster(ABC):
    """One episode: a cluster that runs a sequence of jobs and asks the caller for decisions.

    Call ``observe`` and ``decide`` alternately until ``done``, as ``run_episode`` does. ``reward`` after a decision is
    its reward.

    Raises:
        ConfigError: no executor class can run some stage.
    """

    #: SimPy environment, in which you can run processes of your own.
    clock: simpy.Environment

    #: Whether executors offered by a job stay with the job's next stages, in the order of ``Observation.next_stage``,
    #: as long as these can use them. The caller sets it; the cluster then decides on the caller's behalf.
    keeps_executors = False

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        self.config = check_instance(config, ClusterConfig, "config", ConfigError)
        self.sequence = check_instance(sequence, JobSequence, "sequence", ConfigError)
        self._known = self.sequence  # as schedulers see it
        if not all(profile.means_are_known for profile in set(self.sequence.profiles)):
            from simulator.cluster.known import known_sequence  # estimates each job alone

            self._known = known_sequence(self.sequence, self.config)
        # With exact estimates, the distribution of the workload must not depend on future jobs.
        self._prior = self.sequence.prior if self.config.knowledge.is_exact else self._known.work_prior
        self._deadline_ms = np.full(len(self.sequence), np.inf)
        if self.sequence.attributes:
            from simulator.cluster.deadlines import deadlines_ms

            self._deadline_ms = deadlines_ms(self.sequence, self.config)
        #: Estimates of each job; empty if schedulers know the exact values.
        self._estimates: list[Estimate] = []
        if not config.knowledge.is_exact:
            from simulator.cluster.estimates import draw_estimates

            self._estimates = draw_estimates(self._known, config.knowledge)
        self._last_call = False
        self._done = False
        self._num_decisions = 0
        self._observation: Observation | None = None
        self._classes = np.array(
            [
                (executor_class.count, 0, executor_class.cpu, executor_class.memory)
                for executor_class in config.executor_classes
            ],
            dtype=CLASS,
        )
        self._profiles: tuple[JobProfile, ...] = ()  # profiles of the live jobs, in order of arrival
        self._has_end = math.isfinite(config.max_time_ms) and config.semantics.honour_max_time
        self._capacity, self._num_capacities = config.num_executors, len(config.faults.capacity)
        self._outages: frozenset[Any] = frozenset()  # executors that are lost
        self._num_losses = 0  # lost executors since a job arrived or ended
        self._num_waits = 0  # changes of the signal that all executors idled for, since the last commitment
        self._changes: list[tuple[int, float, bool]] = []  # executors, times in ms, whether they joined
        self._meter: RewardMeter | None = None  # made for the first reward
        #: Changes of the signal and of executors that the meter has not counted: number of arrivals and ends of jobs
        #: before, time, ms, total idle time of executors until then, ms, and executors from then on.
        self._settlements: list[tuple[int, float, float, int]] = []

    @property
    def now_ms(self) -> float:
        """Current time, ms."""
        return float(self.clock.now)

    @property
    def estimates(self) -> Sequence[Estimate]:
        """Estimates of all jobs at their arrival; empty if schedulers know the exact values."""
        return self._estimates

    @property
    def done(self) -> bool:
        """Whether the episode is over: all jobs complete and all executors arrived, or ``max_time_ms`` passed."""
        return self._done

    @property
    @abstractmethod
    def offered(self) -> int:
        """Number of executors still to be committed in the open round; 0 if no round is open."""

    @property
    def last_call(self) -> bool:
        """Whether no event is pending, so that the episode stalls if the offered executors stay idle.

        With a signal, the cluster instead waits for changes of the signal, for at most one period.
        """
        return self._last_call

    @property
    @abstractmethod
    def acting(self) -> list[int]:
        """Numbers of the executors that carry out commitments when the open round closes, in order."""

    @property
    @abstractmethod
    def source(self) -> tuple[int | None, int | None]:
        """Source of the offered executors: (job, its stage); no stage for a pool, no job for the common pool."""

    @property
    @abstractmethod
    def completion_ms(self) -> NDArray[np.float64]:
        """Completion time of each job of the sequence, float64 [jobs], ms; NaN if the job is not complete."""

    @abstractmethod
    def record(self) -> EpisodeRecord:
        """Return the record of the episode so far.

        Raises:
            SchedulingError: the cluster was forked without the log.
        """

    @abstractmethod
    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Self:
        """Return an independent cluster in the same state, for lookahead.

        With the same decisions both have the same future, bit for bit, unless ``futures`` is given. Then tasks that
        have not started get the noise of a sequence with that seed, and durations of running tasks are redrawn, given
        how long they have run. Where estimates have errors (``ClusterConfig.knowledge``), true mean task times are
        redrawn, too: for each job from the posterior given its tasks so far, so that the estimates are unbiased in the
        fork. The fork has the true arrivals and the true numbers of tasks. A task that has run longer than all redrawn
        durations of its stage keeps its true end. Forks with the same ``futures`` have the same noise and task times
        for all decisions (common random numbers).

        Args:
            futures: seed of the task noise after the fork; by default the noise of the original cluster.
            arrivals: whether jobs that have not arrived will do so at their true times; else no job arrives.
            log: keep the log before the fork for ``record``, which makes the fork slower.

        Raises:
            SchedulingError: processes of your own wait on the cluster's clock.
            WorkloadError: ``futures`` is not a whole number of at least 0.
        """

    def observe(self) -> Observation:
        """Return the observation for the next decision; repeated calls return the same object until the decision.

        Raises:
            SchedulingError: the episode is over.
        """
        if self._done:
            raise SchedulingError("the episode is over: there is nothing to decide")
        return self.snapshot()

    def snapshot(self) -> Observation:
        """Return the current observation, also while no executors are offered and after the end of the episode."""
        if self._observation is not None:
            return self._observation
        observation = self._build_observation()
        if self.offered:  # the state does not change until the decision
            self._observation = observation
        return observation

    def decide(self, decision: Decision | None) -> None:
        """Carry out a decision on the current observation; ``None`` leaves the offered executors idle.

        Commits ``min(limit - executors that the job holds without the offered ones, offered, unclaimed tasks)``.

        Raises:
            SchedulingError: the stage is not schedulable or the limit leaves nothing to commit; nothing changes.
        """
        if decision is None:
            self._decided(None, self.offered)
            return
        observation = self.observe()
        try:
            row, limit = decision
        except (TypeError, ValueError):
            raise SchedulingError(
                f"decide must return a Decision of a stage and a limit, or None, got {decision!r:.60}"
            ) from None
        row, limit = _whole_numbers(row, limit)
        if not 0 <= row < len(observation.stages):
            raise SchedulingError(f"there is no stage {row}: the observation has {len(observation.stages)}")
        job = int(observation.stage_job[row])
        held = observation.held(job)
        if limit <= held:
            raise SchedulingError(
                f"the limit must exceed the {held} executors that the job holds, got {limit}"
            )
        if not observation.stages["schedulable"][row]:
            raise SchedulingError(f"stage {row} is not schedulable")
        stage = row - int(observation.job_first_stage[job])
        self._decided((int(observation.job_id[job]), stage), min(limit - held, self.offered))

    def _decided(self, target: tuple[int, int] | None, count: int) -> None:
        """Carry out a valid decision; time passes if it closes the round."""
        if self._done:
            raise SchedulingError("the episode is over: there is nothing to decide")
        self._observation = None
        self._last_call &= target is None
        self._num_waits *= target is None
        self._num_decisions += 1
        self._commit(target, count)

    def reward(self) -> float:
        """Return the reward since the last call or the beginning, see ``ClusterConfig.reward``; 0 within a round."""
        meter = self._counted()
        return meter.step(self.now_ms, self._idle_ms() if meter.measures_emissions else 0.0)

    def _counted(self) -> RewardMeter:
        """Return the meter of rewards, which has counted all changes until now."""
        if self._meter is None:
            from simulator.cluster.reward import reward_meter  # most episodes with a rule need no rewards

            self._meter = reward_meter(self.config, self.sequence, self._deadline_ms)
        self._meter.follow(self)
        return self._meter

    def _settle(self) -> None:
        """Note that the signal or the number of executors changes, for rewards by emissions."""
        idle_ms, executors = self._idle_ms(), int(self._classes["executors"].sum())
        self._settlements.append((self._num_job_changes, self.now_ms, idle_ms, executors))

    def _end_of_log(self) -> dict[str, Any]:
        """Return the attributes of the record that both engines keep in the same way."""
        log = {"end_ms": self.now_ms, "num_decisions": self._num_decisions}
        if not self.config.faults.active:
            return log
        from simulator.cluster.losses import log_of_losses

        return log | log_of_losses(self)

    def _check_losses(self) -> None:
        """End the episode with a ``SchedulingError`` if executors are lost too often for live jobs to end."""
        if self._num_losses > MOST_LOSSES * self.config.num_executors and len(self._build_observation().jobs):
            self._done = True
            from simulator.cluster.losses import too_many_losses

            raise too_many_losses(self)

    def _nothing_pending(self) -> None:
        """Continue without a pending event: end the episode (also if it stalls), offer idle executors, or wait."""
        config = self.config
        offers = config.semantics.offer_idle_executors or config.faults.active or config.signal is not None
        if not self._has_live_jobs():
            self._done = True
        elif offers and not self._last_call:
            self._last_call = True
            self._offer_free()
        elif self._has_end or self._waits_for_executors() or self._waits_for_signal():
            self._step()
        else:
            self._done = True
            from simulator.cluster.losses import standstill

            raise standstill(self)

    def _waits_for_executors(self) -> bool:
        """Return whether executors may return, and no stage could use an idle one."""
        returns = bool(self._outages) and math.isfinite(self.config.faults.executor_return_ms)
        return (returns or self._num_capacities > 0) and not self._is_wanted()

    def _waits_for_signal(self) -> bool:
        """Return whether all executors may idle until the signal changes, which they may for one period of it."""
        self._num_waits += 1
        return self.config.signal is not None and self._num_waits <= 1 + len(self.config.signal.value)

    def _has_live_jobs(self) -> bool:
        """Return whether some job has arrived and not ended."""
        return bool(self._profiles)

    @abstractmethod
    def _step(self) -> None:
        """Process the next event."""

    @abstractmethod
    def _offer_free(self) -> None:
        """Offer all free executors that some stage could use; no round is open."""

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Return whether some stage could use an executor that is in a pool; no round is open."""

    @property
    @abstractmethod
    def _num_job_changes(self) -> int:
        """Number of arrivals and ends of jobs until now."""

    @abstractmethod
    def _job_changes(self, first: int, end: int) -> list[tuple[int, float, float]]:
        """Return some arrivals and ends of jobs, in order.

        Returns:
            The job that arrives, or -1 - job that ends; time, ms; total time of executors in pools until then, ms.
        """

    @abstractmethod
    def _idle_ms(self) -> float:
        """Return the total time of executors in pools since the beginning of the episode, ms."""

    @abstractmethod
    def _build_observation(self) -> Observation:
        """Return a new observation."""

    @abstractmethod
    def _commit(self, target: tuple[int, int] | None, count: int) -> None:
        """Commit offered executors to a schedulable (job, stage), or leave them idle (None)."""


def _whole_numbers(*values: int) -> tuple[int, ...]:
    """Return the numbers of a decision as ``int``; raise if one is not a whole number."""
    try:
        if any(isinstance(value, bool) for value in values):
            raise TypeError
        return tuple(index(value) for value in values)
    except TypeError:
        text = ", ".join(str(value) for value in values)
        raise SchedulingError(
            f"a decision is a stage and a limit, all of them whole numbers, got {text}"
        ) from None
