"""Workload files: meaning, round trip, and rejected files."""

import gc
import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.cases import cases
from tests.refusal import refusal
from tests.workloads.strategies import job_attributes, job_profiles, job_sequences
from workloads.arrivals import JobSequence, batch_arrivals
from workloads.attributes import JobAttributes, Tenant
from workloads.imperfections import Imperfections
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.sources.published_tpch import load_tpch
from workloads.sources.workload_file import Workload, read_workload
from workloads.sources.workload_writer import write_workload

TASK = TaskDurations.constant(1.0)


def minimal(**changed: Any) -> dict[str, Any]:
    """Return the smallest file, with replaced top-level keys; None removes a key."""
    file = {"format": "decima-workload", "version": 1, "profiles": {"etl": {"stages": [stage()]}}} | changed
    return {key: value for key, value in file.items() if value is not None}


def stage(**changed: Any) -> dict[str, Any]:
    return {"tasks": 2, "duration_ms": 10} | changed


def of_stages(*stages: dict[str, Any]) -> dict[str, Any]:
    return minimal(profiles={"etl": {"stages": list(stages)}})


def read_text(directory: Path, text: str, name: str = "own.json") -> Workload:
    (directory / name).write_text(text, encoding="utf-8")
    return read_workload(directory / name)


def read(directory: Path, file: dict[str, Any]) -> Workload:
    return read_text(directory, json.dumps(file))


def durations(directory: Path, duration_ms: Any) -> TaskDurations:
    return read(directory, of_stages(stage(duration_ms=duration_ms))).profiles[0].stages[0].durations


def tables(durations: TaskDurations) -> list[dict[int, list[float]]]:
    return [{level: cell.tolist() for level, cell in durations.table(wave).items() if cell.size} for wave in Wave]


def refused(path: Path) -> str:
    return refusal(read_workload, WorkloadError, path)


def documented(language: str) -> str:
    """Return the last example in the guide, in JSON or TOML."""
    guide = Path(__file__).parents[3] / "docs" / "reference" / "workload-file.md"
    return re.findall(rf"^```{language}\n(.*?)^```$", guide.read_text(), re.M | re.S)[-1]


def assert_same(left: JobProfile, right: JobProfile) -> None:
    assert (left.name, left.parents) == (right.name, right.parents)
    for one, other in zip(left.stages, right.stages, strict=True):
        for key in (
            "num_tasks", "name", "cpu", "memory", "input_bytes", "input_rows", "shuffle_bytes", "operators",
        ):  # fmt: skip
            assert getattr(one, key) == getattr(other, key)
        assert one.durations.mean_ms == other.durations.mean_ms
        assert one.durations.levels.tolist() == other.durations.levels.tolist()
        assert tables(one.durations) == tables(other.durations)


def test_documented_examples(tmp_path: Path) -> None:
    workload = read_text(tmp_path, documented("json"))
    [etl] = workload.profiles
    assert workload.name == "own"
    assert [stage.name for stage in etl.stages] == ["scan", "filter", "lookup", "join"]
    assert [stage.num_tasks for stage in etl.stages] == [40, 40, 8, 200]
    assert etl.parents == ((), (0,), (), (1, 2))
    assert [(stage.cpu, stage.memory) for stage in etl.stages] == [(1, 0), (1, 0), (1, 0), (2, 0.5)]
    assert tables(etl.stages[2].durations) == [{1: [2600]}, {1: [900]}, {1: [400, 450]}]
    assert tables(etl.stages[3].durations)[Wave.FRESH] == {5: [900], 50: [1300, 1500]}
    assert workload.sequence is not None
    assert (workload.sequence.profiles, workload.sequence.arrival_ms.tolist()) == ((etl, etl), [0, 25000])
    assert workload.sequence.seed == 0
    workload = read_text(tmp_path, documented("toml"), "own.toml")
    assert workload.sequence is None
    assert workload.profiles[0].stages[0].name == "scan"
    assert tomllib.loads(documented("toml"))["version"] == 1


