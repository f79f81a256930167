"""Programs of their own that tests start, interrupt and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

#: Far longer than any of them takes on the busiest machine, s.
PATIENCE_S = 600.0


@contextmanager
def ctrl_c_strikes() -> Iterator[None]:
    """Ctrl-C interrupts, here and in programs that are started here, as it does at a terminal.

    A shell that starts the tests in the background has them ignore it, and so would all that they start.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that Ctrl-C interrupts, at the head of a process group; ``options`` as of ``subprocess.Popen``.

    After the block, or should the test wait for it in vain, it is killed with all that it started.
    """
    with ctrl_c_strikes():
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
        )

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    watchdog = threading.Timer(PATIENCE_S, kill)
    watchdog.start()
    try:
        with process:
            try:
                yield process
            finally:
                kill()
    finally:
        watchdog.cancel()
