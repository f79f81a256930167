"""What was recorded on Spark, on which machine and with which versions: a JSON file beside the event logs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads.spark.recorder.cluster import java_version
from workloads.spark.recorder.tpch import RecorderError

__all__ = ["Manifest"]


class Manifest:
    """The file's content:

    * format: 1
    * campaigns: one for each start of the recorder: date, command, machine, versions
    * runs: name -> what the driver measured (see `workloads.spark.recorder.driver`), log, campaign
    * mixtures: name -> number, executors, makespan_s, campaign, and the applications: the same as a run, and
      ``submit_s``, when it was submitted since the first, and ``done_s``, when its query had ended
    """

    def __init__(self, path: Path) -> None:
        """Load the file if it is there.

        Raises:
            RecorderError: the file is no manifest.
        """
        self.path = path
        self.content: dict[str, Any] = {"format": 1, "campaigns": [], "runs": {}, "mixtures": {}}
        if path.exists():
            try:
                self.content = json.loads(path.read_text(encoding="utf-8"))
                if self.content["format"] != 1:
                    raise ValueError
            except (ValueError, KeyError, TypeError):
                raise RecorderError(f"{path}: not a manifest of recordings; move it away") from None

    def begin_campaign(self, command: Sequence[str]) -> None:
        """Note what the next recordings are made with."""
        campaign = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(command),
            "machine": _machine(),
            "versions": _versions(),
        }
        self.content["campaigns"].append(campaign)

    def has(self, kind: str, name: str) -> bool:
        """Whether a run or mixture (``kind``: "runs" or "mixtures") is recorded."""
        return name in self.content[kind]

    def add(self, kind: str, name: str, record: dict[str, Any]) -> None:
        """Add a record and write the file, whole or not at all."""
        self.content[kind][name] = {**record, "campaign": len(self.content["campaigns"]) - 1}
        unfinished = self.path.with_name(self.path.name + ".part")
        unfinished.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.path)


def _machine() -> dict[str, Any]:
    import psutil

    cpu = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", cpu.read_text()) if cpu.exists() else None
    return {
        "cpu": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
    }


def _versions() -> dict[str, str]:
    return {
        "java": java_version(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in ("pyspark", "tpchgen-cli", "decima")},
    }