def test_durations_by_number_list_and_wave(tmp_path: Path) -> None:
    found = durations(tmp_path, 1200)
    assert tables(found) == [{1: [1200]}] * 3
    assert found.mean_ms == 1200
    found = durations(tmp_path, [1, 2, 6])
    assert tables(found) == [{1: [1, 2, 6]}] * 3
    assert found.mean_ms == 3
    assert tables(durations(tmp_path, {"fresh": 0, "rest": [1, 2]})) == [{1: [0]}, {}, {1: [1, 2]}]
    found = durations(tmp_path, {"fresh": 9, "rest": {"10": [1], "5": [2]}, "mean_ms": 4})
    assert tables(found) == [{5: [9], 10: [9]}, {}, {5: [2], 10: [1]}]
    assert found.mean_ms == 4


def test_arrivals_and_names_of_a_file(tmp_path: Path) -> None:
    stages = [stage(parents=["b", 2], name="a"), stage(name="b"), stage(name="2", parents=["b"])]
    [job] = read(tmp_path, of_stages(*stages)).profiles
    assert job.edges.tolist() == [[1, 0], [1, 2], [2, 0]]
    assert read_text(tmp_path, json.dumps(minimal()), "my.week.json").name == "my.week"
    assert read(tmp_path, minimal(name="")).name == ""
    profiles = {name: {"stages": [stage()]} for name in "abc"}
    arrivals = [("a", 5), ("b", 1), ("c", 5), ("a", 1)]
    jobs = [{"profile": name, "arrival_ms": time} for name, time in arrivals] + [{"profile": "c"}]
    sequence = read(tmp_path, minimal(profiles=profiles, jobs=jobs, seed=3)).sequence
    assert sequence is not None
    assert [profile.name for profile in sequence.profiles] == ["c", "b", "a", "a", "c"]
    assert (sequence.arrival_ms.tolist(), sequence.seed) == ([0, 1, 1, 5, 5], 3)


@cases(
    "startup_ms, delay_ms",
    (0, 0.0), (2978, 2978.0), (2.5, 2.5), (-1, None), (float("inf"), None), (float("nan"), None), (True, None),
    ("2978", None), (None, None),
)  # fmt: skip
def test_the_moving_delay_is_the_measured_time_to_start(startup_ms: Any, delay_ms: float | None) -> None:
    profiles = (JobProfile("j", (StageProfile(1, TASK),)),)
    assert Workload(profiles, about={"executor_startup_ms": startup_ms}).measured.get("moving_delay_ms") == delay_ms
    assert Workload(profiles).measured == {}


@settings(max_examples=25)
@given(
    sequence=job_sequences(),
    name=st.text(st.characters(exclude_categories=["Cs"])),
    suffix=st.sampled_from(("json", "json.gz")),
)
def test_round_trip(tmp_path: Path, sequence: JobSequence, name: str, suffix: str) -> None:
    path = tmp_path / f"w.{suffix}"
    write_workload(path, Workload(tuple(dict.fromkeys(sequence.profiles)), sequence, name))
    workload = read_workload(path)
    again = workload.sequence
    assert again is not None
    assert workload.name == name
    assert (again.seed, again.arrival_ms.tolist()) == (sequence.seed, sequence.arrival_ms.tolist())
    assert (again.attributes, again.tenants) == (sequence.attributes, sequence.tenants)
    assert len(workload.profiles) == len(set(sequence.profiles)) == len(set(again.profiles))
    for left, right in zip(again.profiles, sequence.profiles, strict=True):
        assert_same(left, right)


@settings(max_examples=25)
@given(profile=job_profiles())
def test_round_trip_of_a_library_and_its_bytes(tmp_path: Path, profile: JobProfile) -> None:
    path = tmp_path / "w.json"
    write_workload(path, Workload((profile,)))
    text = path.read_bytes()
    workload = read_workload(path)
    assert workload.sequence is None
    assert_same(workload.profiles[0], profile)
    write_workload(path, workload)
    assert path.read_bytes() == text


