"""Audit log: changes of policy, tenants, tokens and certificate of the service, as JSON lines.

Each line has the time, the event, its cause, and for each file its owner and its SHA-256 before and after the event.
Secrets never appear. Unix does not tell the service which user sent a signal; the owner of a file can write it.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from decima.service.inputs import Inputs
from decima.service.service import ServeError
from workloads.reading import open_regular

__all__ = ["AuditLog", "AuditedFile", "Event"]

#: Number of bytes at the end of the file in which its last line is sought.
MOST_AT_END = 1 << 20

log = logging.getLogger("decima.service")


class AuditedFile(BaseModel):
    """A file of policy, tenants, token or certificate.

    Attributes:
        owner: name of the user who owns the file.
        before: SHA-256 of the content before the event, hexadecimal; null if the file was not in use.
        after: SHA-256 of the content since the event; null if the file is not in use.
    """

    owner: str
    before: str | None
    after: str | None


class Event(BaseModel):
    """A line of the audit log.

    Attributes:
        time: UTC, in the format of ISO 8601.
        event: a service has started, its files were reloaded, or a reload was refused, so that nothing changed.
        by: cause of the event.
        policy: name of the scheduler.
        files: files by path; files before a refused reload are those that stay in use.
        changes: changed values of the tenants' file, such as ``tenants.etl.quota: 6 -> 4``; secrets as digests.
        reason: why a reload was refused.
    """

    model_config = ConfigDict(extra="forbid")

    time: str
    event: Literal["started", "reloaded", "refused"]
    by: Literal["command", "SIGUSR1"]
    policy: str
    files: dict[str, AuditedFile]
    changes: tuple[str, ...] = ()
    reason: str = ""


class AuditLog:
    """Appends events to a file, which only its owner can read if it is new.

    Args:
        path: file; it is opened for each line, so that other programs may rename it at any time.
        policy: name of the scheduler.
        inputs: files in use.

    Raises:
        ServeError: the file cannot be read or written.
    """

    def __init__(self, path: Path, policy: str, inputs: Inputs) -> None:
        self._path, self._policy, self._inputs = path, policy, inputs
        try:
            before = _last_digests(path)
            self._append(self._event("started", "command", before, inputs))
        except OSError as error:
            raise ServeError(f"cannot write {path}: {error.strerror}") from None

    def ended(self, inputs: Inputs | None, reason: str) -> None:
        """Write the result of a reload: the new inputs, or None and the reason why the earlier ones stay."""
        after = inputs or self._inputs
        event = self._event(
            "reloaded" if inputs else "refused", "SIGUSR1", self._inputs.sha256, after, reason
        )
        self._inputs = after
        try:
            self._append(event)
        except OSError as error:
            log.error("cannot write %s, an event is missing there: %s", self._path, error.strerror)

    def _event(
        self,
        kind: Literal["started", "reloaded", "refused"],
        by: Literal["command", "SIGUSR1"],
        before: Mapping[str, str],
        inputs: Inputs,
        reason: str = "",
    ) -> Event:
        changes: tuple[str, ...] = ()
        if inputs.tenants is not None and self._inputs.tenants is not None:
            changes = tuple(inputs.tenants.changes(self._inputs.tenants))
        return Event(
            time=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            event=kind,
            by=by,
            policy=self._policy,
            files={
                path: AuditedFile(owner=_owner(path), before=before.get(path), after=inputs.sha256.get(path))
                for path in sorted(before.keys() | inputs.sha256.keys())
            },
            changes=changes,
            reason=reason,
        )

    def _append(self, event: Event) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, event.model_dump_json(exclude_defaults=True).encode() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)


def _last_digests(path: Path) -> dict[str, str]:
    """Return the digests of files in use after the last event of an audit log; empty for a new or another file."""
    try:
        with open_regular(path) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - MOST_AT_END, 0))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    with suppress(ValidationError, IndexError):
        return {
            name: file.after
            for name, file in Event.model_validate_json(lines[-1]).files.items()
            if file.after
        }
    return {}


def _owner(path: str) -> str:
    with suppress(OSError, KeyError):
        return Path(path).owner()
    return "?"
