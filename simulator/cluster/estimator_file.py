"""Model files of estimators: read and write predictors as NumPy archives of plain arrays.

Reading never executes code. The array ``estimator`` is a JSON text: format and its version, names of the features,
what the predictor was fitted to, variances, and errors on jobs of templates to which no forest was fitted. The other
arrays are the trees, the templates' keys and groups, and the bounds of the features.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.cluster.estimates import SHORTEST_MS
from simulator.cluster.predictor import GROUPS, MOST_HALF_WIDTH, Accuracy, CrossFit, Predictor
from simulator.cluster.stage_times import FEATURES, NODE, Forest
from workloads.archive import read_arrays
from workloads.errors import LONGEST_MS, DecimaError, WorkloadError, check_path
from workloads.reading import parse_json
from workloads.sources.workload_writer import replace_file
from workloads.validation import first_error

__all__ = ["EstimatorError", "read_estimator", "write_estimator"]

VERSION = 3
#: Name of the array with the JSON text, and its maximum length.
HEAD, LONGEST_HEAD = "estimator", 100_000
#: Maximum number of trees of a forest, and largest logarithm of a ratio.
MOST_TREES, MOST_LOG_RATIO = 1_000, 30
#: Type and number of dimensions of each other array.
_ARRAYS = {
    "root": (np.int64, 3), "feature": (np.int64, 1), "left": (np.int64, 1), "right": (np.int64, 1),
    "number": (np.float64, 1), "rest": (np.float32, 1), "template_key": (np.uint64, 1), "template_group": (np.int64, 1),
    "lowest": (np.float64, 2), "highest": (np.float64, 2),
}  # fmt: skip

_Count = Annotated[int, Field(ge=1)]
_Variance = Annotated[float, Field(ge=0, le=1e4)]
_HalfWidth = Annotated[float, Field(ge=0, le=MOST_HALF_WIDTH)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Text = Annotated[str, Field(max_length=1024)]


class EstimatorError(DecimaError, ValueError):
    """A model file of an estimator cannot be read. The message is one line that names the file and the place in it."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Fit(_Model):
    """Variances and errors of forests, see ``CrossFit`` and ``Accuracy``."""

    job_var: tuple[_Variance, _Variance]
    stage_var: _Variance
    half_widths: tuple[_HalfWidth, _HalfWidth]
    tested_jobs: _Count
    work_sd: Annotated[float, Field(ge=0)]
    stage_sd: Annotated[float, Field(ge=0)]
    within_50: _Share
    within_90: _Share


class _Head(_Model):
    """The JSON text of a model file.

    Attributes:
        features: names of the features, in the order of their numbers.
        jobs, templates: numbers of jobs and templates of the workload.
        source: name of the workload file.
        sha256: hash of the workload file, hexadecimal; empty if the workload has no file.
        created: time at which the predictor was fitted, ISO 8601.
        fits: see ``Predictor``.
    """

    format: Literal["decima-estimator"] = "decima-estimator"
    version: Literal[3] = 3
    features: tuple[_Text, ...]
    jobs: _Count
    templates: _Count
    source: _Text
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    created: Annotated[str, Field(max_length=64)]
    fits: Annotated[tuple[_Fit, ...], Field(min_length=1, max_length=2)]


