"""The model of task durations: its formula, and that a fit recovers the parameters of synthetic runs."""

import pytest

from tests.workloads.spark.runs import MODEL, Stage, make_run
from workloads import WorkloadError, read_event_log
from workloads.spark.model import SparkModel, fit
from workloads.spark.query import QueryRuns, matched

#: Queries of a scan and two stages that read shuffles; their stages compute more or less than typical ones.
QUERIES = [
    [
        Stage(20, input_mb=2.0 + query, rate=rate),
        Stage(24, shuffle_mb=0.5 + query, parents=(0,), rate=rate),
        Stage(24, shuffle_mb=0.2 * (query + 1), parents=(1,), rate=1 / rate),
    ]
    for query, rate in enumerate((0.5, 0.8, 1.0, 1.25, 2.0))
]


def sampled(executors: tuple[int, ...], slower: dict[int, float] | None = None) -> list[QueryRuns]:
    slower = slower or {}
    return [
        matched([make_run(MODEL, stages, held, slower=slower.get(held, 1.0)) for held in executors])
        for stages in QUERIES
    ]


def values(model: SparkModel) -> dict[str, float]:
    return {parameter.name: parameter.value for parameter in model.parameters()}


def test_fits_find_parameters_and_keep_defaults():
    assert MODEL.task_ms(3.0, 0.0, False, 1) == 40 + 30
    assert MODEL.task_ms(3.0, 0.0, False, 50) == 40 + 30
    assert MODEL.task_ms(0.0, 2.0, True, 1) == 20 + 50
    assert MODEL.task_ms(0.0, 2.0, True, 4, rate=2.0) == 20 + 100 + 3 * 1.5 + 0.75 * 16
    assert MODEL.task_ms(0.0, [1.0, 2.0], True, 1).tolist() == [45.0, 70.0]
    model = fit(sampled((1, 2, 4)))
    assert values(model) == pytest.approx(values(MODEL), rel=0.01)
    assert not model.contention
    default = SparkModel()
    model = fit(sampled((2,)))
    assert (model.connection_ms, model.remote_ms_per_mb) == (default.connection_ms, default.remote_ms_per_mb)
    assert model.scan_overhead_ms == pytest.approx(MODEL.scan_overhead_ms, rel=0.01)
    lonely = fit([matched([make_run(MODEL, [Stage(1, input_mb=1.0)])])], shared_machine=True)
    assert values(lonely) == values(default)
    model = SparkModel(fresh_ms=1234.5, contention={2: 1.98765})
    assert model.rounded().fresh_ms == 1230
    assert model.to_json()["contention"] == {"2": 1.99}
    with pytest.raises(WorkloadError, match="at least one run"):
        fit([])


def test_parameters_are_fitted_or_set_by_hand():
    queries = sampled((1, 2, 4), slower={2: 1.8, 4: 4.5})
    model = fit(queries, shared_machine=True)
    assert values(model) == pytest.approx(values(MODEL), rel=0.02)
    assert dict(model.contention) == pytest.approx({1: 1.0, 2: 1.8, 4: 4.5}, rel=0.01)
    assert fit(queries).connection_ms > 5 * MODEL.connection_ms
    model = MODEL.having({"first_ms": 7, "connection_ms": 0})
    assert (model.first_ms, model.connection_ms, model.fresh_ms) == (7, 0, 900)
    with pytest.raises(WorkloadError, match=r"no parameter 'warmth' .* expected scan_overhead_ms, "):
        MODEL.having({"warmth": 1})
    with pytest.raises(WorkloadError, match="fresh_ms must be finite and not negative, got -1"):
        MODEL.having({"fresh_ms": -1})
    with pytest.raises(WorkloadError, match="first_ms must be finite"):
        SparkModel(first_ms=float("nan"))


def test_real_recordings(shared):
    """Parameters from the recordings, with tolerances for small changes of the fit."""
    logs = shared("spark/eventlogs")
    queries = []
    for query in (3, 7, 9, 10, 18, 21):
        runs = [read_event_log(path)[0].queries[0] for path in sorted(logs.glob(f"q{query:02d}_*"))]
        queries.append(matched(runs))
    model = fit(queries, shared_machine=True)
    assert model.contention[2] == pytest.approx(2.0, rel=0.2)
    assert 15 < model.shuffle_overhead_ms < 40
    assert 15 < model.scan_overhead_ms < 60
    assert 5 < model.scan_ms_per_mb < 30
    assert 10 < model.shuffle_ms_per_mb < 60
    assert 0 < model.connection_ms < 4
    assert 50 < model.first_ms < 300
    assert 1000 < model.fresh_ms < 2000
