"""Shared options of commands, and types of option values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from decima.schedulers.guarantees import Guarantees

#: Both names of the option for the number of experiments.
SEEDS = "--seeds --experiments"
#: Types of options with any text, and of options without value.
TEXT, FLAG = click.STRING, "flag"
#: Decorator that adds options to a command.
Option = Callable[[Any], Any]


def _plain(value: Any) -> bool:
    """Return whether a number has only ASCII digits and no underscores; Python also accepts 1_0 and other scripts."""
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


#: Maximum time, s: three hundred years, at which sums are still exact to the millisecond.
MOST_S = 10**10
#: Maximum seed of a sequence, and default maximum of integers, above any number of objects that memory can hold.
MOST_SEED, MOST = 2**63 - 1, 10**8
_TECHNICAL = (MOST_S, MOST_SEED, MOST)


def _range_text(kind: Any, full: str) -> str:
    """Describe a range for the help, without a technical maximum; ``full``: description with both bounds."""
    if kind.max not in _TECHNICAL:
        return full
    return "" if kind.min == -MOST_S else f"x{'>' if kind.min_open else '>='}{kind.min}"


def _check_maximum(kind: Any, value: float, param: click.Parameter | None, ctx: click.Context | None) -> None:
    """Refuse a number above a technical maximum."""
    if kind.max in _TECHNICAL and value > kind.max:
        kind.fail(f"{value} is above the maximum, {kind.max:,}", param, ctx)


class FiniteRange(click.FloatRange):
    """Range of numbers without NaN and infinity."""

    name = "number"

    def _describe_range(self) -> str:
        return _range_text(self, super()._describe_range())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value, see ``click.FloatRange``."""
        if not _plain(value) or not math.isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        _check_maximum(self, float(value), param, ctx)
        return super().convert(value, param, ctx)


class RangeOrNever(FiniteRange):
    """Range of times, or the word ``never``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value, see ``click.FloatRange``."""
        return value if value == "never" else super().convert(value, param, ctx)


class WholeRange(click.IntRange):
    """Range of integers."""

    name = "integer"

    def _describe_range(self) -> str:
        return _range_text(self, super()._describe_range())

    def __init__(self, least: int = 0, most: int = MOST) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value, see ``click.IntRange``."""
        if not _plain(value) or len(str(value)) > 30:
            self.fail(f"{value!r:.40} is not a valid integer", param, ctx)
        _check_maximum(self, click.INT.convert(value, param, ctx), param, ctx)
        return super().convert(value, param, ctx)


AT_LEAST_ONE = WholeRange(1)
EXECUTORS = WholeRange(1, 1_000_000)
#: Seeds of sequences, and seeds of evaluations on grids, which are below the seeds of trainings.
SEED, COMPARISON_SEED = WholeRange(0, MOST_SEED), WholeRange(0, 999_999)
ANY_NUMBER = FiniteRange(-MOST_S, MOST_S)
NOT_NEGATIVE = FiniteRange(0, MOST_S)
ABOVE_ZERO = FiniteRange(0, MOST_S, min_open=True)
#: Range of the standard deviation of an error's logarithm, and range of shares.
LOG_ERROR, SHARE = FiniteRange(0, 5), FiniteRange(0, 1)
#: Existing files and folders to read, and paths to write, which commands check before their work.
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
PATH = click.Path(path_type=Path)


class PolicyFile(click.Path):
    """Path of an existing policy file; the folder of a training stands for its ``policy.npz``."""

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value, see ``click.Path``."""
        from decima.policy.file_format import POLICY

        path = Path(str(super().convert(value, param, ctx)))
        if path.is_dir():
            if not (path / POLICY).is_file():
                self.fail(f"the folder {str(path)!r} contains no {POLICY}", param, ctx)
            return path / POLICY
        beside = path.with_name(POLICY)
        if path.suffix in (".pt", ".yaml") and beside.is_file():
            self.fail(f"{str(path)!r} is not a policy file (did you mean {str(beside)!r}?)", param, ctx)
        return path


POLICY_FILE = PolicyFile()


class FileToWrite(click.Path):
    """Path of a file to write, whose name must have one of some endings."""

    def __init__(self, *endings: str) -> None:
        super().__init__(path_type=Path)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a value, see ``click.Path``."""
        path = Path(str(super().convert(value, param, ctx)))
        if not path.name.lower().endswith(self.endings):
            self.fail(f"{str(value)!r}: expected a name ending in {' or '.join(self.endings)}", param, ctx)
        return path


class SecondaryOption(click.Option):
    """Option for secondary outputs, files or speed. It never changes the results."""


def option(
    flags: str, kind: Any, help: str, default: Any = None, *, name: str | None = None, **others: Any
) -> Option:
    """Return a decorator that adds an option.

    Args:
        flags: flags separated by blanks, and a placeholder of the value for the help, as in ``--out FOLDER``.
        kind: type of the value; ``FLAG`` for an option without value.
        name: name of the parameter; by default that of the first flag.
        others: further arguments of ``click.option``.
    """
    words = flags.split()
    placeholders = [word for word in words if not word.startswith("-")]
    others |= {"is_flag": True} if kind == FLAG else {"type": kind}
    others |= {"metavar": placeholders[0]} if placeholders else {}
    others |= {} if default is None else {"default": default}
    names = [*words[: len(words) - len(placeholders)], *([name] if name else [])]
    return click.option(*names, help=help, **others)


def secondary(flags: str, kind: Any, help: str, default: Any = None, **others: Any) -> Option:
    """Return a decorator that adds a ``SecondaryOption``; for the arguments see ``option``."""
    return option(flags, kind, help, default, cls=SecondaryOption, **others)


def with_options(*options: Option) -> Option:
    """Return a decorator that adds several options in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


