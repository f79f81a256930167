"""Makes Spark's event logs small: what the reader does not need, which is most of them, is left out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.spark.logfile import Problems, events, find_event_logs
from workloads.spark.reader import EVENT_NAMES

__all__ = ["slim_event_log"]

_BULKY = frozenset(
    {
        "Accumulables",
        "Attributes",
        "Callsite",
        "Classpath Entries",
        "Details",
        "Hadoop Properties",
        "JVM Information",
        "Log Urls",
        "Metrics Properties",
        "Storage Level",
        "System Properties",
        "Task Executor Metrics",
        "Updated Blocks",
        "details",
        "modifiedConfigs",
        "physicalPlanDescription",
        "sparkPlanInfo",
    }
)
_PROPERTIES = (
    "spark.sql.execution.id",
    "spark.sql.execution.root.id",
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.scheduler.pool",
)


def slim_event_log(source: Path, target: Path, recording: Mapping[str, Any]) -> None:
    """Copy a log to ``target`` (gzip), whole or not at all; ``recording`` goes first, as event ``RunMeta``.

    Raises:
        WorkloadError: ``source`` is damaged.
    """
    unfinished = target.with_name(target.name + ".part")
    [log] = find_event_logs(source)
    # The time stamp in the header would make equal logs differ.
    with unfinished.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(_line({"Event": "RunMeta", **recording}))
        for _, _, event in events(log, EVENT_NAMES, Problems(partial=False)):
            if event is not None:
                packed.write(_line(_slim(event)))
    unfinished.replace(target)


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _slim(value: Any) -> Any:
    """The value without its bulky parts, at any depth."""
    if isinstance(value, list):
        return [_slim(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _slim(item) for key, item in value.items() if key not in _BULKY}
    if isinstance(properties := kept.get("Properties"), dict):
        kept["Properties"] = {key: properties[key] for key in _PROPERTIES if key in properties}
    return kept
