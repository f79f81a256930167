"""Whether a policy in shadow mode should take charge: criteria in the report of a log, and the gain of the policy."""

import json
import re
from typing import Any

import pytest

from decima.schedulers.fifo import Fifo
from decima.service.history import History
from decima.service.log import DecisionLog, Line, Started, read_log
from decima.service.protocol import Answer, Missed, StateMessage
from decima.service.readiness import MOST_ERROR, Criterion, Readiness
from decima.service.service import Service
from decima.service.summary import summary_report
from tests.cases import cases
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import a_hello
from tests.decima.service.test_driver import PROFILES, SEQUENCES, SLOTS, arriving


@pytest.fixture(scope="module")
def shadow(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """Return the log of a driver in Spark's FIFO order, which srpt watched. Every tenth question reports a late one."""
    path = tmp_path_factory.mktemp("shadow") / "log.jsonl"
    service = Service(Fifo, History(PROFILES), watchers=[log := DecisionLog(path, "srpt", shadow=True)])
    driver, _ = service.welcome(a_hello(name="etl").model_dump_json().encode())

    def ask(state: StateMessage) -> Answer:
        late = int(state.seq % 10 == 0)
        missed = Missed(late=late, fallback_ms=200.0 * late, reason="it did not answer within 200 ms" if late else "")
        answer = service.answer(driver, state.model_copy(update={"missed": missed}).model_dump_json().encode())
        service.answered(driver)
        return answer

    ScriptedSpark(arriving(SEQUENCES["batch"][0]), ask, SLOTS).run()
    log.close()
    return list(read_log(path))


def found(lines: list[Line]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(summary_report(lines, 200.0).json)
    return result


def test_the_report_says_whether_the_policy_should_take_charge(shadow: list[Line]) -> None:
    report = summary_report(shadow, 200.0)
    line = report.notes[0]
    assert line.startswith("Ready to take charge? No: ")
    assert "\n" not in line
    decisions, missed, failures, error, gain = found(shadow)["criteria"]
    assert not decisions["is_met"]
    assert not missed["is_met"]
    assert failures == {"text": "failures of the policy: 0, at most 0", "is_met": True}
    assert error["is_met"], error
    assert "simulated Spark FIFO" in error["text"]
    [known] = re.findall(r"srpt would have saved: (\S+)% with known task times", gain["text"])
    assert float(known) > 5
    [driver] = found(shadow)["drivers"]
    late = driver["questions"] // 10
    assert driver["missed"] == {
        "late": late, "lost": 0, "fallback_ms": 200.0 * late, "reason": "it did not answer within 200 ms"
    }  # fmt: skip
    assert report.tables[2].columns[2]._cells == [str(late)]
    assert found(shadow)["missed_share"] == pytest.approx(late / (driver["questions"] + late))


@cases(
    "change, criterion, text",
    ({"policy": "missing.npz"}, 3, "no simulation: "),
    ({"policy": "fifo"}, 4, "mean JCT that fifo would have saved: "),
)
def test_what_speaks_against_it(change: dict[str, str], criterion: int, text: str, shadow: list[Line]) -> None:
    lines = [line.model_copy(update=change) if isinstance(line, Started) else line for line in shadow]
    result = found(lines)
    assert result["ready"] is False
    assert result["criteria"][criterion]["text"].startswith(text)
    assert not result["criteria"][criterion]["is_met"]


def test_tasks_that_ran_twice_as_long_are_an_error_of_the_prediction(shadow: list[Line]) -> None:
    """The clock of the driver runs at half its speed in the report of task times."""
    lines = []
    for line in shadow:
        jobs = getattr(line, "jobs", ())
        slow = tuple(
            job.model_copy(
                update={
                    "stages": tuple(
                        stage.model_copy(update={"mean_ms": stage.mean_ms and 2 * stage.mean_ms})
                        for stage in job.stages
                    )
                }
            )
            for job in jobs
        )
        lines.append(line.model_copy(update={"jobs": slow}) if jobs else line)
    error = found(lines)["criteria"][3]
    assert not error["is_met"]
    assert f"at most {MOST_ERROR:.0%}" in error["text"]


def test_a_policy_in_charge_is_not_assessed(shadow: list[Line]) -> None:
    lines = [line.model_copy(update={"shadow": False}) if isinstance(line, Started) else line for line in shadow]
    assert found(lines)["ready"] is None
    assert not any("Ready" in note for note in summary_report(lines, 200.0).notes)


def test_the_line_begins_with_what_is_not_met() -> None:
    both = Readiness((Criterion("a: 1", True), Criterion("b: 2", False)))
    assert str(both) == "Ready to take charge? No: b: 2 (NOT MET); a: 1 (ok)."
    assert str(Readiness(both.criteria[:1])) == "Ready to take charge? Yes: a: 1 (ok)."
