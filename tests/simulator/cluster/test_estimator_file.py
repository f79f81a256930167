"""Model files of estimators: the same predictions after reading, and one line for any malformed file."""

import io
import json
import math
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

from simulator.cluster import stage_times
from simulator.cluster.config import Knowledge
from simulator.cluster.estimates import dag_only, draw_estimates
from simulator.cluster.estimator_file import EstimatorError, read_estimator, write_estimator
from simulator.cluster.predictor import Predictor, predictor_of
from simulator.cluster.stage_times import FEATURES
from tests.cases import cases
from tests.refusal import Malicious, one_line, refusal
from workloads import JobProfile, batch_arrivals, embedded_tpch
from workloads.errors import LONGEST_MS

QUERIES = tuple(embedded_tpch(sizes=["2g"]))
Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_times, "TREES", 3)
        fitted = predictor_of(QUERIES[:15], also_dag_only=True)
    assert fitted is not None
    return fitted


@pytest.fixture(scope="module")
def content(predictor: Predictor, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "it.npz"
    write_estimator(path, predictor, "jobs.json", "0" * 64)
    return path.read_bytes()


def test_a_file_gives_the_same_predictions(predictor: Predictor, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "it.npz").write_bytes(content)
    again = read_estimator(tmp_path / "it.npz")
    assert len(again.fits) == 2
    # Jobs of the fit, which their own forest has not seen, and others, with and without bytes and operators.
    for query in (*QUERIES, *map(dag_only, QUERIES)):
        expected, prediction = predictor.predict(query), again.predict(query)
        assert (expected is None) == (prediction is None)
        if expected is not None and prediction is not None:
            np.testing.assert_array_equal(prediction.task_ms, expected.task_ms)
            np.testing.assert_array_equal(prediction.rest_ratio, expected.rest_ratio)
            assert (prediction.job_var, prediction.stage_var) == (expected.job_var, expected.stage_var)
    assert [fit.accuracy for fit in again.fits] == [fit.accuracy for fit in predictor.fits]
    assert (again.jobs, again.templates) == (15, predictor.templates)
    assert str(again) == str(tmp_path / "it.npz")


def test_knowledge_takes_a_file(predictor: Predictor, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "it.npz").write_bytes(content)
    knowledge = Knowledge(unknown=1.0, estimator=str(tmp_path / "it.npz"))
    assert str(tmp_path / "it.npz") in str(knowledge)
    jobs = batch_arrivals(QUERIES, 6, seed=1)
    for estimate, profile in zip(draw_estimates(jobs, knowledge), jobs.profiles, strict=True):
        prediction = predictor.predict(profile)
        if prediction is not None:
            np.testing.assert_array_equal(estimate.task_ms, prediction.task_ms)


@cases(
    "estimator, message",
    ("forrest", "estimator: expected 'forest' or 'typical' or a file of decima train-estimator, got 'forrest'"),
    (5, "estimator: expected 'forest' or 'typical' or an estimator's file, got 5"),
)
def test_another_value_is_no_estimator(estimator: Any, message: str) -> None:
    assert message in one_line(ValueError, Knowledge, estimator=estimator)


def _read(data: bytes) -> Arrays:
    with np.load(io.BytesIO(data)) as archive:
        return dict(archive)


def _write(path: Path, arrays: Arrays) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def _head(change: Callable[[dict[str, Any]], Any]) -> Callable[[Arrays], None]:
    def changed(arrays: Arrays) -> None:
        head = json.loads(str(arrays["estimator"]))
        change(head)
        arrays["estimator"] = np.array(json.dumps(head))

    return changed


def _set(name: str, index: Any, value: Any) -> Callable[[Arrays], None]:
    def changed(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][index] = value

    return changed


@cases(
    "change, message",
    (_head(lambda head: head.update(version=1)), "format version 3 expected, got 1"),
    (_head(lambda head: head.update(version=True)), "format version 3 expected, got True"),
    (_head(lambda head: head.update(features=[*FEATURES[:-1], "age"])), "estimator: features: expected those of this"),
    (_head(lambda head: head.update(features=[])), "estimator: features: expected those of this version of decima"),
    (_head(lambda head: head["fits"][0].update(job_var=[math.nan, 1])), "estimator: "),
    (_head(lambda head: head["fits"][0].update(job_var=[-1.0, 1.0])), "estimator: fits[0].job_var"),
    (_head(lambda head: head.update(fits=[])), "estimator: fits"),
    (_head(lambda head: head["fits"].pop()), f"lowest: expected {len(FEATURES)} values"),
    (_head(lambda head: head.update(jobs=0)), "estimator: jobs"),
    (_head(lambda head: head.update(owner="me")), "estimator: owner: unknown key"),
    (_head(lambda head: head["fits"][1].pop("stage_var")), "estimator: fits[1].stage_var"),
    (lambda arrays: arrays.update(estimator=np.array("{")), "estimator: "),
    (lambda arrays: arrays.update(estimator=np.array("[" * 100_000)), "estimator: too many levels of brackets"),
    (lambda arrays: arrays.update(estimator=np.array("x" * 200_000)), "estimator: expected a JSON text"),
    (lambda arrays: arrays.pop("estimator"), "estimator: expected a JSON text"),
    (lambda arrays: arrays.pop("number"), "the array 'number' is missing"),
    (lambda arrays: arrays.update(more=np.zeros(2)), "the array 'more' is unknown"),
    (lambda arrays: arrays.update(number=arrays["number"][:-1]), "number: expected"),
    (lambda arrays: arrays.update(lowest=arrays["lowest"][:, :-1]), f"lowest: expected {2 * len(FEATURES)}"),
    (lambda arrays: arrays.update(root=arrays["root"][0]), "root: expected int64 of 3 dimensions"),
    (lambda arrays: arrays.update(root=arrays["root"][:, :2]), "root: expected 2 times 6 forests"),
    (lambda arrays: arrays.update(left=arrays["left"].astype(float)), "left: expected int64"),
    (_set("root", (0, 0, 0), 1), "root: expected ascending numbers of nodes"),
    (_set("root", (1, 2, 1), -5), "root: expected ascending numbers of nodes"),
    (_set("left", 0, 0), "left[0]: expected a later node of the same tree, got 0"),
    (_set("right", 0, 10**6), "right[0]: expected a later node of the same tree"),
    (_set("right", 0, -1), "right[0]: expected a later node of the same tree"),
    (_set("feature", 0, len(FEATURES)), "feature[0]: expected -1 to"),
    (_set("feature", 0, -2), "feature[0]: expected -1 to"),
    (_set("number", 0, math.nan), "number[0]: expected a finite number"),
    (_set("number", -1, math.inf), "expected a finite number, got inf"),
    (_set("number", -1, 1e6), "at a leaf, got 1e+06"),
    (_set("rest", 1, math.nan), "rest[1]: expected a number from -30 to 30, got nan"),
    (_set("rest", 0, 31), "rest[0]: expected a number from -30 to 30, got 31"),
    (lambda arrays: arrays.update(rest=arrays["rest"][:-1]), "rest: expected"),
    (_set("template_group", 0, 5), "template_group[0]: expected a number from 0 to 4"),
    (_set("highest", (0, 0), math.nan), "highest[0]: expected a number"),
)
def test_a_malformed_file_is_refused_in_one_line(
    change: Callable[[Arrays], object], message: str, content: bytes, tmp_path: Path
) -> None:
    arrays = _read(content)
    change(arrays)
    assert message in refusal(read_estimator, EstimatorError, _write(tmp_path / "it.npz", arrays))


def test_a_file_of_another_kind_is_refused(content: bytes, tmp_path: Path) -> None:
    path, touched = tmp_path / "it.npz", tmp_path / "touched"
    for wrong in (b"", b"no archive", content[: len(content) // 2]):
        path.write_bytes(wrong)
        assert "not a model file of an estimator, or truncated" in refusal(read_estimator, EstimatorError, path)
    arrays = _read(content) | {"number": np.array([Malicious(touched)])}
    refusal(read_estimator, EstimatorError, _write(path, arrays))
    assert not touched.exists()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("number.npy", bytes(2**28))
    refusal(read_estimator, EstimatorError, path)
    assert refusal(read_estimator, EstimatorError, tmp_path) == "Is a directory"


_NUMBERS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.floats(), st.sampled_from((-1, 0, 1, math.nan, math.inf)))


@st.composite
def _damage(draw: st.DrawFn) -> Callable[[Arrays], None]:
    """Draw a change of the arrays of a file."""
    name = draw(st.sampled_from(("estimator", *sorted(_ARRAY_NAMES))))
    position, value = draw(st.floats(0, 0.999)), draw(_NUMBERS)
    kind = draw(st.sampled_from(("value", "value", "value", "size", "type", "swap", "none")))
    other = draw(st.sampled_from(sorted(_ARRAY_NAMES)))

    def change(arrays: Arrays) -> None:
        array = arrays[name]
        if kind == "none":
            del arrays[name]
        elif kind == "swap":
            arrays[name] = arrays[other]
        elif kind == "type":
            arrays[name] = array.astype(str) if array.dtype.kind != "U" else np.zeros(3)
        elif kind == "size" and array.ndim:
            arrays[name] = array[: int(position * len(array))]
        elif array.dtype.kind == "U":
            text = str(array)
            cut = int(position * len(text))
            arrays[name] = np.array(f"{text[:cut]}{value}{text[cut + 1 :]}")
        else:
            flat = array.copy()
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                flat.ravel()[int(position * flat.size)] = np.array(value).astype(array.dtype)
            arrays[name] = flat

    return change


_ARRAY_NAMES = {
    "root", "feature", "left", "right", "number", "rest", "template_key", "template_group", "lowest", "highest"
}  # fmt: skip


def _is_refused_or_predicts_bounded_times(path: Path, jobs: tuple[JobProfile, ...]) -> None:
    try:
        read = read_estimator(path)
    except EstimatorError:
        refusal(read_estimator, EstimatorError, path)
        return
    for job in jobs:
        prediction = read.predict(job)
        if prediction is not None:
            assert ((prediction.task_ms > 0) & (prediction.task_ms <= 1.001 * LONGEST_MS)).all()
            assert 0 <= prediction.job_var < math.inf


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(_damage(), min_size=1, max_size=3))
def test_no_change_of_arrays_breaks_anything(
    changes: list[Callable[[Arrays], None]], content: bytes, tmp_path: Path
) -> None:
    arrays = _read(content)
    for change in changes:
        try:
            change(arrays)
        except (KeyError, IndexError):  # the array is gone or empty
            continue
    _is_refused_or_predicts_bounded_times(_write(tmp_path / "it.npz", arrays), QUERIES[:3])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 0.9999), replacement=st.binary(max_size=4), end=st.booleans())
def test_no_change_of_bytes_breaks_anything(
    position: float, replacement: bytes, end: bool, content: bytes, tmp_path: Path
) -> None:
    first = int(position * len(content))
    rest = b"" if end else content[first + len(replacement) :]
    path = tmp_path / "it.npz"
    path.write_bytes(content[:first] + replacement + rest)
    _is_refused_or_predicts_bounded_times(path, QUERIES[:1])
