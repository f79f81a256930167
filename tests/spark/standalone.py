"""A standalone cluster with several applications, as users have it: the plugin is configured in spark-defaults.conf."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.spark.live import Standalone, with_plugin
from tests.spark.eventlog import events_of
from tests.spark.harness import PATIENCE_S, spark_environment

#: A driver: folder, name, and stages of its jobs, which run until a file tells it to stop.
PROGRAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.harness import Sleeper
folder, name, stages = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
sleeper = Sleeper(SparkSession.builder.appName(name).getOrCreate(), folder)
count = 0
while count == 0 or not (folder / f"{name}.stop").exists():
    sleeper.start(f"{name}{count}", *stages).join()
    count += 1
sleeper.spark.stop()
"""


@dataclass(frozen=True)
class Summary:
    """Summary of an application's event log.

    Attributes:
        tasks: number of ended tasks.
        failed, repeated: of these, failed ones; later attempts.
        stages_repeated: number of repeated stages.
        joined, left: numbers of executors.
    """

    tasks: int
    failed: int
    repeated: int
    stages_repeated: int
    joined: int
    left: int


def summarise(events: list[dict[str, Any]]) -> Summary:
    """Summarise the event log of an application."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [event for event in events if event["Event"] == f"SparkListener{kind}"]

    return Summary(
        tasks=len(of("TaskEnd")),
        failed=sum(event["Task End Reason"]["Reason"] != "Success" for event in of("TaskEnd")),
        repeated=sum(event["Task Info"]["Attempt"] > 0 for event in of("TaskEnd")),
        stages_repeated=sum(event["Stage Info"]["Stage Attempt ID"] > 0 for event in of("StageSubmitted")),
        joined=len(of("ExecutorAdded")),
        left=len(of("ExecutorRemoved")),
    )


class EventLogs:
    """Event logs of applications below a folder."""

    folder: Path

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the event log of an application."""
        for path in (self.folder / "events").iterdir():
            events = list(events_of(path))
            if any(event.get("App Name") == name for event in events):
                return events
        raise FileNotFoundError(name)

    def summary(self, name: str) -> Summary:
        """See ``Summary``."""
        return summarise(self.events(name))


class Cluster(EventLogs, Standalone):
    """A cluster whose applications run jobs until they are stopped, with numbers of executors set by the policy."""

    def application(self, name: str, *stages: tuple[int, float], **conf: Any) -> None:
        """Start an application that runs jobs of these stages, one after the other, until it is stopped."""
        arguments = [f"--conf={key.replace('__', '.')}={value}" for key, value in conf.items()]
        submit = {
            "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"]),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        self.submit(name, [sys.executable, "-c", PROGRAM, str(self.folder), name, repr(stages)], submit)

    def end(self, *names: str) -> None:
        """Let applications end after their current job."""
        for name in names:
            (self.folder / f"{name}.stop").touch()
        for name in names:
            assert self.applications[name].wait(PATIENCE_S) == 0, self.log(name)

    def most_held(self, *names: str, killed_ms: float) -> int:
        """Return the maximum number of executors of these applications at once; a killed driver loses its executors."""
        changes: list[tuple[float, int]] = []
        for name in names:
            held: set[str] = set()
            for event in self.events(name):
                if event["Event"] == "SparkListenerExecutorAdded":
                    held.add(event["Executor ID"])
                    changes.append((event["Timestamp"], 1))
                elif event["Event"] == "SparkListenerExecutorRemoved":
                    held.discard(event["Executor ID"])
                    changes.append((event["Timestamp"], -1))
                elif event["Event"] == "SparkListenerApplicationEnd":
                    changes.extend([(event["Timestamp"], -1)] * len(held))
                    held.clear()
            changes.extend([(killed_ms, -1)] * len(held))
        most = now = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        return most


@contextmanager
def cluster(folder: Path, slots: int, service: int) -> Iterator[Cluster]:
    """Run a cluster inside the block; kill all its processes at the end."""
    settings = {
        "spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false", "spark.eventLog.dir": f"file://{folder}/events",
        "spark.sql.adaptive.enabled": "false", **with_plugin(f"127.0.0.1:{service}", executors="true"),
    }  # fmt: skip
    with Cluster(folder, slots, settings, spark_environment()) as made:
        yield made
