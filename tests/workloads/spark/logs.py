"""Builder of small Spark event logs, event by event, for tests of the reader."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


def stage_info(stage: int, tasks: int, parents: tuple[int, ...] = (), rdd: int | None = None) -> dict[str, Any]:
    rdd = 10 * stage if rdd is None else rdd
    return {
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Number of Tasks": tasks,
        "Parent IDs": list(parents),
        "RDD Info": [
            {"RDD ID": rdd, "Name": "r", "Parent IDs": [rdd - 1], "Scope": '{"id":"1","name":"Exchange"}'},
            {"RDD ID": rdd - 1, "Name": "r", "Parent IDs": [], "Scope": '{"id":"0","name":"Scan parquet "}'},
        ],
    }


class LogBuilder:
    """Collects events; each method returns the builder, so that calls can be chained."""

    def __init__(self, *, app: str = "app-1", name: str = "test", version: str = "3.5.1") -> None:
        self.events: list[dict[str, Any]] = []
        self._stages: dict[int, dict[str, Any]] = {}
        self._task_id = 0
        self.add("LogStart", **{"Spark Version": version})
        self.add("ApplicationStart", **{"App Name": name, "App ID": app, "Timestamp": 1000})

    def add(self, event: str, **fields: Any) -> LogBuilder:
        self.events.append({"Event": f"SparkListener{event}", **fields})
        return self

    def executor(self, executor: str, at: int = 1000, cores: int = 1, **info: Any) -> LogBuilder:
        info = {"Host": "h", "Total Cores": cores, **info}
        return self.add("ExecutorAdded", **{"Timestamp": at, "Executor ID": executor, "Executor Info": info})

    def remove(self, executor: str, at: int, reason: str = "Executor killed by driver.") -> LogBuilder:
        return self.add("ExecutorRemoved", **{"Timestamp": at, "Executor ID": executor, "Removed Reason": reason})

    def sql(self, execution: int, at: int, description: str = "q", plan: dict[str, Any] | None = None) -> LogBuilder:
        fields = {"executionId": execution, "description": description, "time": at}
        fields |= {"sparkPlanInfo": plan} if plan else {}
        self.events.append({"Event": SQL + "Start", **fields})
        return self

    def sql_end(self, execution: int, at: int, error: str = "") -> LogBuilder:
        self.events.append({"Event": SQL + "End", "executionId": execution, "time": at, "errorMessage": error})
        return self

    def job(self, job: int, stages: list[dict[str, Any]], at: int, sql: int | None = None, **named: str) -> LogBuilder:
        """Add a job; ``named`` are further properties."""
        self._stages.update({info["Stage ID"]: info for info in stages})
        properties = named | ({} if sql is None else {"spark.sql.execution.id": str(sql)})
        return self.add(
            "JobStart",
            **{
                "Job ID": job, "Submission Time": at, "Stage Infos": stages,
                "Stage IDs": [info["Stage ID"] for info in stages], "Properties": properties,
            },
        )  # fmt: skip

    def job_end(self, job: int, at: int, result: str = "JobSucceeded") -> LogBuilder:
        return self.add("JobEnd", **{"Job ID": job, "Completion Time": at, "Job Result": {"Result": result}})

    def submit(self, stage: int, at: int, attempt: int = 0) -> LogBuilder:
        info = {**self._stages[stage], "Submission Time": at, "Stage Attempt ID": attempt}
        return self.add("StageSubmitted", **{"Stage Info": info})

    def complete(self, stage: int, at: int, failure: str | None = None, updated: tuple[int, ...] = ()) -> LogBuilder:
        """Add the completion of a stage that updated accumulators."""
        info = {**self._stages[stage], "Completion Time": at, "Accumulables": [{"ID": number} for number in updated]}
        if failure:
            info["Failure Reason"] = failure
        return self.add("StageCompleted", **{"Stage Info": info})

    def task(
        self,
        stage: int,
        index: int,
        executor: str,
        start: int,
        end: int | None,
        *,
        reason: str = "Success",
        kind: str = "ResultTask",
        metrics: dict[str, Any] | None = None,
        **info: Any,
    ) -> LogBuilder:
        """Add one task attempt; ``end=None``: it has no end. ``info`` has Spark's names in lower case."""
        task = {
            "Task ID": self._task_id, "Index": index, "Attempt": info.get("attempt", 0),
            "Partition ID": info.get("partition", index), "Launch Time": start, "Executor ID": executor,
            "Speculative": info.get("speculative", False),
        }  # fmt: skip
        self._task_id += 1
        where = {"Stage ID": stage, "Stage Attempt ID": info.get("stage_attempt", 0)}
        if reason != "Resubmitted":
            self.add("TaskStart", **where, **{"Task Info": task})
        if end is not None:
            ended = {"Task Type": kind, "Task End Reason": {"Reason": reason}, "Task Metrics": metrics or {}}
            self.add("TaskEnd", **where, **ended, **{"Task Info": {**task, "Finish Time": end}})
        return self

    def run(self, stage: int, start: int, end: int, kind: str = "ResultTask", executor: str = "0") -> LogBuilder:
        """Add a whole stage: its tasks one after the other on one executor, evenly spaced."""
        tasks = self._stages[stage]["Number of Tasks"]
        bounds = [start + (end - start) * task // tasks for task in range(tasks + 1) if tasks]
        self.submit(stage, start)
        for task in range(tasks):
            self.task(stage, task, executor, bounds[task], bounds[task + 1], kind=kind)
        return self.complete(stage, end)

    def query(self, number: int, name: str, tasks: int) -> LogBuilder:
        """Add a query of one stage, which starts at ``2000 + 1000 * number`` and lasts 120 ms."""
        at = 2000 + 1000 * number
        self.sql(number, at, name).job(number, [stage_info(number, tasks)], at=at, sql=number)
        return self.run(number, at, at + 100).job_end(number, at + 110).sql_end(number, at + 120)

    def end(self, at: int = 9000) -> LogBuilder:
        return self.add("ApplicationEnd", Timestamp=at)

    @property
    def text(self) -> bytes:
        return b"".join(json.dumps(event).encode() + b"\n" for event in self.events)

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(self.text) if path.suffix == ".gz" else self.text)
        return path


def small_log(**names: str) -> LogBuilder:
    """Return a log with two stages in one Spark job, of three tasks and one, on one executor."""
    log = LogBuilder(**names).executor("0")
    log.job(0, [stage_info(0, 3), stage_info(1, 1, parents=(0,))], at=2000)
    log.run(0, 2010, 2310, kind="ShuffleMapTask").run(1, 2320, 2420)
    return log.job_end(0, 2430).end()
