"""Progress of a training on stderr: phases, and what each iteration achieved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from decima.progress import progress
from decima.settings import TRAINING, VALIDATION, Progress

if TYPE_CHECKING:
    from decima.learning.metrics import IterationReport

__all__ = ["training_progress"]

OnIteration = Callable[["IterationReport"], None]


@contextmanager
def training_progress(
    against: str,
    describe: Callable[[Mapping[str, float]], Sequence[str]],
    on_iteration: OnIteration | None = None,
    work: Sequence[float] | None = None,
) -> Iterator[tuple[OnIteration, Progress]]:
    """Show the progress of a training, with the estimated remaining time.

    Args:
        against: name of the reference scheduler.
        describe: function that returns texts for the metrics of an iteration.
        on_iteration: called with each report, too.
        work: fraction of the training's work before each iteration, and 1; by default all iterations have the same.

    Yields:
        The arguments of ``TrainingLoop.run``.
    """

    def versus(improvement: float) -> str:
        return f"{abs(improvement):.1%} {'better' if improvement >= 0 else 'worse'} than {against}"

    def work_done() -> float | None:
        phase, done, _ = now
        return work[done] if work is not None and phase == TRAINING else None

    now = ("", 0, 0)  # the current phase
    with progress() as update:

        def show_iteration(report: IterationReport) -> None:
            nonlocal now
            parts, note = [_position(report), *describe(report.metrics)], ""
            is_validated = "improvement" in report.metrics
            if is_validated:
                parts[-1] += f", {versus(report.metrics['improvement'])}"
            if report.iteration >= 0:
                note = f"best: {versus(report.improvement)}"
                parts.append(note)
            if now[0] == TRAINING:
                now = (TRAINING, report.iteration, report.iterations)
            update(*now, work=work_done(), note=note, line="; ".join(parts), now=is_validated)
            if on_iteration is not None:
                on_iteration(report)

        def show_phase(phase: str, done: int, total: int) -> None:
            nonlocal now
            if phase == VALIDATION:
                update(phase, done, total, within=True)
                return
            begins, now = phase != now[0], (phase, done, total)
            if begins or phase != TRAINING:  # iterations print their own lines
                update(*now, work=work_done())

        yield show_iteration, show_phase


def _position(report: IterationReport) -> str:
    if report.iteration >= 0:
        return f"{report.iteration}/{report.iterations}"
    return f"{-report.iteration} {'epoch' if report.iteration == -1 else 'epochs'} of behaviour cloning left"
