"""How commands end, show progress, and print results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.table import Table

from decima import progress as progress_module
from decima.cli import console
from decima.cli.console import Commands, OneLineErrors, command_line, end, make_console, report
from decima.cli.options import SecondaryOption
from decima.outputs import OutputError
from decima.progress import progress
from decima.show.tables import Report
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error, succeeded
from workloads.errors import ConfigError, DecimaError, SchedulingError

# Errors and statuses


def ended(by: Callable[[], Any]) -> Result:
    """Run a command with this function as its body."""
    group = OneLineErrors("group", {"it": click.Command("it", callback=by)})
    return CliRunner().invoke(group, ["it"])


def raised(error: BaseException) -> Result:
    def fail() -> None:
        raise error

    return ended(fail)


@cases(
    "error, told, status",
    (DecimaError("two\n  lines"), "error: two lines", 2),
    (ConfigError("it is odd"), "error: it is odd", 2),
    (OutputError("it is full"), "error: it is full", 2),
    (SchedulingError("it cannot end"), "error: it cannot end", 1),
    (FileNotFoundError(2, "No such file or directory", "x.json"), "error: x.json: No such file or directory", 2),
    (IsADirectoryError(21, "Is a directory", "x.json"), "error: x.json: Is a directory", 2),
    (OSError(28, "No space left on device"), "error: No space left on device", 1),
    (OSError("a reason without a number"), "error: a reason without a number", 1),
    (MemoryError(), "error: not enough memory", 1),
    (click.UsageError("it is odd"), "error: it is odd", 2),
    (click.ClickException("it is odd"), "error: it is odd", 1),
    (KeyboardInterrupt(), "interrupted", 130),
    (click.Abort(), "interrupted", 130),
)
def test_what_is_refused_is_a_line_and_a_status(error: BaseException, told: str, status: int) -> None:
    result = raised(error)
    assert (result.stderr, result.stdout, result.exit_code) == (f"decima: {told}\n", "", status)


def test_a_status_is_passed_on_also_of_a_closed_output() -> None:
    assert ended(lambda: 4).exit_code == 4
    succeeded(ended(lambda: "text"))
    succeeded(ended(lambda: None))
    assert raised(SystemExit(3)).exit_code == 3
    assert "test_console.py, line " in raised(SystemExit(0)).stderr
    assert raised(SystemExit(0)).exit_code == 1
    result = raised(BrokenPipeError(32, "Broken pipe"))
    assert (result.exit_code, result.stderr) == (1, "")


def test_a_caller_from_python_gets_value_and_error() -> None:
    group = OneLineErrors("group", {"it": click.Command("it", callback=lambda: "value")})
    assert group.main(["it"], standalone_mode=False) == "value"
    with pytest.raises(click.UsageError, match="No such command"):
        group.main(["other"], standalone_mode=False)
    assert_one_line_error(CliRunner().invoke(group, ["other"]), "No such command 'other'. Expected one of it.")
    refused = CliRunner().invoke(group, ["it", "--more"]).stderr
    assert "No such option" in refused
    assert "Expected one of" not in refused


def test_a_group_lists_whole_sentences() -> None:
    sentence = "Show a sentence of nearly one hundred characters, which does not fit into the first line of a list."
    group = Commands("group", {"it": click.Command("it", help=sentence)}, help="About the group.")
    root = OneLineErrors("root", {"group": group})
    for words in ([], ["group"], ["group", "--help"]):
        result = succeeded(CliRunner().invoke(root, words))
        assert result.stdout.startswith("Usage: ")
    assert sentence in " ".join(result.stdout.split())


def test_ctrl_c_ends_the_line_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True), exit=exit))
    assert raised(KeyboardInterrupt()).stderr == "\ndecima: interrupted\n"


@pytest.mark.parametrize(("length", "is_cut"), [(292, False), (293, True), (5000, True)])
def test_an_error_has_at_most_300_characters(length: int, is_cut: bool, capsys: pytest.CaptureFixture[str]) -> None:
    message = f"{'a' * (length - 5)}  END"
    with pytest.raises(SystemExit) as exit:
        end(message, 7)
    said = capsys.readouterr().err
    line = f"decima: {'a' * (length - 5)} END"
    if len(line) > 300:
        line = f"{line[:200]} [..] {line[-94:]}"
    assert said == f"{line}\n"
    assert len(line) == min(length + 7, 300)
    assert exit.value.code == 7


def test_a_long_error_is_cut_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"word-{number:03}" for number in range(100)]
    with pytest.raises(SystemExit):
        end(f"expected one of {', '.join(words)}", 2)
    head, tail = capsys.readouterr().err.split(" [..] ")
    shown = [each.rstrip(",\n") for each in (*head.removeprefix("decima: expected one of ").split(), *tail.split())]
    assert set(shown) <= set(words)
    assert 200 < len(head) + len(tail) <= 300


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Clock of progress messages; its time changes only when a test sets it."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    monkeypatch.setattr(progress_module, "LOOK_S", 1e6)
    return clock


def test_there_is_a_line_for_each_phase_and_then_now_and_then(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(after_s: float, *given: Any, **options: Any) -> str:
        clock.now_s += after_s
        update(*given, **options)
        return capsys.readouterr().err

    with progress() as update:
        said(0, "many", 0, 1000)
        assert said(60, "many", 9, 1000) == "many: 9 of 1000\n"
        assert said(60, "many", 10, 1000) == "many: 10 of 1000; about 198 min left\n"
        assert said(0, "one", 0, 10) == "one: 0 of 10\n"
        assert said(14.9, "one", 1, 10) == ""
        assert said(0.1, "one", 2, 10) == "one: 2 of 10; about 60 s left\n"  # the first estimate comes soon
        assert said(59.9, "one", 3, 10) == ""
        assert said(0.1, "one", 3, 10) == "one: 3 of 10; about 3 min left\n"
        assert said(5, "one", 4, 10, line="4/10: well", now=True) == "4/10: well; about 2 min left\n"
        assert said(5, "one", 4, 10, line="4/10: well") == ""
        assert said(60, "a check", 1, 2, within=True) == ""  # it interrupts, and has no line
        assert said(0, "one", 10, 10, now=True) == "one: 10 of 10\n"
        # Another phase that goes on from somewhere; nothing is known yet.
        assert said(0, "two", 5, 9) == "two: 5 of 9\n"
        assert said(0.5, "two", 6, 9, now=True) == "two: 6 of 9\n"
        assert said(0.5, "two", 6, 9, now=True) == "two: 6 of 9; about 3 s left\n"
        assert said(32, "two", 6, 9, now=True) == "two: 6 of 9; about 99 s left\n"
        assert said(1, "two", 6, 9, now=True) == "two: 6 of 9; about 2 min left\n"


def test_the_estimate_follows_a_phase_that_becomes_faster(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(after_s: float, done: int) -> str:
        clock.now_s += after_s
        update("one", done, 20, now=True)
        return capsys.readouterr().err.partition("; ")[2]

    with progress() as update:
        said(0, 0)
        assert said(600, 1) == "about 190 min left\n"  # with the compilation
        estimates = [said(10, done) for done in range(2, 20)]
        assert estimates[9:] == [f"about {10 * left} s left\n" for left in range(9, 0, -1)]
        assert said(10, 20) == ""


def test_the_estimate_follows_the_work_of_the_steps(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as update:
        update("one", 0, 10, work=0.0)
        clock.now_s += 10
        update("one", 5, 10, work=0.1, now=True)
    assert capsys.readouterr().err.splitlines()[-1] == "one: 5 of 10; about 90 s left"


def test_a_command_that_is_mostly_quick_is_patient(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(progress_module.PATIENCE_S) as update:
        update("one", 0, 10)
        clock.now_s += 14.9
        update("two", 0, 10, now=True)
        assert capsys.readouterr().err == ""
        clock.now_s += 0.1
        update("three", 0, 10)
        assert capsys.readouterr().err == "three: 0 of 10\n"


def test_a_command_that_will_take_long_says_so_soon(clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(progress_module.PATIENCE_S) as update:
        update("one", 0, 100)
        clock.now_s += 1.9
        update("one", 10, 100)
        assert capsys.readouterr().err == ""
        clock.now_s += 0.1
        update("one", 14, 100)
        assert capsys.readouterr().err == ""  # it will take 14 s
        update("one", 13, 100)
        assert capsys.readouterr().err == "one: 13 of 100; about 13 s left\n"


def test_a_long_step_is_not_silent(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    said: Queue[str] = Queue()
    monkeypatch.setattr(progress_module, "LOOK_S", 0.01)
    monkeypatch.setattr(progress_module, "print", lambda line, **_: said.put(line), raising=False)
    with progress(progress_module.PATIENCE_S) as update:
        update("one", 0, 1)
        clock.now_s += 4.9
        time.sleep(0.1)
        assert said.empty()
        clock.now_s += 0.1
        assert said.get(timeout=60) == "one: 0 of 1"
        for _ in range(2):
            time.sleep(0.1)
            assert said.empty()
            clock.now_s += 60
            assert said.get(timeout=60) == "one: 0 of 1"
        update("one", 1, 1)
        clock.now_s += 60
        time.sleep(0.1)
    assert said.empty()


class Bars:
    """A stand-in for the progress bars of rich."""

    made: Bars

    def __init__(self, *columns: object, **options: Any) -> None:
        self.options, self.tasks, self.was_reset = options, [], []
        Bars.made = self

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def add_task(self, description: str, **given: Any) -> int:
        self.tasks.append({"visible": True, "description": description, **given})
        return len(self.tasks) - 1

    def reset(self, task: int) -> None:
        self.was_reset.append(task)

    def update(self, task: int, **given: Any) -> None:
        self.tasks[task] |= given


def test_on_a_terminal_there_is_a_bar_and_one_below_for_what_interrupts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.progress.Progress", Bars)
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    with progress() as update:
        bars = Bars.made
        assert bars.options["disable"] is False
        assert [task["visible"] for task in bars.tasks] == [True, False]
        update("one", 0, 4)
        update("one", 1, 4, note="best")
        assert bars.was_reset == [0]
        expected = {"description": "one", "completed": 0.25, "total": 1.0, "count": "1/4", "note": "best"}
        assert bars.tasks[0] == {"visible": True, **expected}
        update("check", 0, 2, within=True)
        update("check", 1, 2, within=True)
        assert bars.was_reset == [0, 1]
        assert (bars.tasks[1]["description"], bars.tasks[1]["visible"]) == ("check", True)
        update("check", 2, 2, within=True)
        assert bars.tasks[1]["visible"] is False
        assert bars.tasks[0]["description"] == "one"
        update("one", 2, 4)
        assert bars.was_reset == [0, 1]
        update("two", 0, 3)
        assert bars.was_reset == [0, 1, 0]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("rich.console.Console.is_terminal", False)
    with progress():
        assert Bars.made.options["disable"] is True


@cases(
    "names, told",
    ((), None),
    (("a",), "picture: out/a.png"),
    (("a", "b"), "pictures: out/a.png, out/b.png"),
    (("a", "b", "c"), "3 pictures in out"),
)
def test_results_are_shown_and_saved(
    names: tuple[str, ...], told: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out").mkdir()
    monkeypatch.setattr("decima.show.style.save_figure", lambda figure, path: path.write_text(figure))
    table = Table(title="It")
    shown = Report([table], ["note [b]"], json.dumps({}), {name: lambda name=name: name for name in names})
    report(shown, Path("out"), Path("r.json"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == (told or "note [b]")
    assert "note [b]" in lines
    assert Path("r.json").read_text() == "{}"
    assert {path.name: path.read_text() for path in Path("out").iterdir()} == {f"{name}.png": name for name in names}
    report(shown, None, None)
    assert capsys.readouterr().out.splitlines()[-1] == "note [b]"


def test_tables_are_never_narrower_than_80_columns_or_120_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, is_terminal, expected in ((40, True, 80), (100, True, 100), (40, False, 120), (200, False, 200)):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("rich.console.Console.is_terminal", is_terminal)
        assert make_console().width == expected


def test_the_command_that_gives_the_results_again_has_all_they_depend_on() -> None:
    said = []

    @click.group()
    @click.option("--allow-parts", multiple=True)
    def root(allow_parts: tuple[str, ...]) -> None:
        pass

    @root.command()
    @click.option("--number", default=3)
    @click.option("--absent")
    @click.option("--many", multiple=True)
    @click.option("--flag", is_flag=True)
    @click.option("--yes/--no", default=True)
    @click.option("--out", cls=SecondaryOption, default="folder")
    @click.argument("files", nargs=-1)
    @click.pass_context
    def it(context: click.Context, **_: object) -> None:
        said.extend([command_line(context), command_line(context, number=None, out="DIR", absent="a b")])

    def told(words: str) -> list[str]:
        said.clear()
        assert CliRunner().invoke(root, words.split(), prog_name="anything").exit_code == 0
        return said

    assert told("it") == ["decima it --number 3 --yes", "decima it --absent 'a b' --yes --out DIR"]
    assert told("--allow-parts x it --many a --many b --flag --no f g")[0] == (
        "decima --allow-parts x it --number 3 --many a --many b --flag --no f g"
    )