def test_round_trip_of_what_a_workload_says_about_itself(tmp_path: Path) -> None:
    about = {"source": "a\nlog", "runs": [1, 2.5, None], "model": {"rate": 3}}
    profiles = (JobProfile("j", (StageProfile(1, TASK),)),)
    write_workload(tmp_path / "w.json", Workload(profiles, about=about))
    assert read_workload(tmp_path / "w.json").about == about
    for wrong in (object(), float("nan")):
        with pytest.raises(WorkloadError, match=r"w.json: about: expected JSON values: "):
            write_workload(tmp_path / "w.json", Workload(profiles, about={"a": wrong}))
    assert read_workload(tmp_path / "w.json").about == about


def test_round_trip_of_published_profiles(shared: Any, tmp_path: Path) -> None:
    library = load_tpch(shared("tpch"), sizes=["2g"], queries=range(1, 8))
    write_workload(tmp_path / "w.json.gz", Workload(library, batch_arrivals(library, 20, seed=7)))
    workload = read_workload(tmp_path / "w.json.gz")
    for left, right in zip(workload.profiles, library, strict=True):
        assert_same(left, right)
        assert left.edges.tolist() == right.edges.tolist()


@cases(
    "durations, form",
    (TaskDurations.constant(0.1), 0.1),
    (TaskDurations.sampled([3.0]), 3.0),
    (TaskDurations.sampled([3, 4]), [3.0, 4.0]),
    (TaskDurations.constant(1, first_ms=2, fresh_ms=4), {"fresh": [4.0], "first": [2.0], "rest": [1.0]}),
    (TaskDurations.from_tables({}, {}, {1: [2]}), {"rest": [2.0]}),
    (TaskDurations.from_tables({5: [1]}, {}, {7: [2]}), {"fresh": {"5": [1.0]}, "rest": {"7": [2.0]}}),
    (TaskDurations.from_tables({}, {}, {5: [1]}, mean_ms=3), {"rest": {"5": [1.0]}, "mean_ms": 3}),
)
def test_durations_are_written_in_their_shortest_form(tmp_path: Path, durations: TaskDurations, form: Any) -> None:
    write_workload(tmp_path / "w.json", Workload((JobProfile("j", (StageProfile(2, durations),)),)))
    assert json.loads((tmp_path / "w.json").read_text())["profiles"]["j"]["stages"] == [
        {"tasks": 2, "duration_ms": form}
    ]


def test_a_line_for_each_stage_and_job(tmp_path: Path) -> None:
    job = JobProfile("j", (StageProfile(1, TASK, "a"), StageProfile(1, TASK, "b")), np.array([[0, 1]]))
    write_workload(tmp_path / "w.json", Workload((job,), batch_arrivals([job], 2, seed=1), "both"))
    assert (tmp_path / "w.json").read_text().splitlines()[5:] == [
        '    "j": {"stages": [',
        '      {"name": "a", "tasks": 1, "duration_ms": 1.0},',
        '      {"name": "b", "tasks": 1, "duration_ms": 1.0, "parents": [0]}',
        "    ]}",
        "  },",
        '  "jobs": [',
        '      {"profile": "j", "arrival_ms": 0.0},',
        '      {"profile": "j", "arrival_ms": 0.0}',
        "  ],",
        '  "seed": 1',
        "}",
    ]


