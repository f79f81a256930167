"""Catalogue of all studies, each with function, help text and options of its command ``decima reproduce NAME``.

The module has no slow imports, so that ``decima --help`` is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decima.show.tables import Report


@dataclass(frozen=True)
class Option:
    """An option of a study's command, which is an argument of the study's function.

    Attributes:
        flags: flags separated by blanks, and a placeholder of the value, as in ``--loads A,B``; the first flag gives
            the default of ``name``.
        kind: type of values: a key of ``decima.cli.main.KINDS``, ``flag``, or the choices.
        multiple: whether the option may be repeated; its value is then a tuple, by default empty.
    """

    flags: str
    kind: str | tuple[str, ...]
    help: str
    default: object = None
    name: str = ""
    multiple: bool = False


@dataclass(frozen=True)
class Entry:
    """A study and its command; help texts of options document the arguments of the study's function.

    Attributes:
        run: module in ``decima.studies`` and function, such as ``single_resource:fig9a``. The function receives a
            setup and the option values, and returns an ``Outcome``.
        options: options in order; a string is a key of ``decima.cli.main.SHARED``.
        setup: module and class of the setup, which takes some of the options.
    """

    run: str
    help: str
    options: tuple[Option | str, ...]
    setup: str


def _found(place: str) -> Any:
    """Import a function or class of ``decima.studies`` from a text ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"decima.studies.{module}"), name)


def run_study(
    name: str,
    values: Mapping[str, Any],
    command: str = "",
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
    given: Collection[str] = (),
) -> Report:
    """Run the study ``name`` with the values of all options of its command, by argument name.

    ``given`` names the options that the user gave; ``command`` is recorded, ``tell`` shows progress.
    """
    entry, left = STUDIES[name], dict(values)
    setup = _found(entry.setup).of_options(left, command=command, tell=tell, given=frozenset(given))
    shown: Report = _found(entry.run)(setup, **left).shown(command)
    return shown


#: An option that may be repeated.
Repeated = partial(Option, multiple=True)


def _grid(run: str, help: str, *options: Option) -> Entry:
    """Return a study on DeepRM's grid."""
    grid: tuple[Option | str, ...] = (
        "budget",
        Option("--sets", "at least 2", "Number of unseen job sets in the comparison.", 100),
        Option("--seed", "comparison seed", "Seed of the unseen job sets and of training.", 0),
        *("policies", "workers: 1"),
    )
    return Entry(run, help, (*options, *grid), "grid_study:GridStudy")


#: Name -> study.
STUDIES: dict[str, Entry] = {
    "deeprm-fig4": _grid("deeprm:fig4", """Compare DeepRM with heuristics as the load grows.

        A network is trained at each load (DeepRM, Figure 4). About 70 minutes of CPU time (28 at --budget 0.4).""",
        Repeated("--load", "above 0",
            "Load in percent; may be given several times.  [default: 10, 30, .. 170, 184.5]",
            name="loads")),
    "deeprm-fig5": _grid("deeprm:fig5", """Compare networks trained for slowdown and for completion time.

        At a load of 130 % (DeepRM, Figure 5). About 15 minutes of CPU time."""),
    "deeprm-fig6": _grid("deeprm:fig6", """Show how fast DeepRM learns.

        At a load of 70 % (DeepRM, Figure 6). About 10 minutes of CPU time."""),
    "deeprm-fig7": _grid("deeprm:fig7", """Show which jobs DeepRM withholds, and which jobs gain.

        At a load of 110 % (DeepRM, Figure 7). About 7 minutes of CPU time."""),
    "cnn-fig2": _grid("successors:fig2", """Compare a convolution, the reshaped state and reward weights with DeepRM.

        On jobs at a load of 70 % (Chen, Xu and Wu, 2017, Figure 2). About 10 minutes of CPU time.""",
        Repeated("--weights A,B,C", "weights",
            "Weights alpha, beta and gamma of a reward; may be given several times.", ("1,1,2", "0.5,1,1"))),
    "cnn-fig3": _grid("successors:fig3", """Compare a network for two machines with heuristics.

        At a load of 70 % of both (Chen, Xu and Wu, 2017, Figure 3). About 8 minutes of CPU time."""),
    "a2c-tables": _grid(
        "successors:a2c_tables",
        """Compare actor-critic training with heuristics at four rates of arrival.

        Slowdown, completion and waiting time; architectures; a real log (A2cScheduler, 2020). About 25 minutes of
        CPU time.""",
        Option("--log", "file", "Also compare on this log in Standard Workload Format."),
        Option("--log-load", "above 0", "Load in percent to which the log is resampled.", 70.0)),
}  # fmt: skip
