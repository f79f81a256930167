"""Progress of commands and trainings: a bar on a terminal, otherwise occasional lines."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["PATIENCE_S", "OnProgress", "progress"]

#: Duration up to which a usually fast command prints no progress without a terminal, s.
PATIENCE_S = 15.0
#: Time after which a command that will take longer prints its first line, s.
SOON_S = 2.0
#: Duration of a phase's first step after which the phase counts as long, s.
LONG_STEP_S = 5.0
#: Interval at which a phase without finished steps is looked at, s.
LOOK_S = 1.0
#: Progress callback, see ``progress``.
OnProgress = Callable[..., None]
#: Maximum time between two lines of progress without a terminal, s.
QUIET_S = 60.0
#: Time over which the recent speed of a phase is measured, s.
RECENT_S = 60.0


@contextmanager
def progress(patience_s: float = 0.0) -> Iterator[OnProgress]:
    """Show progress with the estimated remaining time: a bar on a terminal, otherwise occasional lines on stderr.

    Args:
        patience_s: a command that is expected to take less time prints no line, s.

    Yields:
        A callback whose arguments are the name of the phase and the numbers of finished and of all steps. Options:
        ``work``: fraction of the work in the finished steps, by default their share of all steps; ``note``: text beside
        the bar; ``line``: text of the line; ``now``: whether to print the line immediately; ``within``: whether the
        phase is a part of the current phase, with a second bar and no line.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, emoji=False)
    has_bar = console.is_terminal and not console.is_jupyter
    phase, began_s, latest = _Phase("", 0.0), time.monotonic(), ("", 0, 0, "")
    lock, ended = threading.Lock(), threading.Event()

    def is_long() -> bool:
        elapsed_s = time.monotonic() - began_s
        return elapsed_s >= patience_s or (elapsed_s >= SOON_S and phase.expected_s >= patience_s)

    def print_progress(what: str, done: int, total: int, line: str) -> None:
        phase.told()
        print(f"{line or f'{what}: {done} of {total}'}{phase.left}", file=sys.stderr, flush=True)

    def print_while_waiting() -> None:
        while not ended.wait(LOOK_S):
            with lock:
                what, done, total, _ = latest
                if done < total and is_long() and phase.is_quiet:
                    print_progress(what, done, total, "")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not has_bar) as bars:
        bar = bars.add_task("", total=1.0, count="", note="")
        below = bars.add_task("", total=1.0, count="", note="", visible=False)

        def update(
            what: str,
            done: int,
            total: int,
            *,
            work: float | None = None,
            note: str = "",
            line: str = "",
            now: bool = False,
            within: bool = False,
        ) -> None:
            nonlocal phase, latest
            work = done / max(total, 1) if work is None else work
            begins = what != phase.what and not within
            if begins:
                phase = _Phase(what, work)
            if not within:
                phase.advance(work)
            if has_bar:
                this = below if within else bar
                if begins or (within and done == 0):
                    bars.reset(this)
                bars.update(this, description=what, completed=work, count=f"{done}/{total}", note=note)
                bars.update(below, visible=within and done < total)
            elif not within:
                with lock:
                    latest = what, done, total, line
                    if is_long() and (begins or now or phase.is_quiet):
                        print_progress(what, done, total, line)

        if not has_bar:
            threading.Thread(target=print_while_waiting, daemon=True).start()
        try:
            yield update
        finally:
            ended.set()


class _Phase:
    """Phase of a command without a terminal: time of the last line, and estimate of the remaining time.

    Args:
        what: name of the phase.
        done: fraction of its work that is done at the beginning.
    """

    def __init__(self, what: str, done: float) -> None:
        self.what, self._first, self._done = what, done, done
        self._began_s = self._told_s = time.monotonic()
        self._lines = 0
        #: Times and fractions of the work done: the last ones before ``RECENT_S`` ago, and all since.
        self._recent = deque([(self._began_s, done)])

    @property
    def is_quiet(self) -> bool:
        """Whether a line is due. The first line and the first estimate come sooner than later lines."""
        if self._lines == 0:
            return True
        return time.monotonic() - self._told_s >= (PATIENCE_S if self._lines == 1 else QUIET_S)

    def told(self) -> None:
        """Record that a line was printed."""
        self._told_s = time.monotonic()
        self._lines += 1

    def advance(self, done: float) -> None:
        """Record the fraction of the work that is done."""
        now_s, self._done = time.monotonic(), done
        self._recent.append((now_s, done))
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - RECENT_S:
            self._recent.popleft()

    @property
    def expected_s(self) -> float:
        """Expected duration of the phase, s; 0 if unknown, infinite after ``LONG_STEP_S`` without a step."""
        elapsed_s = time.monotonic() - self._began_s
        if self._done <= self._first:
            return math.inf if elapsed_s >= LONG_STEP_S else 0.0
        return elapsed_s / (self._done - self._first) * (1 - self._first)

    @property
    def left(self) -> str:
        """Estimated remaining time as text; empty before a hundredth of the work, as the first steps are slow.

        It follows from the average speed of the phase or that of the last minute, whichever is higher: the first steps
        are often the slowest, because code is compiled, workers start, or large work items run first.
        """
        elapsed_s = time.monotonic() - self._began_s
        done = self._done - self._first
        if done < 0.01 or self._done >= 1 or elapsed_s < 1:
            return ""
        since_s, before = self._recent[0]
        recent = (self._done - before) / (time.monotonic() - since_s)
        left_s = (1 - self._done) / max(done / elapsed_s, recent)
        return f"; about {left_s:.0f} s left" if left_s < 100 else f"; about {left_s / 60:.0f} min left"
