"""Types of the catalogue of studies: ``Entry``, a study with its command, and ``Option``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option of a study's command, which is an argument of the study's function.

    Attributes:
        flags: flags separated by blanks, and a placeholder of the value, as in ``--loads A,B``; the first flag gives
            the default of ``name``.
        kind: type of values: a key of ``decima.cli.reproduce.KINDS``, ``flag``, or the choices.
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
        options: options in order; a string is a key of ``decima.cli.reproduce.SHARED``.
        setup: module and class of the setup, which takes some of the options.
    """

    run: str
    help: str
    options: tuple[Option | str, ...]
    setup: str = "study:Study"
