"""One measured run of a Spark application: its executors, its queries, and their stages and tasks.

What is measured, and how:

* A task is one row, for the run of it that succeeded (first). Runs that failed, were killed or repeated are
  counted in the `LogReport`.
* A task lasts from its launch by the driver to the driver's knowing of its end, as the scheduler sees it.
* An executor with room for k tasks at once is k executors here, since an executor of a `JobProfile` runs one.
* The wave of a task looks at everything that its executor ran before in the application, failures too.
* The executors held at a task's start are those of the application, whichever of its queries used them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.spark.dag import StageDag

__all__ = ["TASK_COLUMNS", "LogReport", "SparkApplication", "SparkExecutor", "SparkQuery", "SparkStage"]

#: Kinds of ignored events that are named.
MOST_IGNORED = 4
#: Columns of `SparkQuery.tasks`.
TASK_COLUMNS = (
    "stage", "partition", "executor", "slot", "launch_ms", "duration_ms", "wave", "level", "run_ms", "cpu_ms",
    "input_bytes", "shuffle_read_bytes", "shuffle_write_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class SparkExecutor:
    """One executor process.

    Args:
        name: Spark's executor id.
        slots: tasks that it can run at once.
        requested_ms: when it was asked for, or granted by the cluster; NaN where the log does not tell.
        registered_ms: when it was ready for tasks; NaN where the log does not tell.
        removed_ms: when it left; NaN if it stayed to the end.
        lost: it left without the driver's wish.
        host: the machine that it ran on; empty where the log does not tell.
    """

    name: str
    slots: int
    requested_ms: float
    registered_ms: float
    removed_ms: float
    lost: bool
    host: str = ""

    @property
    def startup_ms(self) -> float:
        """Request to registration: what moving an executor to a job costs, ms; NaN where it is not known."""
        return self.registered_ms - self.requested_ms


@dataclass(frozen=True)
class SparkStage:
    """One stage that ran: Spark's id, its operators, when it was first submitted and last completed (ms)."""

    stage_id: int
    name: str
    num_tasks: int
    submitted_ms: float
    completed_ms: float


@dataclass(frozen=True, eq=False)
class SparkQuery:
    """One run of a query. Times are ms since the epoch.

    Args:
        name: the description that the application gave it, else Spark's.
        application_id: the application that ran it.
        stages: the stages that ran, ordered by their last RDD; parents come before their children.
        dag: their edges; see `workloads.spark.dag.StageDag`.
        tasks: one row for each task, in order of launch:

            ============================ ======== ==================================================
            stage                        int64    place in ``stages``
            partition                    int64    which task of the stage
            executor                     int64    place in the application's ``executors``
            slot                         int64    which of the executor's slots, from 0
            launch_ms, duration_ms       float64  start (since the epoch), and launch to finish
            wave                         int64    `workloads.Wave`
            level                        int64    executors that the application held at the start
            run_ms, cpu_ms               float64  time in the task's code; CPU time, with deserialization
            input_bytes                  int64    read from storage
            shuffle_read_bytes           int64    read from other stages
            shuffle_write_bytes          int64    written for other stages
            ============================ ======== ==================================================
        start_ms: SQL execution started, or job submitted.
        submitted_ms: first job submitted.
        last_job_end_ms: last job ended.
        end_ms: SQL execution or job ended; NaN if that is not in the log.
        num_jobs: Spark jobs.
        num_skipped: stages listed by the jobs that did not run.
        complete: it ended with success; else only what had run of it is here.
        plan: the operators of its physical plan as it was at the start, each before its children; empty outside of SQL.
        pool: pool of Spark's FAIR scheduler that its first job named; empty if it named none.
    """

    name: str
    application_id: str
    stages: tuple[SparkStage, ...]
    dag: StageDag
    tasks: pd.DataFrame
    start_ms: float
    submitted_ms: float
    last_job_end_ms: float
    end_ms: float
    num_jobs: int
    num_skipped: int
    complete: bool
    plan: tuple[str, ...] = ()
    pool: str = ""

    @property
    def edges(self) -> NDArray[np.int64]:
        """int64 [num_edges, 2], (parent, child) places in ``stages``."""
        return self.dag.edges

    @property
    def wall_ms(self) -> float:
        """How long the query took, with the driver's planning before its first job."""
        return self.end_ms - self.start_ms

    @property
    def ended_ms(self) -> float:
        """When it ended, ms since the epoch; of a query that did not end, when the last task did that ended."""
        if np.isfinite(self.end_ms):
            return self.end_ms
        return float((self.tasks["launch_ms"] + self.tasks["duration_ms"]).max())

    @property
    def span_ms(self) -> float:
        """First job's submission to the last job's end."""
        return self.last_job_end_ms - self.submitted_ms

    @property
    def submission_lag_ms(self) -> NDArray[np.float64]:
        """The driver's delay before each stage, float64 [num_stages], ms.

        From the end of the last parent, or the first job's submission, to the stage's submission. It is what
        a list schedule of the tasks lacks of the real span: planning of jobs, broadcasts, start of stages.
        """
        ready = np.full(len(self.stages), self.submitted_ms)
        for parent, child in self.edges.tolist():
            ready[child] = max(ready[child], self.stages[parent].completed_ms)
        lag: NDArray[np.float64] = np.array([stage.submitted_ms for stage in self.stages]) - ready
        return lag.clip(min=0.0)

    @property
    def driver_lag_ms(self) -> float:
        """The driver's delays between stages, ms: their sum along the path of stages where it is longest."""
        until = self.submission_lag_ms
        for parent, child in sorted(self.edges.tolist(), key=lambda edge: edge[1]):  # parents come first
            until[child] = max(until[child], until[parent] + self.submission_lag_ms[child])
        known = until[np.isfinite(until)]
        return float(known.max()) if known.size else 0.0

    @property
    def planning_ms(self) -> float:
        """From the query's start to the submission of its first job, ms."""
        return max(self.submitted_ms - self.start_ms, 0.0)

    @property
    def result_ms(self) -> float:
        """From the end of its last job to the query's end, ms; 0 if it did not end."""
        return max(self.end_ms - self.last_job_end_ms, 0.0) if self.end_ms == self.end_ms else 0.0