def test_compressed_files_depend_on_the_workload_only(tmp_path: Path) -> None:
    workload = Workload((JobProfile("j", (StageProfile(1, TASK),)),))
    for name in ("a.json.gz", "b.json.gz"):
        write_workload(tmp_path / name, workload)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_measured_errors_are_kept(tmp_path: Path) -> None:
    profiles = (JobProfile("j", (StageProfile(1, TASK),)),)
    assert Workload(profiles).imperfections == Imperfections()
    known = Imperfections(0.31, stage_error=0, task_failures=0.001, executor_lifetime_s=7200)
    write_workload(tmp_path / "w.json", Workload(profiles, imperfections=known))
    assert json.loads((tmp_path / "w.json").read_text())["errors"] == {
        "job_error": 0.31, "stage_error": 0.0, "task_error": None, "task_count_error": None,
        "task_failures": 0.001, "executor_lifetime_s": 7200.0,
    }  # fmt: skip
    assert read_workload(tmp_path / "w.json").imperfections == known
    write_workload(tmp_path / "w.json", Workload(profiles))
    assert "errors" not in json.loads((tmp_path / "w.json").read_text())
    assert read_workload(tmp_path / "w.json").imperfections == Imperfections()
    with pytest.raises(WorkloadError, match="imperfections must be"):
        Workload(profiles, imperfections={"job_error": 1})  # type: ignore[arg-type]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(WorkloadError, match=r"w.json: cannot be written: No space left on device"):
        write_workload(path, Workload((JobProfile("j", (StageProfile(1, TASK),)),)))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_and_what_no_file_could_hold(tmp_path: Path) -> None:
    workload = Workload((JobProfile("j", (StageProfile(1, TASK),)),))
    with pytest.raises(WorkloadError, match=r"cannot be written: No such file or directory"):
        write_workload(tmp_path / "nowhere" / "w.json", workload)
    with pytest.raises(WorkloadError, match=r"w.toml: TOML is only read"):
        write_workload(tmp_path / "w.toml", workload)
    with pytest.raises(WorkloadError, match=r"w.yaml: expected a name that ends in .json, .json.gz, .toml"):
        write_workload(tmp_path / "w.yaml", workload)
    with pytest.raises(WorkloadError, match="a character that UTF-8 cannot encode"):
        write_workload(tmp_path / "w.json", Workload(workload.profiles, name="\ud800"))
    assert not list(tmp_path.iterdir())
    job = JobProfile("j", (StageProfile(1, TASK),))
    twin = JobProfile("j", job.stages)
    with pytest.raises(WorkloadError, match="needs at least one job profile"):
        Workload(())
    with pytest.raises(WorkloadError, match="need different names, 2 are named 'j'"):
        Workload((job, twin))
    with pytest.raises(WorkloadError, match="profile of job 1, 'j', is not among the profiles"):
        Workload((job,), JobSequence((job, twin), np.zeros(2)))


ETL = JobProfile("etl", (StageProfile(2, TaskDurations.constant(10)),))


def test_attributes_of_a_profile_and_of_a_job(tmp_path: Path) -> None:
    """A job's own attributes override those of its profile; its deadline overrides the profile's slack."""
    profiles = {"etl": {"weight": 4, "slack": 3, "tenant": "bi", "stages": [stage()]}}
    jobs = [
        {},
        {"weight": 2, "tenant": "web"},
        {"deadline_ms": 500, "arrival_ms": 400},
        {"slack": None, "arrival_ms": 600},
    ]
    tenants = {"web": {"weight": 2, "min_share": 5}, "bi": {}}
    file = minimal(profiles=profiles, jobs=[{"profile": "etl"} | each for each in jobs], tenants=tenants)
    found = read(tmp_path, file)
    assert found.sequence is not None
    assert found.sequence.attributes == (
        JobAttributes(4, slack=3, tenant="bi"),
        JobAttributes(2, slack=3, tenant="web"),
        JobAttributes(4, deadline_ms=500, tenant="bi"),
        JobAttributes(4, tenant="bi"),
    )
    assert found.tenants == found.sequence.tenants == (Tenant("web", 2, 5), Tenant("bi"))
    assert found.attributes == {"etl": JobAttributes(4, slack=3, tenant="bi")}


def test_jobs_that_are_drawn_have_the_attributes_of_their_profile(tmp_path: Path) -> None:
    profiles = {"etl": {"weight": 4, "tenant": "bi", "stages": [stage()]}, "web": {"stages": [stage()]}}
    library = read(tmp_path, minimal(profiles=profiles))
    drawn = library.attributed(batch_arrivals(library.profiles, 20, 0))
    for profile, each in zip(drawn.profiles, drawn.attributes, strict=True):
        assert each == (JobAttributes(4, tenant="bi") if profile.name == "etl" else JobAttributes())
    plain = batch_arrivals(library.profiles, 3, 0)
    assert Workload(library.profiles).attributed(plain) is plain


