"""Accepted and refused values of command options."""

import math
from pathlib import Path
from typing import Any

import click
import pytest

from decima.cli.options import (
    ABOVE_ZERO,
    ANY_NUMBER,
    AT_LEAST_ONE,
    FileToWrite,
    FiniteRange,
    Numbers,
    WholeRange,
    WorkersType,
    workload_named,
)
from decima.cli.train import override, settings_source
from tests.cases import cases


def taken(kind: click.ParamType, value: Any) -> Any:
    return kind.convert(value, None, None)


@cases(
    "kind, value, expected",
    (FiniteRange(0, 2), "1.5", 1.5), (FiniteRange(0, 2), 2, 2.0), (FiniteRange(0, 2), "-0", 0.0),
    (WholeRange(), "0", 0), (WholeRange(), "100000000", 10**8), (WholeRange(-5, 5), "-5", -5), (AT_LEAST_ONE, 1, 1),
    (Numbers(), "1,2.5", "1,2.5"), (Numbers(count=2), "1,2", "1,2"), (Numbers(kind=int, least=1), "1,3", "1,3"),
    (FileToWrite(".gif"), "a.GIF", Path("a.GIF")), (WorkersType(), "4", 4),
)  # fmt: skip
def test_what_is_right_is_taken(kind: click.ParamType, value: Any, expected: Any) -> None:
    assert taken(kind, value) == expected


@cases(
    "kind, value, message",
    (FiniteRange(0, 2), "2.1", "2.1 is not in the range 0<=x<=2"),
    (FiniteRange(0, 2, min_open=True), "0", "0.0 is not in the range 0<x<=2"),
    (FiniteRange(), "nan", "'nan' is not a finite number"),
    (FiniteRange(), math.inf, "inf is not a finite number"),
    (FiniteRange(), "1_0", "'1_0' is not a finite number"),
    (FiniteRange(), "x", "'x' is not a valid float"),
    (WholeRange(), "-1", "-1 is not in the range x>=0"),
    (WholeRange(), "100000001", "100000001 is above the maximum, 100,000,000"),
    (ANY_NUMBER, "1e11", "100000000000.0 is above the maximum, 10,000,000,000"),
    (ABOVE_ZERO, "0", "0.0 is not in the range x>0"),
    (WholeRange(), "1_0", "'1_0' is not a valid integer"),
    (WholeRange(), "٣", "'٣' is not a valid integer"),
    (WholeRange(), "1" * 31, f"'{'1' * 31}' is not a valid integer"),
    (WholeRange(), "9" * 99, f"'{'9' * 39} is not a valid integer"),
    (Numbers(), "1,x", "'1,x': expected numbers separated by commas"),
    (Numbers(), "1,nan", "'1,nan': expected numbers"),
    (Numbers(), "1_0", "'1_0': expected numbers"),
    (Numbers("two", count=2), "1", "'1': expected two"),
    (Numbers("some", least=1), "0.5", "'0.5': expected some"),
    (Numbers("whole", kind=int), "0.5", "'0.5': expected whole"),
    (FileToWrite(".gif", ".png"), "a.jpg", "'a.jpg': expected a name ending in .gif or .png"),
    (WorkersType(), "many", "'many' is not a specification of workers: expected a number"),
)
def test_what_is_wrong_is_refused_with_what_was_given(kind: click.ParamType, value: Any, message: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        taken(kind, value)
    assert message in str(refused.value)


def test_numbers_workloads_and_settings_of_options(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="is above the maximum"):
        taken(WholeRange(), "1" * 30)
    assert Numbers().parse("1,2.5") == (1.0, 2.5)
    assert Numbers(kind=int).parse("3") == (3,)
    assert Numbers().parse(None) == ()
    assert workload_named(None, None) is None
    assert workload_named("tpch", None) == "tpch"
    assert workload_named(None, tmp_path) == tmp_path
    with pytest.raises(click.UsageError, match="--profiles and --workload exclude each other"):
        workload_named("tpch", tmp_path)
    with pytest.raises(click.UsageError, match="--workload: expected a name, a folder or a file"):
        workload_named("", None)
    assert override("jobs.log", 'a "b".swf') == 'jobs.log="a \\"b\\".swf"'
    assert override("jobs.log", None) == "jobs.log=null"


def test_settings_are_those_named_or_of_the_run_or_by_default(tmp_path: Path) -> None:
    def source(config: str | None, resume: bool) -> str | Path:
        return settings_source({"config": config, "resume": resume, "out": tmp_path}, "batch")

    assert source(None, False) == "batch"
    assert source("mine.yaml", False) == source("mine.yaml", True) == "mine.yaml"
    with pytest.raises(click.UsageError, match=f"{tmp_path}: contains no training run to resume"):
        source(None, True)
    (tmp_path / "config.yaml").touch()
    assert source(None, True) == tmp_path / "config.yaml"
