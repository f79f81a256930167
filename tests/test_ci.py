"""Lanes of ``.ci/run``: all of them run to the end, and every failure is reported."""

import subprocess
from pathlib import Path

import pytest

LANES = Path(__file__).parents[1] / ".ci" / "lanes"
#: Two lanes that wait for each other, the second of which may fail; and a third one.
PROGRAM = """
source {lanes}
cd {folder}
first() {{ touch first; until [ -e second ]; do sleep 0.01; done; echo out of the first; }}
second() {{ touch second; until [ -e first ]; do sleep 0.01; done; {command}; echo end of the second; }}
third() {{ echo of the third >&2; }}
export -f first second third
run_lanes first second third
"""


@pytest.mark.parametrize("command", ["true", "false", "false | true"])
def test_a_lane_that_fails_fails_the_run_but_ends_no_other_lane(tmp_path: Path, command: str) -> None:
    program = PROGRAM.format(lanes=LANES, folder=tmp_path, command=command)
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=600)
    passed = command == "true"
    assert (done.returncode == 0) == passed
    blocks = dict(block.split("\n", 1) for block in done.stdout.split("\n== ")[1:])
    said = {title.partition(" in ")[0]: text.strip() for title, text in blocks.items()}
    assert said == {
        "first: passed": "out of the first",
        f"second: {'passed' if passed else 'FAILED'}": "end of the second" if passed else "",
        "third: passed": "of the third",
    }
