"""Summary of a live log: answers, their times, failures, decisions, and completion times of jobs; job profiles."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from decima.evaluation.documents import json_text
from decima.service.log import Answered, Line, LogError, Question, Refused, Skipped, Started, Welcomed
from decima.service.protocol import JobMessage, Missed
from decima.service.readiness import assess
from decima.service.replay import Replayed, replayed
from decima.service.service import one_line
from decima.show.tables import Report, new_table, table_of
from workloads.job import JobProfile
from workloads.sources.workload_file import Workload

__all__ = ["live_workload", "summary_report"]

#: Percentages of the quantiles that are shown.
QUANTILES = (50, 95, 99)


@dataclass
class _OfApplication:
    """Counts of an application: decided and other questions, and what its driver missed (None: not reported)."""

    questions: int = 0
    skipped: int = 0
    missed: Missed | None = None


class _Counts:
    """Counts of a log, gathered while its lines pass."""

    def __init__(self) -> None:
        self.questions = self.refused = self.failed = self.decided = self.unlike_fifo = self.lost = 0
        self.services: list[str] = []
        self.took_ms: list[float] = []
        self.policy_ms: list[float] = []
        self.live_ms = 0.0
        self._first_ms: dict[int, float] = {}
        self._last_ms: dict[int, float] = {}
        self._live: dict[int, dict[str, JobMessage]] = {}
        #: Connected driver -> name and id of its application.
        self._application_of: dict[int, tuple[str, str]] = {}
        self.by_application: dict[tuple[str, str], _OfApplication] = {}

    def passing(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines unchanged, and update the counts."""
        for line in lines:
            if isinstance(line, Started):
                self._end_service()
                self.lost += line.lost or 0
                self.services.append(f"{line.policy}, in the shadow" if line.shadow else line.policy)
            elif isinstance(line, Welcomed):
                self._live[line.driver] = {}
                self._application_of[line.driver] = line.name, line.application
            elif isinstance(line, Skipped):
                self._of(line.driver).skipped += 1
            elif isinstance(line, Question):
                self._ask(line)
            elif isinstance(line, Answered):
                self._answer(line)
            elif isinstance(line, Refused):
                self.refused += 1
            yield line
        self._end_service()

    def _end_service(self) -> None:
        """Add the time of a service: from its first question to its last one, of any driver."""
        if self._first_ms:
            self.live_ms += max(self._last_ms.values()) - min(self._first_ms.values())
        self._first_ms, self._last_ms, self._live = {}, {}, {}

    def _of(self, driver: int) -> _OfApplication:
        return self.by_application.setdefault(self._application_of.get(driver, ("", "")), _OfApplication())

    def _ask(self, line: Question) -> None:
        self.questions += 1
        counts = self._of(line.driver)
        counts.questions += 1
        if line.missed is not None:
            counts.missed = (counts.missed or Missed()).plus(line.missed)
        self._first_ms.setdefault(line.driver, line.time_ms)
        self._last_ms[line.driver] = line.time_ms
        live = self._live.setdefault(line.driver, {})
        for gone in line.gone:
            live.pop(gone, None)
        live.update((job.id, job) for job in line.jobs)

    def _answer(self, line: Answered) -> None:
        self.took_ms.append(line.took_ms)
        self.policy_ms.append(line.policy_ms)
        self.failed += line.failure is not None
        if not line.choices:
            return
        waiting = [
            job
            for job in self._live.get(line.driver, {}).values()
            if any(stage.state == "ready" and stage.pending for stage in job.stages)
        ]
        if waiting:
            first_ms = min(job.submitted_time_ms for job in waiting)
            first = {job.id for job in waiting if job.submitted_time_ms == first_ms}
            self.decided += 1
            self.unlike_fifo += line.choices[0].job not in first


def summary_report(lines: Iterable[Line], timeout_ms: float) -> Report:
    """Return a report on a live log.

    Args:
        timeout_ms: timeout of drivers, ms. Answers that took longer count as late.
    """
    counts = _Counts()
    replays = replayed(counts.passing(lines))
    answers = len(counts.took_ms)
    minutes = counts.live_ms / 60_000
    missed = [of.missed for of in counts.by_application.values() if of.missed is not None]
    share = None
    if missed:
        total = functools.reduce(Missed.plus, missed)
        share = (total.late + total.lost) / max(counts.questions + total.late + total.lost, 1)
    readiness = assess(replays, counts.decided, counts.failed, share)
    summary: dict[str, Any] = {
        "services": counts.services,
        "minutes": minutes,
        "questions": counts.questions,
        "answers": answers,
        "answers_per_minute": answers / minutes if minutes else None,
        "answer_ms": _quantiles(counts.took_ms),
        "policy_ms": _quantiles(counts.policy_ms),
        "late": sum(took_ms > timeout_ms for took_ms in counts.took_ms),
        "missed_share": share,
        "ready": None if readiness is None else readiness.is_ready,
        "criteria": [] if readiness is None else [criterion._asdict() for criterion in readiness.criteria],
        "drivers": [
            {
                "name": name,
                "application": application,
                "questions": of.questions,
                "skipped": of.skipped,
                "missed": None if of.missed is None else of.missed.model_dump(),
            }
            for (name, application), of in counts.by_application.items()
        ],
        "timeout_ms": timeout_ms,
        "failed": counts.failed,
        "unanswered": counts.questions - answers,
        "refused": counts.refused,
        "lost_lines": counts.lost,
        "decided": counts.decided,
        "unlike_fifo": counts.unlike_fifo,
        "applications": [_application(replay) for replay in replays],
    }
    tables = [_answers_table(summary), _times_table(summary), _drivers_table(summary), _jobs_table(replays)]
    notes = [*([] if readiness is None else [str(readiness)]), *_notes(summary)]
    return Report(tables, notes, json_text(summary))