@settings(max_examples=25)
@given(shared=job_attributes(), own=job_attributes(), deadline_ms=st.sampled_from((None, 20.0)))
def test_round_trip_of_attributes(
    tmp_path: Path, shared: JobAttributes, own: JobAttributes, deadline_ms: float | None
) -> None:
    if deadline_ms is not None:
        own = replace(own, deadline_ms=deadline_ms, slack=math.inf)
    tenants = (Tenant("bi", 2, 1), Tenant("etl"), Tenant())
    sequence = JobSequence((ETL, ETL), np.zeros(2), attributes=(own, shared), tenants=tenants)
    workload = Workload((ETL,), sequence, attributes={"etl": shared})
    write_workload(tmp_path / "w.json", workload)
    again = read_workload(tmp_path / "w.json")
    assert again.sequence is not None
    assert again.sequence.attributes == sequence.attributes
    assert again.attributes.get("etl", JobAttributes()) == shared
    assert again.tenants == again.sequence.tenants == tenants


@cases(
    "file, expected",
    (minimal(format=None), "format: this key is required"),
    *(
        (minimal(errors={name: wrong}), f"errors.{name} must be {bound}, got {wrong:g}")
        for name, wrong, bound in (
            ("job_error", -0.1, "between 0 and 5"), ("stage_error", 5.1, "between 0 and 5"),
            ("task_error", -1, "between 0 and 5"), ("task_count_error", 6, "between 0 and 5"),
            ("task_failures", 1, "at least 0 and below 1"), ("task_failures", -0.1, "at least 0 and below 1"),
            ("executor_lifetime_s", 0, "above 0 and finite"),
        )
    ),
    (minimal(errors={"job_eror": 1}), "errors.job_eror: unknown key (did you mean 'job_error'?), got 1"),
    (minimal(errors={"job_error": "1"}), "errors.job_error: expected a valid number, got '1'"),
    (minimal(version=2), "version: expected 1, got 2"),
    (minimal(version=True), "version: expected 1, got 'true'"),
    (minimal(about=3), "about: expected an object, got 3"),
    (minimal(jobs=[{"profile": "\u202egnp"}]), "jobs[0].profile: no profile named '\\u202egnp'"),
    (of_stages(stage(tasks=10**13)),
     "profiles.etl.stages[0]: the number of tasks must be a whole number of 1 to 200,000,000, got 10000000000000"),
    (minimal(profiles=None), "profiles: this key is required"),
    (minimal(profiles={}), "profiles: expected at least one entry"),
    (minimal(profiles={"etl": {}}), "profiles.etl.stages: this key is required"),
    (minimal(profiles={"my etl": {}}), "profiles['my etl'].stages: this key is required"),
    (of_stages(), "profiles.etl.stages: expected at least one entry"),
    (minimal(other=1), "other: unknown key, got 1"),
    (minimal(seed=0), "seed: has no effect without jobs"),
    (minimal(jobs=[]), "jobs: expected at least one entry"),
    (minimal(jobs={}), "jobs: expected a list"),
    (minimal(jobs=[{"profile": "etl"}, {"profile": "x"}]), "jobs[1].profile: no profile named 'x'"),
    (minimal(jobs=[{"profile": "etl", "arrival_ms": -1}]),
     "jobs[0].arrival_ms: expected greater than or equal to 0, got -1"),
    (minimal(jobs=[{"profile": "etl"}], seed=-1), "seed: expected greater than or equal to 0, got -1"),
    (minimal(other=1, more=2, profiles={}), "(and 2 more)"),
    (minimal(jobs=[{"profile": "etl"}, {"profile": "etl", "weight": 0}]),
     "jobs[1]: weight must be between 1e-09 and 1e+09, got 0"),
    (minimal(profiles={"etl": {"weight": -1, "stages": [stage()]}}),
     "profiles.etl: weight must be between 1e-09 and 1e+09, got -1"),
    (minimal(jobs=[{"profile": "etl"}, {"profile": "etl", "arrival_ms": 9, "deadline_ms": 8}]),
     "jobs[1].deadline_ms: the deadline at 8 ms is before the arrival at 9 ms"),
    (minimal(jobs=[{"profile": "etl", "deadline_ms": 8, "slack": 2}]),
     "jobs[0]: a job has either deadline_ms or slack, got both"),
    (minimal(jobs=[{"profile": "etl", "weight": "4"}]), "jobs[0].weight: expected a valid number, got '4'"),
    (
        minimal(jobs=[{"profile": "etl"}, {"profile": "etl", "tenant": "x"}], tenants={"a": {}, "b": {}}),
        "jobs[1].tenant: unknown tenant 'x', expected one of a, b",
    ),
    (minimal(profiles={"etl": {"tenant": "x", "stages": [stage()]}}, tenants={"a": {}}),
     "profiles.etl.tenant: unknown tenant 'x', expected one of a"),
    (minimal(tenants={"a": {"weight": 0}}), "tenants.a: weight must be between 1e-09 and 1e+09, got 0"),
    (minimal(tenants={"a": {"max_share": 0}}), "tenants.a.max_share: unknown key (did you mean 'min_share'?), got 0"),
)  # fmt: skip
def test_malformed_files(tmp_path: Path, file: dict[str, Any], expected: str) -> None:
    (tmp_path / "own.json").write_text(json.dumps(file))
    message = refused(tmp_path / "own.json")
    assert message.endswith(expected) if expected.startswith("(") else message == expected


