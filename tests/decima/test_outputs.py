import json
import math
import signal
import threading
from pathlib import Path

import pytest

from decima import outputs
from decima.evaluation.documents import json_text
from decima.show.visible import visible
from tests.cases import cases
from tests.programs import ctrl_c_strikes


def test_an_interrupted_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    target.write_text("old")

    def write_half_and_stop() -> None:
        with outputs.atomic_path(target) as path:
            path.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half_and_stop()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_files_are_replaced_or_written_directly(tmp_path: Path) -> None:
    target, link = tmp_path / "results.json", tmp_path / "latest.json"
    target.write_text("old")
    link.symlink_to(target)
    with outputs.atomic_path(link) as path:
        path.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    outputs.check_file(Path("/dev/null"))
    with outputs.atomic_path(Path("/dev/null")) as path:
        assert path == Path("/dev/null")


def test_checks_leave_nothing_and_refusals_name_the_file(tmp_path: Path) -> None:
    existing = tmp_path / "results.json"
    existing.write_text("old")
    outputs.check_file(existing)
    outputs.check_file(tmp_path / "fresh.json")
    outputs.make_folder(tmp_path / "a" / "b")
    assert existing.read_text() == "old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "results.json"]
    (tmp_path / "file").touch()
    with pytest.raises(outputs.OutputError, match=r"^cannot write into the folder .*file/sub: Not a directory$"):
        outputs.make_folder(tmp_path / "file" / "sub")
    with pytest.raises(outputs.OutputError, match=r"^cannot write into the folder .*file: File exists$"):
        outputs.make_folder(tmp_path / "file")
    with pytest.raises(outputs.OutputError, match=r"^cannot write .*missing/results\.json: No such file"):
        outputs.check_file(tmp_path / "missing" / "results.json")
    with pytest.raises(outputs.OutputError, match=r"is a folder$"):
        outputs.check_file(tmp_path)


def test_a_file_may_lie_in_the_folder_that_is_made_for_the_others(tmp_path: Path) -> None:
    outputs.prepare_outputs(tmp_path / "out", tmp_path / "out" / "results.json", None)
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]
    with pytest.raises(outputs.OutputError, match=r"^cannot write .*missing/results\.json: No such file"):
        outputs.prepare_outputs(tmp_path / "out", tmp_path / "missing" / "results.json")


def test_ctrl_c_waits_until_what_belongs_together_is_written() -> None:
    done = []

    def write() -> None:
        with outputs.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with ctrl_c_strikes():
        with pytest.raises(KeyboardInterrupt):
            write()
        assert done == ["the rest"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_without_ctrl_c_nothing_happens_even_in_other_threads() -> None:
    done = []

    def work() -> None:
        with outputs.uninterrupted():
            done.append(threading.current_thread())

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [threading.main_thread(), thread]


@cases(
    "text, shown",
    ("plain, ünïcode and\ta tab\nand a line", "plain, ünïcode and\ta tab\nand a line"),
    ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ("bell\x07, back\x08, \x9b2J", "bell\\x07, back\\x08, \\x9b2J"),
)
def test_control_characters_are_seen_and_do_nothing(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_json_has_neither_infinity_nor_nan() -> None:
    """NaN and infinity become null at any depth; other values stay."""
    unknown = [math.inf, -math.inf, math.nan]
    content = {"a": unknown, "b": {"c": (1.5, math.inf), "d": -math.inf}, "e": [0.0, 3, True, "Infinity", None]}
    text = json_text(content)

    def no_number(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(text, parse_constant=no_number) == {
        "a": [None] * 3,
        "b": {"c": [1.5, None], "d": None},
        "e": [0.0, 3, True, "Infinity", None],
    }
