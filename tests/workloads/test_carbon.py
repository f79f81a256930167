"""Signals: files, scales, and integrals."""

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from tests.refusal import one_line
from workloads import DecimaError, Signal
from workloads.reading import opened
from workloads.sources.carbon import SYNTHETIC, open_signal, read_signal, synthetic_signal

EXPORT = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle)\n"
)
HOURS = "2024-01-01 00:00:00,A,A,A,100,200\n2024-01-01 01:00:00,A,A,A,50,150\n2024-01-01 02:00:00,A,A,A,0,90\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "signal.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", ["0,100\n60,50\n", "time,price\n# a price\n\n100,100\n160,50\n"])
def test_a_file_of_times_and_values_repeats_after_its_last_interval(tmp_path: Path, text: str) -> None:
    signal = read_signal(written(tmp_path, text))
    assert signal.period_ms == 120_000
    assert [signal.at(1000.0 * time_s) for time_s in (0, 59.9, 60, 119, 120, 181)] == [100, 100, 50, 50, 100, 50]


def test_an_export_of_electricity_maps(tmp_path: Path) -> None:
    path = written(tmp_path, EXPORT + HOURS)
    signal = open_signal(f"{path}:60")
    assert (signal.value, signal.begin_ms) == ((100.0, 50.0, 0.0), (0.0, 60_000.0, 120_000.0))
    path.write_text(EXPORT.replace("(direct)", "(other)") + HOURS, encoding="utf-8")
    assert read_signal(path).value == (200.0, 150.0, 90.0)


@cases(
    "text, message",
    ("", "0 lines of values"),
    ("0,1\n", "1 line of values"),
    ("0,1\n0,2\n", "line 2: the time is not after the previous one"),
    ("60,1\n0,2\n", "line 2: the time is not after the previous one"),
    ("0,1\n60,-2\n", "line 2: the value must be a finite number and not negative, got '-2'"),
    ("0,1\n60,nan\n", "line 2: the value must be a finite number"),
    ("0,1\n60,inf\n", "line 2: the value must be a finite number"),
    ("0,1\n60,\n", "line 2: the value must be a finite number and not negative, got ''"),
    ("0,1\nlate,2\n", "line 2: expected lines of a time in seconds and a value"),
    ("0,1\n60,2,3\n", "line 2: expected lines of a time in seconds and a value"),
    (EXPORT + HOURS.replace("01:00:00,", "01:30:00,"), "line 4: a gap before 2024-01-01 02:00:00"),
    (EXPORT + HOURS.replace("50,150", ",150"), "line 3: the value must be a finite number and not negative, got ''"),
    (EXPORT + HOURS.replace("2024-01-01 01", "2023-01-01 01"), "line 3: the time is not after"),
    (EXPORT + HOURS.replace("2024-01-01 01", "yesterday 01"), "line 3: expected a time such as"),
    ("Datetime (UTC),Zone\n2024-01-01 00:00,A\n", "line 1: no column 'Carbon intensity"),
)
def test_malformed_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    said = one_line(DecimaError, read_signal, path)
    assert said.startswith(str(path))
    assert message in said


@cases(
    "data, message",
    (b"0x,100\n60,50\n120,1\n", "line 1: expected lines of a time in seconds and a value"),
    (b"O,100\n60,50\n120,1\n", "line 1: expected lines of a time in seconds and a value"),
    (b"nan,nan\n60,50\n120,1\n", "line 1: expected lines of a time in seconds and a value"),
    (b"time\n60,50\n120,1\n", "line 1: expected lines of a time in seconds and a value"),
    (b"0,100\n1_0,50\n", "line 2: expected lines of a time in seconds and a value"),
    ("0,100\n\u0663,50\n".encode(), "line 2: expected lines of a time in seconds and a value"),
    ("0,100\n60,\u0663\n".encode(), "line 2: the value must be a finite number"),
    (b"0,100\n1e305,200\n", "line 2: expected lines of a time in seconds and a value"),
    (b"0,100\n-1e400,200\n", "line 2: expected lines of a time in seconds and a value"),
    (b"0,100\n60," + b"9" * 131_073, "line 2: field larger than field limit"),
    (b'0,100\n60,"' + b"9" * 131_073, "line 2: field larger than field limit"),
    (b"0,100\r60,2\r00\r", "line 3: expected lines of a time in seconds and a value, such as 3600,412"),
    (b"0,100\n60,\xff\n", "not a text file"),
)
def test_damaged_bytes_are_refused_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "signal.csv"
    path.write_bytes(data)
    said = one_line(DecimaError, read_signal, path)
    assert said.startswith(str(path))
    assert message in said
    assert len(said) < 400


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_ends_of_lines(tmp_path: Path, end: str) -> None:
    path = tmp_path / "signal.csv"
    path.write_bytes(f"0,100{end}60,200{end}120,150".encode())
    signal = read_signal(path)
    assert (signal.begin_ms, signal.value) == ((0.0, 60_000.0, 120_000.0), (100.0, 200.0, 150.0))
    assert "lasts for more than 300 years" in one_line(DecimaError, open_signal, f"{path}:1e-300")