@cases(
    "changed, expected",
    ({"tasks": 0}, "tasks: expected greater than or equal to 1, got 0"),
    ({"tasks": 2.0}, "tasks: expected a valid integer, got 2.0"),
    ({"cpu": -1}, "cpu: expected greater than or equal to 0, got -1"),
    ({"memory": float("inf")}, "memory: expected a finite number, got inf"),
    ({"memory": 10**400}, "memory: expected a valid number"),
    ({"input_bytes": -1}, "input_bytes: expected greater than or equal to 0, got -1"),
    ({"input_rows": 0.5}, "input_rows: expected a valid integer, got 0.5"),
    ({"shuffle_bytes": 10**18 + 1}, "shuffle_bytes: expected less than or equal to 1000000000000000000"),
    ({"operators": ["Sort"] * 65}, "operators: List should have at most 64 items after validation, not 65"),
    ({"operators": ["Sort", 3]}, "operators[1]: expected a valid string, got 3"),
    ({"gpu": 1}, "gpu: unknown key (did you mean 'cpu'?), got 1"),
    ({"duration_ms": "1"}, "duration_ms: expected a number, a list of numbers, or an object by wave, got '1'"),
    ({"duration_ms": True}, "duration_ms: expected a number, a list of numbers, or an object by wave, got True"),
    ({"duration_ms": []}, "duration_ms: expected at least one entry"),
    ({"duration_ms": [1, -2]}, "duration_ms[1]: expected greater than or equal to 0, got -2"),
    ({"duration_ms": [1e308, 1e308]}, "duration_ms: a task duration must be between 0 and 1e+13 ms, got 1e+308"),
    ({"duration_ms": {}}, "duration_ms: expected measurements of at least one wave"),
    ({"duration_ms": {"last": 1}}, "duration_ms.last: unknown key, got 1"),
    ({"duration_ms": {"rest": 1, "mean_ms": -1}}, "duration_ms.mean_ms: expected greater than or equal to 0, got -1"),
    ({"duration_ms": {"rest": {"0": [1]}}},
     "duration_ms.rest.0: expected a parallelism level, a whole number from 1, got '0'"),
    ({"duration_ms": {"rest": {"99999999999": [1]}}},
     "duration_ms.rest.99999999999: expected a parallelism level, a whole number from 1, got '99999999999'"),
    ({"duration_ms": {"rest": {"5": 1}}}, "duration_ms.rest.5: expected a list, got 1"),
    ({"parents": 1}, "parents: expected a list, got 1"),
    ({"parents": [0, 3]}, "parents[1]: expected the number of a stage, 0 to 2"),
    ({"parents": ["\x1b[31m"]}, "parents[0]: no stage of this job is named '\\x1b[31m'"),
    ({"parents": ["b"]}, "parents[0]: no stage of this job is named 'b'"),
    ({"parents": ["a"]}, "parents[0]: stages 0 and 1 are both named 'a', expected a number"),
)  # fmt: skip
def test_malformed_stages(tmp_path: Path, changed: dict[str, Any], expected: str) -> None:
    file = of_stages(stage(name="a"), stage(name="a"), stage(**changed))
    (tmp_path / "own.json").write_text(json.dumps(file))
    assert refused(tmp_path / "own.json") == f"profiles.etl.stages[2].{expected}"


