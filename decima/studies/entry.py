"""The types of the catalogue: a study with its command, and an option of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Entry", "Option"]


@dataclass(frozen=True)
class Option:
    """An option of a study's command, and an argument of the study's function.

    Attributes:
        flags: flags, such as ``--load``, separated by blanks.
        kind: type of the values: a key of ``decima.cli.reproduce.KINDS``, ``flag``, or the choices.
        help: help text.
        default: default value; for a ``multiple`` option an empty tuple unless given.
        name: name of the argument; by default that of the flag.
        metavar: placeholder of the value in the help.
        multiple: whether the option may be repeated; its value is then a tuple.
    """

    flags: str
    kind: str | tuple[str, ...]
    help: str
    default: object = None
    name: str = ""
    metavar: str | None = None
    multiple: bool = False


@dataclass(frozen=True)
class Entry:
    """A study and its command. The help texts of the options document the arguments of the study's function.

    Attributes:
        run: module in ``decima.studies`` and function, such as ``single_resource:fig9a``. The function takes a setup
            and the values of the options, and returns an ``Outcome``.
        help: help text; the first line is a sentence.
        options: options in order; a text is a key of ``decima.cli.reproduce.SHARED``.
        setup: module and class of the function's first argument, which takes its part of the options.
    """

    run: str
    help: str
    options: tuple[Option | str, ...]
    setup: str = "study:Study"