def test_small_archives_of_long_signals_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "signal.csv.gz"
    monkeypatch.setattr("workloads.sources.carbon.opened", partial(opened, most=2**20))
    path.write_bytes(gzip.compress((b"#" * 1023 + b"\n") * 2**10 + b"#"))
    assert one_line(DecimaError, read_signal, path).startswith(f"{path}: more than 1 MiB, expected a CSV file")
    monkeypatch.setattr("workloads.sources.carbon.MOST_INTERVALS", 2)
    path.write_bytes(gzip.compress(b"0,1\n1,1\n2,1\n"))
    assert one_line(DecimaError, read_signal, path) == f"{path}, line 3: expected at most 2 lines of values"


@pytest.mark.parametrize("text", ["missing.csv", "synthetic-solar:0", "synthetic-solar:fast", "synthetic-sun"])
def test_a_wrong_name_or_scale_is_refused(text: str) -> None:
    with pytest.raises(DecimaError, match=r"missing|scale|SCALE|synthetic-sun"):
        open_signal(text)


def test_samples_are_the_same_and_wrong_intervals_refused() -> None:
    for begins, values, period_ms in (((0.0, 0.0), (1.0, 2.0), 5.0), ((0.0,), (), 5.0), ((0.5,), (1.0,), 5.0)):
        with pytest.raises(DecimaError):
            Signal("x", begins, values, period_ms)
    with pytest.raises(DecimaError, match="shorter than 1 ms"):
        synthetic_signal("synthetic-coal", 1e8)
    variation = []
    for name in SYNTHETIC:
        signal = synthetic_signal(name)
        assert signal == synthetic_signal(name)
        values = np.array(signal.value)
        assert values.size == 720
        variation.append(values.std() / values.mean())
    solar, wind, coal = variation
    assert 0.2 < solar < 0.4
    assert 0.2 < wind < 0.4
    assert coal < 0.06
    noon, night = (np.array(synthetic_signal("synthetic-solar").value[hour::24]).mean() for hour in (12, 2))
    assert noon < 0.6 * night


signals = st.builds(
    lambda steps, values, offset: Signal(
        "random",
        tuple(np.cumsum([0, *steps[1 : len(values)]]).astype(float).tolist()),
        tuple(values[: len(steps)]),
        float(sum(steps[: len(values)])),
        float(offset),
    ),
    st.lists(st.integers(1, 50), min_size=5, max_size=5),
    st.lists(st.floats(0, 100), min_size=5, max_size=5),
    st.integers(0, 500),
)


@given(signals, st.integers(0, 4000).map(lambda eighths: eighths / 8), st.floats(0, 500))
def test_the_integral_is_that_of_the_steps(signal: Signal, begin_ms: float, length_ms: float) -> None:
    total, now = 0.0, begin_ms
    while now < begin_ms + length_ms:
        end = min(max(signal.next_change_ms(now), np.nextafter(now, np.inf)), begin_ms + length_ms)
        total += signal.at(now) * (end - now)
        now = end
    assert float(signal.integral(begin_ms, begin_ms + length_ms)) == pytest.approx(total, rel=1e-6, abs=1e-3)
    begins, values = signal.ahead(begin_ms, max(length_ms, 1.0))
    assert begins[0] == begin_ms
    assert values.tolist() == [signal.at(float(each) + 1e-6) for each in begins]


@given(signals)
def test_changes_are_the_ends_of_intervals(signal: Signal) -> None:
    now = 0.0
    for number in range(12):
        now = signal.next_change_ms(now)
        assert now == signal.change_ms(number)