JSON = secondary("--json", PATH, "Also write the results to this file.", name="json_file")


class WorkersType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """Specification of workers, see ``decima.workers.pool.check_workers``."""

    name = "workers"

    def convert(
        self, value: int | str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return a number of processes, or a text that specifies Ray actors."""
        from decima.workers import WorkerError
        from decima.workers.pool import check_workers

        try:
            return check_workers(value)
        except WorkerError as error:
            self.fail(str(error), param, ctx)


def workers_option(default: str) -> Option:
    """Return the option ``--workers``, None by default; ``default``: meaning of None, for the help."""
    return secondary(
        "--workers --processes N|ray[:N]|ray://HOST:PORT",
        WorkersType(),
        "Workers: N processes on this machine; or N actors (by default one for each CPU) of a Ray cluster: the "
        "cluster at HOST:PORT or in RAY_ADDRESS, otherwise a new one on this machine.  "
        f"[default: {default}]",
    )


WORKERS = workers_option("a process for each CPU")


def out_option(default: str | None = None) -> Option:
    """Return the option ``--out``, the folder for pictures; without a default, pictures need the option."""
    if default is None:
        return secondary("--out FOLDER", PATH, "Draw pictures of the results in this folder.")
    return secondary("--out FOLDER", PATH, "Folder for pictures.", Path(default))


def workload_options(default: str = "tpch") -> Option:
    """Return both options for a workload, see ``workload_named``; ``default``: default value, for the help."""
    return with_options(
        option(
            "--workload NAME|DIR|FILE",
            TEXT,
            "Jobs: tpch (extrapolated from Spark at 1 and 2 GB), synthetic (random DAGs), a folder of the "
            "published TPC-H profiles, or a workload file; if the file has arrival times, each experiment replays them "
            f"with other task noise.  [default: {default}]",
        ),
        option("--profiles", FOLDER, "Folder of the published TPC-H profiles, same as --workload DIR."),
    )


def guarantee_options(what: str) -> Option:
    """Return options for guarantees, see ``guarantees_named``; ``what``: the guaranteed object, for the help."""
    return with_options(
        option(
            "--floor TENANT=SHARE,..",
            TEXT,
            f"Minimum share of the executors for a tenant while it has enough work; a guarantee for {what}.",
        ),
        option("--ceiling TENANT=SHARE,..", TEXT, "Maximum share of the executors for a tenant."),
        option(
            "--no-later-than FACTOR",
            FiniteRange(1, MOST_S),
            "Maximum ratio of a job's JCT and its JCT under fair sharing, at least 1. The guarantee has an "
            "additive term, see the guide on guarantees.",
        ),
    )


def guarantees_named(options: dict[str, Any]) -> Guarantees | None:
    """Remove the values of ``guarantee_options`` from the options of a command, and return the guarantees, if any."""
    texts = {what: options.pop(what) for what in ("floor", "ceiling")}
    factor = options.pop("no_later_than")
    if factor is None and set(texts.values()) == {None}:
        return None
    from decima.schedulers.guarantees import Guarantees, parse_shares

    shares = {what: {} if text is None else parse_shares(text, what) for what, text in texts.items()}
    return Guarantees(**shares, no_later_than=math.inf if factor is None else factor)


def workload_named(workload: str | None, profiles: Path | None) -> str | Path | None:
    """Return the value of ``--workload`` or ``--profiles`` for ``open_workload``; None without both options."""
    if workload == "":
        raise click.UsageError("--workload: expected a name, a folder or a file")
    if workload is not None and profiles is not None:
        raise click.UsageError("--profiles and --workload exclude each other")
    return profiles if workload is None else workload


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """Numbers separated by commas. The value remains a text for the command line that reproduces results.

    Args:
        expected: description of a valid value, for the error message.
        kind: converts a text to a number.
        count: number of numbers; 0: any number.
        least: minimum of each number.
    """

    name = "numbers"

    def __init__(
        self,
        expected: str = "numbers separated by commas",
        kind: Callable[[str], float] = float,
        count: int = 0,
        least: float = -math.inf,
    ) -> None:
        self.expected, self.kind, self.count, self.least = expected, kind, count, least

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text after a check."""
        try:
            if not _plain(value):
                raise ValueError(value)
            self.parse(value)
        except ValueError:
            self.fail(f"{value!r}: expected {self.expected}", param, ctx)
        return value

    def parse(self, text: str | None) -> tuple[Any, ...]:
        """Return the numbers in a text; an empty tuple for None."""
        numbers = () if text is None else tuple(self.kind(part) for part in text.split(","))
        is_valid = all(number >= self.least and math.isfinite(number) for number in numbers)
        if not is_valid or self.count not in (0, len(numbers)):
            raise ValueError(text)
        return numbers


def is_given(context: click.Context, name: str) -> bool:
    """Return whether the user gave an option."""
    return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def refuse_without_effect(context: click.Context, why: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if an option without effect was given; ``why``: name -> reason."""
    for name, reason in why.items():
        if is_given(context, name):
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect: {reason}")