@dataclass(frozen=True)
class LogReport:
    """What was counted while a log was read.

    Args:
        failed_tasks: runs of tasks that failed.
        killed_tasks: runs that were killed, as a rule because another copy was faster.
        speculative_tasks: copies started by speculation.
        retried_tasks: runs after the first, other than speculative ones.
        repeated_tasks: runs that succeeded although an earlier one had, since its output was lost.
        unfinished_tasks: runs that started and never ended in the log.
        missing_tasks: tasks of completed stages that the log lacks (Spark may drop events under load).
        stage_retries: attempts of stages after the first.
        lost_executors: executors that left without the driver's wish.
        failed_queries: queries that ended with an error.
        unfinished_queries: queries that never ended in the log.
        outside_parents: stages' parents that ran in another query, or before the log begins.
        ignored_events: number of events that have no meaning here, by name.
        problems: what is wrong with the log, one line each; empty unless a partial log was asked for.
    """

    failed_tasks: int = 0
    killed_tasks: int = 0
    speculative_tasks: int = 0
    retried_tasks: int = 0
    repeated_tasks: int = 0
    unfinished_tasks: int = 0
    missing_tasks: int = 0
    stage_retries: int = 0
    lost_executors: int = 0
    failed_queries: int = 0
    unfinished_queries: int = 0
    outside_parents: int = 0
    ignored_events: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report for people: the problems, then one line with every count that is not 0."""
        counts = [
            f"{value} {name.replace('_', ' ')}"
            for name, value in vars(self).items()
            if isinstance(value, int) and value
        ]
        if self.ignored_events:
            kinds = Counter(self.ignored_events).most_common()
            named = ", ".join(f"{count} {_short(name)}" for name, count in kinds[:MOST_IGNORED])
            more = f" and {len(kinds) - MOST_IGNORED} other kinds" if len(kinds) > MOST_IGNORED else ""
            counts.append(
                f"{sum(count for _, count in kinds)} events that say nothing of durations ({named}{more})"
            )
        return [*self.problems, *([", ".join(counts)] if counts else [])]


def _short(event: str) -> str:
    """The name of an event without what all names begin with."""
    return event.rpartition(".")[2].removeprefix("SparkListener")


@dataclass(frozen=True, eq=False)
class SparkApplication:
    """One application. Times are ms since the epoch.

    Args:
        name: its name.
        application_id: Spark's id of it.
        spark_version: as in ``3.5.9``.
        start_ms: when its driver started.
        end_ms: when it ended; NaN if that is not in the log.
        executors: every executor it ever had.
        queries: its queries that ran tasks, in order of their start.
        report: what was counted, and what is wrong with the log.
        recording: what the recorder of this project noted of the run; empty for other logs.
        master: Spark's master, such as ``spark://host:7077``; empty where the log does not tell.
        scheduler: ``FIFO`` or ``FAIR``, or ``decima`` with the plugin; empty where the log does not tell.
    """

    name: str
    application_id: str
    spark_version: str
    start_ms: float
    end_ms: float
    executors: tuple[SparkExecutor, ...]
    queries: tuple[SparkQuery, ...]
    report: LogReport
    recording: Mapping[str, Any] = field(default_factory=dict)
    master: str = ""
    scheduler: str = ""