def write_estimator(path: str | Path, predictor: Predictor, source: str = "", sha256: str = "") -> None:
    """Write a predictor to a file, which is replaced atomically; reading it gives the same predictions.

    Args:
        path: path of the file.
        predictor: predictor to write.
        source: name of the workload file to whose jobs the predictor was fitted.
        sha256: hash of that file, hexadecimal.

    Raises:
        WorkloadError: the file cannot be written.
    """
    head = _Head(
        features=FEATURES,
        jobs=predictor.jobs,
        templates=predictor.templates,
        source=source[-1024:],
        sha256=sha256,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fits=tuple(
            _Fit(
                job_var=fit.job_var,
                stage_var=fit.stage_var,
                half_widths=fit.half_widths,
                tested_jobs=fit.accuracy.jobs,
                work_sd=fit.accuracy.work_sd,
                stage_sd=fit.accuracy.stage_sd,
                within_50=fit.accuracy.within_50,
                within_90=fit.accuracy.within_90,
            )
            for fit in predictor.fits
        ),
    )
    fits = predictor.fits
    forests = [forest for fit in fits for forest in fit.forests]
    first = np.cumsum([0, *(forest.nodes.size for forest in forests[:-1])])
    numbered = list(zip(forests, first.tolist(), strict=True))
    arrays: dict[str, Any] = {
        HEAD: np.array(head.model_dump_json()),
        "root": np.stack([forest.root + begin for forest, begin in numbered]).reshape(
            len(fits), GROUPS + 1, -1
        ),
        "feature": np.concatenate([forest.nodes["feature"] for forest in forests]).astype(np.int16),
        "left": np.concatenate([forest.nodes["left"] + begin for forest, begin in numbered]),
        "right": np.concatenate([forest.nodes["right"] + begin for forest, begin in numbered]),
        "number": np.concatenate([forest.nodes["number"] for forest in forests]),
        "rest": np.concatenate([forest.nodes["rest"] for forest in forests]),
        "template_key": np.array(list(predictor.group), dtype=np.uint64),
        "template_group": np.array(list(predictor.group.values()), dtype=np.int8),
        "lowest": np.stack([fit.lowest for fit in fits]),
        "highest": np.stack([fit.highest for fit in fits]),
    }
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    replace_file(Path(path), content.getvalue())


def read_estimator(path: str | Path) -> Predictor:
    """Read a predictor from a file of ``write_estimator``.

    Raises:
        EstimatorError: the file cannot be read, is malformed or truncated, or has another format version or features.
    """
    path = check_path(path, "path", EstimatorError)
    try:
        arrays = read_arrays(path, "model file of an estimator")
    except WorkloadError as error:
        raise EstimatorError(str(error)) from None
    try:
        head = _read_head(arrays.pop(HEAD, np.zeros(0)))
        checked = _checked_arrays(arrays, len(head.fits))
        _check_trees(checked)
        return _predictor(head, checked, str(path))
    except ValueError as error:
        raise EstimatorError(f"{path}: {error}") from None


def _read_head(text: NDArray[Any]) -> _Head:
    """Parse the JSON text; raise ``ValueError`` with the place if it is malformed."""
    if text.shape or text.dtype.kind != "U" or text.dtype.itemsize > 4 * LONGEST_HEAD:
        raise ValueError(f"{HEAD}: expected a JSON text")
    try:
        content = parse_json(str(text))
    except ValueError as error:
        raise ValueError(f"{HEAD}: {error}") from None
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"format version {VERSION} expected, got {version!r:.60}")
    try:
        head = _Head.model_validate_json(str(text))
    except ValidationError as error:
        raise ValueError(f"{HEAD}: {first_error(error, _Head)}") from None
    if head.features != FEATURES:
        raise ValueError(
            f"{HEAD}: features: expected those of this version of decima; fit the estimator again"
        )
    return head


