"""Discrete-event simulation of a Spark cluster: scheduling events, rounds of offers, commitments, executor moves.

A *round* opens when an executor has no task left, when a stage becomes ready, or when a job arrives: executors of one
source (a stage, the pool of a job, or the common pool) are offered to the scheduler, which commits all of them,
decision by decision, to stages or to idleness. No executor moves until the whole round is decided. Then executors carry
out the commitments of their source, oldest first, as they become free. An executor that changes jobs moves for the
moving delay, as a new JVM starts. The rules are those of the published Decima simulator; where the paper differs,
``Semantics`` decides. ``reference.py`` implements the same rules in plain SimPy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.base import BaseCluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.engine import commands as engine
from simulator.cluster.engine.events import UNPREPARED
from simulator.cluster.engine.executors import IDLE
from simulator.cluster.engine.rule import NO_RULE, CompiledRule
from simulator.cluster.engine.state import Memory, allocate, moves_table, state_of
from simulator.cluster.observation import Observation
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence, task_noise
from workloads.errors import SchedulingError

if TYPE_CHECKING:
    from simulator.cluster.engine.clock import Clock

__all__ = ["Cluster"]

#: Number of jobs whose noise is drawn at once.
_JOBS_AT_ONCE = 8


class Cluster(BaseCluster):
    """One episode on the compiled engine.

    ``cluster.clock`` is a SimPy environment, in which you can run processes of your own.

    Compiled code (``engine/events.py``) processes ends of tasks, arrivals of executors and arrivals of jobs. SimPy's
    queue has rare events: faults, changes of the signal, the end of the episode, and processes of your own. The clock
    is made for the first of these; most clusters need none.

    The mutable state is ``_memory``, the clock's queue and the lists of the log; other attributes are replaced, never
    changed in place. So a fork is a shallow copy with a memory, a queue and lists of its own.
    """

    #: Rule that decides instead of the caller, where it is not the last call; see ``run_episode``.
    rule: CompiledRule = NO_RULE

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        super().__init__(config, sequence)
        self._attach(allocate(config, self._known, self._estimates, self._deadline_ms))
        self._first_stage: list[int] = self._state.jobs["first_stage"].tolist()
        self._now_ms = 0.0
        self._clock: Clock | None = None
        self._num_shown = 0  # arrivals and ends of jobs that the profiles include
        self._has_log = True
        self._noise_seed = sequence.seed
        self._redraws_task_times = False
        self._faults = config.faults if config.faults.active else None
        self._engine_advance = engine.advance
        if self._faults:
            from simulator.cluster.engine import faults  # its own compiled events

            self._engine_advance = faults.advance
        self._lost_runs: list[NDArray[np.void]] = []
        self._keys: list[int] = []  # hash keys of the executors' outages
        self._reset()

    def _attach(self, memory: Memory) -> None:
        """Attach engine memory."""
        self._memory, self._state = memory, state_of(memory)
        names = ("num_lost", "num_rows", "num_changes", "offered", "offered_class")
        #: Views of single numbers, which are faster to read than fields of an array.
        self._num_lost, self._num_rows, self._num_changes, self._budget, self._class = (
            self._state.cluster[name].data for name in names
        )

    @property
    def clock(self) -> Clock:  # type: ignore[override]
        """See ``BaseCluster.clock``."""
        if self._clock is None:
            from simulator.cluster.engine.clock import Clock

            counter = self._state.cluster["next_order"].data
            self._clock = Clock(self, counter, Cluster._advance, Cluster._next_event)
        return self._clock

    @property
    def now_ms(self) -> float:
        """See ``BaseCluster.now_ms``."""
        return self._now_ms

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Cluster:
        """See ``BaseCluster.fork``."""
        from simulator.cluster.forks import fork

        return fork(self, futures, arrivals, log)

    # Observation and state.

    @property
    def offered(self) -> int:
        """See ``BaseCluster.offered``."""
        return self._budget[0]

    @property
    def acting(self) -> list[int]:
        """See ``BaseCluster.acting``."""
        following, executors = self._state.executors["next"], []
        executor = int(self._state.cluster["first_acting"][0])
        for _ in range(int(self._state.cluster["num_acting"][0])):
            executors.append(executor)
            executor = int(following[executor])
        return executors

    @property
    def source(self) -> tuple[int | None, int | None]:
        """See ``BaseCluster.source``."""
        job = int(self._state.cluster["source_job"][0])
        stage = int(self._state.executors["stage"][self._state.cluster["first_acting"][0]])
        if stage >= 0:
            return job, stage - self._first_stage[job]
        return (job if job >= 0 else None), None

    def _build_observation(self) -> Observation:
        classes, is_rescaled = self._classes.copy(), False
        if self._estimates:
            from simulator.cluster.engine.estimates import learn

            is_rescaled = learn(self._memory, self._now_ms)
        source, num_schedulable = engine.observe(self._memory, classes)
        if is_rescaled or self._num_shown != self._num_changes[0]:
            self._num_shown = self._num_changes[0]
            live = self._live()
            if self._estimates:
                scales = zip(live.tolist(), self._state.beliefs["scale"][live].tolist(), strict=True)
                self._profiles = tuple(self._estimates[job].scaled(scale) for job, scale in scales)
            else:
                self._profiles = tuple(self._known.profiles[job] for job in live.tolist())
        offered_class = self._class[0]
        first_job = offered_class * len(self._state.jobs)
        first_stage = offered_class * len(self._state.stages)
        return Observation(
            self.config,
            self._now_ms,
            self._budget[0],
            offered_class,
            source,
            num_schedulable,
            self._state.seen_jobs[first_job : first_job + len(self._profiles)],
            self._state.seen_stages[first_stage : first_stage + self._num_rows[0]],
            classes,
            self._profiles,
            self._last_call,
            self._prior,
            self.sequence.tenants,
        )

    def _live(self) -> NDArray[np.int64]:
        """Return the live jobs in order of arrival, int64 [live jobs]."""
        return self._state.live[: self._state.cluster["num_live"][0]]

    @property
    def completion_ms(self) -> NDArray[np.float64]:
        """See ``BaseCluster.completion_ms``."""
        return self._state.jobs["completion_ms"].copy()

    def record(self) -> EpisodeRecord:
        """See ``BaseCluster.record``."""
        if not self._has_log:
            raise SchedulingError("the cluster was forked without the log of its tasks: there is no record")
        self._take_lost_runs()
        moves = self._state.moves[: self._state.cluster["num_moves"][0]]
        lost = np.concatenate([self._state.lost[:0], *self._lost_runs])

        def of_runs(name: str) -> NDArray[Any]:
            tasks = self._state.tasks[name]
            return np.concatenate([tasks, lost[name]], dtype=tasks.dtype)

        return EpisodeRecord(
            self.config,
            self.sequence,
            task_start_ms=of_runs("start"),
            task_finish_ms=of_runs("finish"),
            task_executor=of_runs("executor"),
            task_wave=of_runs("wave"),
            task_parallelism=of_runs("parallelism"),
            completion_ms=self.completion_ms,
            move_executor=moves["executor"].astype(np.int32),
            move_job=self._state.stages["job"][moves["stage"]],
            move_depart_ms=moves["time"].copy(),
            lost_task=lost["task"],
            lost_outcome=lost["outcome"].astype(np.int8),
            **self._end_of_log(),
        )

    def _idle_ms(self) -> float:
        left_ms = float(self._state.cluster["idle_ms"][0])
        return left_ms + int(self._state.classes["free"].sum()) * self._now_ms

    @property
    def _num_job_changes(self) -> int:
        return self._num_changes[0]

    def _job_changes(self, first: int, end: int) -> list[tuple[int, float, float]]:
        changes: list[tuple[int, float, float]] = self._state.changes[first:end].tolist()
        return changes

    # Rounds.

    def _commit(self, target: tuple[int, int] | None, count: int) -> None:
        stage = IDLE if target is None else self._first_stage[target[0]] + target[1]
        self._advance(engine.DECIDE, stage, count)
        self._run()

    def _run(self) -> None:
        """Advance simulated time until a round opens or the episode ends."""
        while not self._budget[0] and not self._done:
            if math.isfinite(self._next_event()[0]):
                self._step()
            else:
                self._nothing_pending()
            if self._faults:
                self._check_losses()

    def _step(self) -> None:
        if self._clock is None:
            self._advance()
        else:
            self._clock.step()

    def _is_wanted(self) -> bool:
        return bool(engine.is_wanted(self._memory))

    def _next_event(self) -> tuple[float, int]:
        """Return time, ms, and insertion number of the next compiled event; infinite time if none is pending."""
        event: tuple[float, int] = engine.next_event(self._memory)
        return event

    def _has_live_jobs(self) -> bool:
        return bool(self._state.cluster["num_live"][0])

    def _offer_free(self) -> None:
        self._advance(engine.OFFER_FREE)

    def _advance(self, action: int = engine.GO_ON, target: int = IDLE, count: int = 0) -> bool:
        """Carry out an action, and process compiled events until a round opens, at most up to SimPy's next event.

        For the arguments see ``engine/commands.py``. Returns whether a round is open, or nothing is pending any more.
        """
        before = self._num_changes[0]
        limit_ms, limit_order = (math.inf, 0) if self._clock is None else self._clock.limit
        while True:
            self._now_ms, reached, decisions = self._engine_advance(
                self._memory,
                action,
                target,
                count,
                self.keeps_executors,
                self._now_ms,
                limit_ms,
                limit_order,
                *(NO_RULE if self._last_call else self.rule),
            )
            if decisions:
                self._num_decisions += decisions
                self._last_call = False
            if reached != UNPREPARED:
                break
            self._prepare()
            action = engine.GO_ON
        if self._num_changes[0] != before:
            self._num_losses = 0
        return bool(reached)

    # Events.

    def _reset(self) -> None:
        engine.join(self._memory, np.arange(self.config.num_executors), 0.0)
        if self._has_end:
            self.clock.at(self.config.max_time_ms, Cluster._time_is_up, None)
        if self._faults:
            from simulator.cluster.outages import schedule_faults

            schedule_faults(self)
        self._prepare()
        self._advance(engine.BEGIN)
        if self.config.signal:
            self.clock.at(self.config.signal.change_ms(0), Cluster._signal_changes, 0)
        self._run()

    def _prepare(self) -> None:
        """Make room in the logs for the next event, and draw the noise of the next jobs."""
        self._take_lost_runs()
        records, values, moves = self._memory
        cluster = self._state.cluster
        if len(moves) < cluster["num_moves"][0] + self.config.num_executors:
            self._attach((records, values, moves_table(self.config, moves[: cluster["num_moves"][0]])))
        first, end = int(cluster["num_prepared"][0]), int(cluster["num_arriving"][0])
        if first == cluster["num_arrived"][0]:
            first_later = int(np.searchsorted(self.sequence.arrival_ms, self._now_ms, "right"))
            end = min(max(first + _JOBS_AT_ONCE, first_later), end)
            for job in range(first, end):
                self._draw_noise(job)
                if self._redraws_task_times:
                    from simulator.cluster.forks import draw_task_times

                    draw_task_times(self, job)
            cluster["num_prepared"] = end

    def _draw_noise(self, job: int) -> None:
        """Draw the random numbers of a job's tasks."""
        first = self._state.stages["first_task"][self._first_stage[job]]
        num_tasks = self.sequence.profiles[job].num_tasks
        noise = self._state.noise[first : first + num_tasks]
        noise["level"], noise["duration"] = task_noise(self._noise_seed, job, num_tasks)
        if self._faults:
            from simulator.cluster.draws import job_key

            self._state.jobs["key"][job] = job_key(self._noise_seed, job)

    def _signal_changes(self, number: int) -> None:
        assert self.config.signal
        self.clock.at(self.config.signal.change_ms(number + 1), Cluster._signal_changes, number + 1)
        self._settle()
        self._last_call = False
        self._offer_free()

    def _take_lost_runs(self) -> None:
        if self._num_lost[0]:
            self._lost_runs.append(self._state.lost[: self._num_lost[0]].copy())
            self._num_lost[0] = 0

    def _time_is_up(self, _: None) -> None:
        self._done = True