def _quantiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {f"p{quantile}": float(np.percentile(values, quantile)) for quantile in QUANTILES}


def _application(each: Replayed) -> dict[str, Any]:
    return {
        "name": each.name,
        "application": each.application,
        "policy": each.policy,
        "jobs": json.loads(each.record.jobs()[["name", "arrival_ms", "jct_ms"]].to_json(orient="records")),
    }


def _answers_table(summary: dict[str, Any]) -> Table:
    names = dict.fromkeys(one_line(service) for service in summary["services"])
    counts = ("late", "failed", "unanswered", "refused")
    table = new_table(
        "; ".join(names), "Answers", "Per minute", *(count.capitalize() for count in counts), names=0
    )
    rate = summary["answers_per_minute"]
    table.add_row(
        f"{summary['answers']}",
        "-" if rate is None else f"{rate:.1f}",
        *(f"{summary[count]}" for count in counts),
    )
    return table


def _times_table(summary: dict[str, Any]) -> Table:
    unknown = dict.fromkeys(QUANTILES, math.nan)
    rows = ((name, *(summary[f"{name}_ms"] or unknown).values()) for name in ("answer", "policy"))
    return table_of("Times, ms", ("Of", *(f"p{quantile}" for quantile in QUANTILES)), rows, ".1f")


def _drivers_table(summary: dict[str, Any]) -> Table:
    headings = ("Application", "Questions", "Late", "Lost", "Own order, s", "Undecided", "Last reason")
    table = new_table("As the drivers count", *headings, names=1)
    for driver in summary["drivers"]:
        missed = driver["missed"]
        counts = ["-"] * 3
        if missed is not None:
            counts = [f"{missed['late']}", f"{missed['lost']}", f"{missed['fallback_ms'] / 1000:.1f}"]
        reason = "" if missed is None else one_line(missed["reason"])
        table.add_row(
            *(one_line(driver["name"]), f"{driver['questions'] + driver['skipped']}", *counts),
            *(f"{driver['skipped']}", reason),
        )
    return table


def _jobs_table(found: Sequence[Replayed]) -> Table:
    rows = []
    for replay in found:
        jct_s = replay.record.jct_ms / 1000
        done = jct_s[~np.isnan(jct_s)]
        values = [done.mean(), *np.percentile(done, QUANTILES)] if len(done) else [math.nan] * 4
        rows.append((one_line(replay.name), str(len(jct_s)), str(len(done)), *values))
    headings = ("Application", "Jobs", "Complete", "Mean JCT", "p50", "p95", "p99")
    return table_of("Jobs", headings, rows, ".1f")


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = [
        "Times of jobs are seconds. Late: answers that took more than "
        f"{summary['timeout_ms']:g} ms in the service, so that drivers with this timeout kept Spark's own order. "
        "Failed: the policy failed, and the answer kept Spark's own order. As the drivers count: late and lost "
        "answers, and time in Spark's own order, with delays outside of the service; -: the plugin does not report. "
        "Undecided: answered in Spark's own order, in favour of other drivers."
    ]
    if summary["lost_lines"]:
        notes.append(f"{summary['lost_lines']} lines are missing, because the log could not be written.")
    if summary["decided"]:
        share = summary["unlike_fifo"] / summary["decided"]
        notes.append(
            f"{summary['unlike_fifo']} of {summary['decided']} answers with decisions ({share:.0%}) served another job "
            "first than FIFO would."
        )
    return notes


def live_workload(found: Iterable[Replayed], name: str) -> tuple[Workload, int]:
    """Return the complete jobs of a live log as a workload, and the number of omitted jobs.

    All tasks of a stage have the stage's mean duration as reported by the driver, or else as estimated by the replay.
    Incomplete jobs and stages that Spark skipped are omitted.

    Raises:
        LogError: no job is complete.
    """
    profiles: list[JobProfile] = []
    names: Counter[str] = Counter()
    left_out = 0
    for replay in found:
        for profile, complete in replay.measured_profiles():
            if not complete or profile is None:
                left_out += 1
                continue
            names[profile.name] += 1
            count = names[profile.name]
            # Equal names get a number, as in imports of event logs; the service ignores the number in look-ups.
            unique = profile.name if count == 1 else f"{profile.name} ({count})"
            profiles.append(JobProfile(unique, profile.stages, profile.edges))
    if not profiles:
        raise LogError("no job of the log is complete")
    return Workload(tuple(profiles), name=name, about={"source": "live log", "jobs": len(profiles)}), left_out
