"""Shipped policies fit their training distributions and tried settings, and not settings where they collapse."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decima.evaluation import fit as module
from decima.evaluation.conditions import Conditions
from decima.evaluation.fit import best_fit, evaluation_setting, misfits
from decima.policy import Policy, PolicyFileError, read_trained_on, save_policy
from decima.policy.shipped import SHIPPED
from simulator.cluster.config import ClusterConfig, Knowledge
from simulator.cluster.texts import parse_classes
from tests.cases import cases
from tests.decima.policy.test_files import SMALL
from workloads import Workload, embedded_workload, read_alibaba, trace_arrivals
from workloads.sources.open import SYNTHETIC, open_workload

FOUR_SIZES = parse_classes("50x0.25,50x0.5,50x0.75,50x1")
START = Path(__file__).parents[3] / "docs" / "start.md"


def here(
    workload: Workload | None = None,
    *,
    executors: int = 50,
    delay_s: float = 2.0,
    classes: str = "",
    every_s: float | None = None,
    jobs: int = 20,
    errors: Mapping[str, float] | None = None,
    **changes: Any,
) -> Conditions:
    """Return an evaluation setting: by default embedded TPC-H, exact; a batch, or with an interval a stream."""
    sizes = parse_classes(classes) if classes else ()
    arrivals = {} if every_s is None else {"arrivals": "poisson", "interval_ms": every_s * 1000}
    cluster = ClusterConfig(executors, sizes, delay_s * 1000, knowledge=Knowledge(**errors or {}))
    return Conditions(workload or embedded_workload(), cluster, num_jobs=jobs, **{**arrivals, **changes})


@pytest.fixture(scope="module")
def published(shared: Callable[[str], Path]) -> Workload:
    """The published TPC-H profiles."""
    return open_workload(shared("tpch"))


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """A policy trained only on batches of 20 embedded TPC-H jobs on 50 executors."""
    about = {"trained_on": evaluation_setting(here(), range(1000, 1020)).model_dump(mode="json")}
    return saved(tmp_path / "narrow.npz", about)


def test_a_specialist_for_executor_classes(published: Workload) -> None:
    stream = here(published, every_s=4, jobs=200, memory_demand="uniform")
    classes = replace(stream, cluster=ClusterConfig(executor_classes=FOUR_SIZES))
    assert misfits("packing-tpch", classes) == []
    assert best_fit(classes) is None
    assert best_fit(here(published, jobs=200, every_s=9.0)) is None


@pytest.mark.parametrize("delay_s", [1, 2, 3, 8, 16])
def test_moving_may_take_longer(narrow: Path, delay_s: float) -> None:
    assert misfits(narrow, here(delay_s=delay_s)) == []


@pytest.mark.parametrize("arrangement", [{"every_s": 30, "delay_s": 0, "jobs": 50}, {}], ids=["stream", "batch"])
def test_jobs_of_the_trace_are_out_of_distribution_for_tpch_policies(
    narrow: Path, arrangement: dict[str, Any], shared: Callable[[str], Path]
) -> None:
    from workloads.excerpt import Excerpt

    table = shared("traces/alibaba2018_dag_tasks/selected_DAGs.csv.gz")
    workload = replace(read_alibaba(table, Excerpt(sample=300)), sequence=None)
    found = misfits(narrow, here(workload, executors=200, **arrangement))
    assert any(words.startswith("tasks take ") for words in found)


def test_what_lies_outside_of_narrow_training(narrow: Path) -> None:
    assert misfits(narrow, here(delay_s=0, every_s=4, jobs=60)) == ["a moving delay of 0 s, trained on 2"]
    assert misfits(narrow, here(executors=500, jobs=5)) == ["500 executors, trained on 50"]
    assert misfits(narrow, here(classes="25x0.5,25x1")) == ["2 classes of executors, trained on 1"]


@pytest.mark.parametrize("experiments", [1, 20])
def test_the_jobs_of_the_start_page_are_unlike_tpch(narrow: Path, experiments: int, tmp_path: Path) -> None:
    """For any number of experiments: the fit does not depend on the drawn jobs."""
    [text] = re.findall(r'^```json title="my-jobs.json"\n(.*?)^```$', START.read_text(), re.M | re.S)
    (tmp_path / "my-jobs.json").write_text(text)
    workload = open_workload(tmp_path / "my-jobs.json")
    seen = [misfits(narrow, here(workload, every_s=10, jobs=jobs, num_experiments=experiments)) for jobs in (1, 20)]
    assert all(seen)


def test_the_policy_that_fits_best_is_found_if_any_ships() -> None:
    workload = embedded_workload()
    sequence = trace_arrivals(workload.profiles[:6], [0.0, 1.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0])
    exact = here(replace(workload, sequence=sequence), num_experiments=3, window_ms=5000.0)
    assert [len(exact.sequence(seed)) for seed in module._some_seeds(exact)] == [2, 1, 1]
    assert evaluation_setting(exact, exact.seeds).load is not None
    assert module._some_seeds(here(replace(workload, sequence=sequence))) == list(range(20))
    assert len(module._some_seeds(here(jobs=20, num_experiments=1))) == 50
    assert len(module._some_seeds(here(jobs=1500))) == 1
    assert best_fit(here(executors=5000)) is None
    assert best_fit(here(open_workload(SYNTHETIC))) is None


@pytest.mark.parametrize("name", SHIPPED)
def test_every_policy_that_ships_says_what_it_was_trained_on(name: str) -> None:
    trained = read_trained_on(SHIPPED[name])
    assert trained is not None
    expected = "both" if name == "embedded-errors" else "batch" if name.endswith("-batch") else "stream"
    assert trained.arrivals == expected


#: Specialist, the workload and setting of its training, and small changes of the setting.
SPECIALISTS: list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        *("embedded-batch", "embedded", {}),
        [{"executors": 40}, {"jobs": 25}, {"delay_s": 1.6}, {"errors": {"unknown": 1.0}}],
    ),
    (
        *("tpch-batch", "published", {}),
        [{"executors": 40}, {"jobs": 25}, {"delay_s": 1.6}, {"errors": {"unknown": 0.3}}],
    ),
    ("embedded-errors", "embedded", {"errors": {"job_error": 1.0}}, [{"errors": {"stage_error": 2.0}}]),
    (
        *("embedded-stream", "embedded", {"jobs": 60, "every_s": 4.0}),
        [{"executors": 45}, {"every_s": 4.8}, {"delay_s": 1.6}, {"jobs": 200}, {"errors": {"unknown": 0.3}}],
    ),
    (*("tpch-stream", "published", {"jobs": 100, "every_s": 16.0}),
     [{"executors": 45}, {"every_s": 18.0}, {"delay_s": 2.2}, {"jobs": 200}, {"errors": {"unknown": 0.3}},
      {"every_s": 14.0}, {"every_s": 25.0}]),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(0, 1000, 250))
@pytest.mark.parametrize(
    ("name", "jobs", "changed"),
    [(name, jobs, setting | change) for name, jobs, setting, few in SPECIALISTS for change in ({}, *few)],
)
def test_a_specialist_is_meant_where_all_is_as_in_its_training(
    name: str, jobs: str, changed: dict[str, Any], seed: int, request: pytest.FixtureRequest
) -> None:
    workload = None if jobs == "embedded" else request.getfixturevalue("published")
    assert best_fit(here(workload, seed=seed, **changed)) == name


@cases(
    "changed",
    {"executors": 100}, {"executors": 25}, {"jobs": 5}, {"jobs": 100}, {"delay_s": 0}, {"every_s": 1.5},
    {"every_s": 10}, {"jobs": 60, "every_s": 4.0, "errors": {"job_error": 1.0}},
    {"errors": {"unknown": 0.3, "estimator": "typical"}}, {"errors": {"unknown": 0.3, "job_error": 1.0}},
)  # fmt: skip
def test_a_specialist_is_not_meant_elsewhere(changed: dict[str, Any]) -> None:
    assert best_fit(here(**changed)) is None


def test_predicted_jobs_are_in_distribution_and_typical_ones_are_not() -> None:
    assert misfits("embedded-batch", here(errors={"unknown": 1.0})) == []
    typical = here(errors={"unknown": 0.3, "estimator": "typical"})
    assert misfits("embedded-batch", typical) == ["30% of the jobs have typical task times, trained on 0%"]
    few = here(replace(embedded_workload(), profiles=embedded_workload().profiles[:3]), errors={"unknown": 1.0})
    assert "100% of the jobs have typical task times, trained on 0%" in misfits("embedded-batch", few)


def test_no_policy_fits_where_none_ships(not_shipped: None) -> None:
    assert best_fit(here()) is None


def saved(path: Path, about: dict[str, Any]) -> Path:
    save_policy(path, Policy(SMALL, 0), about)
    return path


def test_files_that_do_not_say_or_cannot_be_read(tmp_path: Path) -> None:
    unknown = here(executors=5000, delay_s=0)
    assert misfits(saved(tmp_path / "silent.npz", {}), unknown) == []
    about = {"trained_on": evaluation_setting(here(), [1]).model_dump(mode="json")}
    assert misfits(saved(tmp_path / "telling.npz", about), unknown) != []
    assert misfits(str(tmp_path / "telling.npz"), here()) == []
    with pytest.raises(PolicyFileError, match=r"nowhere\.npz: No such file"):
        misfits(tmp_path / "nowhere.npz", here())
