"""Child programs that tests start, interrupt and kill."""

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
    """Make Ctrl-C interrupt this process and its children, as at a terminal.

    A shell that starts the tests in the background makes them, and all their children, ignore it.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a new process group that Ctrl-C interrupts; ``options`` as of ``subprocess.Popen``.

    It is killed with all its children after the block, or when the test waits in vain.
    """
    with ctrl_c_strikes():
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **options)

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