def test_names_of_operators_are_printable(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(of_stages(stage(operators=["Sort", "\x1b[31m"]))))
    expected = "operators[1]: expected 1 to 100 printable characters, got '\\x1b[31m'"
    assert refused(tmp_path / "own.json") == f"profiles.etl.stages[0]: {expected}"


@cases(
    "parents, expected",
    ([[1], [0]], "the stages form a cycle: 0 -> 1"),
    ([[0], []], "the stages form a cycle: 0"),
    ([[], [0, 0]], "the same edge is given twice"),
    ([[], [0, "first"]], "the same edge is given twice"),
)
def test_impossible_dags(tmp_path: Path, parents: list[list[int]], expected: str) -> None:
    first, second = parents
    file = of_stages(stage(name="first", parents=first), stage(parents=second))
    (tmp_path / "own.json").write_text(json.dumps(file))
    assert refused(tmp_path / "own.json") == f"profiles.etl: {expected}"


def test_files_that_no_parser_reads(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text("1" * 5000)
    assert "5000 digits" in refused(tmp_path / "own.json")
    (tmp_path / "own.toml").write_text("version = 0x1" + "0" * 5000)
    assert refused(tmp_path / "own.toml").startswith("format: this key is required")
    (tmp_path / "own.toml").write_text('format = "decima-workload"\nversion = \n')
    assert refused(tmp_path / "own.toml") == "Invalid value (at line 2, column 11)"
    (tmp_path / "own.toml").write_text("version = 1\nversion = 1")
    assert "Cannot overwrite a value" in refused(tmp_path / "own.toml")
    (tmp_path / "own.toml").write_text('format = "decima-workload"\nversion = 1\nprofiles = 2026-01-01')
    assert refused(tmp_path / "own.toml") == "profiles: expected an object"
    assert refused(tmp_path / "own.csv") == "expected a name that ends in .json, .json.gz, .toml"


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("1", "rest", "x")), inner),
    max_leaves=8,
)


@given(
    key=st.sampled_from(sorted(minimal())),
    top=json_like,
    inner=st.fixed_dictionaries(
        {"tasks": json_like, "duration_ms": json_like}, optional={"parents": json_like, "name": json_like}
    ),
)
def test_whatever_json_holds_is_read_or_refused_in_one_line(tmp_path: Path, key: str, top: Any, inner: Any) -> None:
    path = tmp_path / "own.json"
    for file in (minimal(**{key: top}), of_stages(inner)):
        path.write_text(json.dumps(file))
        try:
            read_workload(path)
        except WorkloadError:
            refused(path)


def test_garbage_collection_goes_on_after_a_file_was_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    path.write_text('{"format": "decima-workload", "version": 1, "profiles": {"a": {"stages": []}}}')
    with pytest.raises(WorkloadError, match="stages"):
        read_workload(path)
    assert gc.isenabled()
    path.write_text(path.read_text().replace("[]", '[{"tasks": 1, "duration_ms": 5}]'))
    gc.disable()
    try:
        read_workload(path)
        assert not gc.isenabled()
    finally:
        gc.enable()