def _checked_arrays(arrays: dict[str, NDArray[Any]], num_fits: int) -> dict[str, NDArray[Any]]:
    """Check names, shapes and types of arrays; raise ``ValueError`` with the name if one is wrong."""
    checked = {}
    for name in sorted(arrays.keys() | _ARRAYS.keys()):
        if name not in arrays or name not in _ARRAYS:
            raise ValueError(f"the array {name!r:.60} is {'unknown' if name in arrays else 'missing'}")
        array, (dtype, dimensions) = arrays[name], _ARRAYS[name]
        kinds = "f" if np.issubdtype(dtype, np.floating) else "u" if dtype == np.uint64 else "i"
        if array.ndim != dimensions or array.dtype.kind not in kinds:
            raise ValueError(
                f"{name}: expected {np.dtype(dtype)} of {dimensions} dimension{'s' * (dimensions > 1)}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        checked[name] = np.ascontiguousarray(array, dtype)
    nodes = checked["feature"].size
    sizes = dict.fromkeys(("left", "right", "number", "rest"), nodes)
    sizes |= dict.fromkeys(("lowest", "highest"), num_fits * len(FEATURES))
    sizes["template_group"] = checked["template_key"].size
    for name, size in sizes.items():
        if checked[name].size != size:
            raise ValueError(f"{name}: expected {size} values, got {checked[name].size}")
    root = checked["root"]
    if root.shape[:2] != (num_fits, GROUPS + 1) or not 1 <= root.shape[2] <= MOST_TREES:
        raise ValueError(
            f"root: expected {num_fits} times {GROUPS + 1} forests of 1 to {MOST_TREES} trees, got shape {root.shape}"
        )
    return checked


def _check_trees(arrays: dict[str, NDArray[Any]]) -> None:
    """Check values of arrays; raise ``ValueError`` with the place of the first wrong one.

    The children of a node come after the node, in the same tree, so that a walk from a root ends.
    """
    root, feature, number = arrays["root"], arrays["feature"], arrays["number"]
    first = np.append(root.ravel(), feature.size)
    if first[0] != 0 or (np.diff(first) < 1).any():
        raise ValueError("root: expected ascending numbers of nodes from 0 on")
    node = np.arange(feature.size)
    end = np.repeat(first[1:], np.diff(first))
    is_leaf = feature == -1
    shortest, longest = np.log(SHORTEST_MS), np.log(LONGEST_MS)
    for name, is_right, expected in (
        ("feature", is_leaf | ((feature >= 0) & (feature < len(FEATURES))), f"-1 to {len(FEATURES) - 1}"),
        *(
            (name, is_leaf | ((arrays[name] > node) & (arrays[name] < end)), "a later node of the same tree")
            for name in ("left", "right")
        ),
        ("number", np.isfinite(number), "a finite number"),
        (
            "number",
            ~is_leaf | ((number >= shortest - 1e-9) & (number <= longest + 1e-9)),
            f"a number from {shortest:.1f} to {longest:.1f} at a leaf",
        ),
        (
            "rest",
            np.abs(arrays["rest"]) <= MOST_LOG_RATIO,
            f"a number from -{MOST_LOG_RATIO} to {MOST_LOG_RATIO}",
        ),
        (
            "template_group",
            (arrays["template_group"] >= 0) & (arrays["template_group"] < GROUPS),
            f"a number from 0 to {GROUPS - 1}",
        ),
        *((name, ~np.isnan(arrays[name].ravel()), "a number") for name in ("lowest", "highest")),
    ):
        if not is_right.all():
            index = int(np.argmin(is_right))
            raise ValueError(f"{name}[{index}]: expected {expected}, got {arrays[name].flat[index]:g}")


def _predictor(head: _Head, arrays: dict[str, NDArray[Any]], name: str) -> Predictor:
    nodes = np.zeros(arrays["feature"].size, NODE)
    for field in ("feature", "left", "right", "number", "rest"):
        nodes[field] = arrays[field]
    fits = (
        CrossFit(
            tuple(Forest(of_forest, nodes) for of_forest in root),
            fit.job_var,
            fit.stage_var,
            fit.half_widths,
            lowest,
            highest,
            Accuracy(fit.tested_jobs, fit.work_sd, fit.stage_sd, fit.within_50, fit.within_90),
        )
        for fit, root, lowest, highest in zip(
            head.fits,
            arrays["root"],
            arrays["lowest"].reshape(-1, len(FEATURES)),
            arrays["highest"].reshape(-1, len(FEATURES)),
            strict=True,
        )
    )
    return Predictor(
        fits=tuple(fits),
        group=dict(zip(arrays["template_key"].tolist(), arrays["template_group"].tolist(), strict=True)),
        jobs=head.jobs,
        templates=head.templates,
        name=name,
    )
