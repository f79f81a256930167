"""Tuning: the search finds better constants reproducibly, and the command evaluates them on other seeds."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.evaluation import tune
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.options import compare, make_conditions
from decima.evaluation.tune import JUDGED_ON, TUNED_ON, TunedRule, scheduler_name, tune_rule
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.schedulers.srpt import Srpt, TunedSrpt
from decima.schedulers.srpt_weights import constants_of_orders, searched_weights
from decima.show.tuning import tuning_report
from tests.cases import cases

WEIGHTS = {name for name in searched_weights() if not name.startswith("classes.")}
CONSTANTS = {**constants_of_orders(), "price_in_batch": 2.0}


def setting(**options: object) -> Conditions:
    return make_conditions(workload="synthetic", jobs=4, executors=6, seeds=3, **options)  # type: ignore[arg-type]


def tuned(settings: dict[str, Conditions], workers: int = 1, **options: object) -> TunedRule:
    given = {"generations": 2, "sequences": 2, "judged": 2, **options}
    return tune_rule(settings, workers=workers, **given)  # type: ignore[arg-type]


class Shown(NamedTuple):
    """JSON and notes of a report."""

    content: dict[str, Any]
    notes: Sequence[str]


def report_of(*arguments: Any) -> Shown:
    report = tuning_report(*arguments)
    return Shown(json.loads(report.json), report.notes)


def test_searches_find_better_constants_also_for_other_metrics() -> None:
    settings = {"batch": setting(seed=3), "wrong": setting(seed=3, knowledge={"job_error": 1.0})}
    found = tuned(settings, generations=8, sequences=3, judged=3)
    means = found.runs[found.runs["seeds"] == TUNED_ON].groupby("scheduler")["mean_jct_s"].mean()
    assert means[found.scheduler] < means["srpt"]
    assert found.path.shape == (8, len(found.constants))
    assert found.constants == {
        name: float(f"{value:.3g}") for name, value in zip(CONSTANTS, found.path[-1], strict=True)
    }
    made = make_scheduler(found.scheduler)
    assert isinstance(made, Srpt)
    assert made.constants._asdict().items() >= found.constants.items()
    late = setting(deadlines=(1.5, 1.5), seed=3)
    found = tuned({"late": late}, rule="atc", objective="misses", generations=6, sequences=3, judged=3)
    means = found.runs[found.runs["seeds"] == TUNED_ON].groupby("scheduler")["deadline_misses"].mean()
    assert means[found.scheduler] < means["atc"]
    shown = report_of(found, {"late": late})
    assert shown.content["metric"] == "deadline_misses"
    assert "misses" in shown.notes[0]


def test_weights_are_found_with_either_sign() -> None:
    found = tuned({"batch": setting(seed=3)}, rule="srpt-tuned")
    weights = {name: value for name, value in found.constants.items() if name in WEIGHTS}
    assert min(weights.values()) < 0 < max(weights.values())
    assert all(value > 0 for name, value in found.constants.items() if name not in WEIGHTS)
    made = make_scheduler(found.scheduler)
    assert isinstance(made, TunedSrpt)
    assert made.weights.items() >= weights.items()


def test_a_search_starts_from_the_constants_of_a_scheduler(tmp_path: Path) -> None:
    """Weights that the scheduler lacks start at 0, and the result is compared with the scheduler."""
    batch = {"batch": setting(seed=3)}
    options = {"rule": "srpt-tuned", "generations": 1}
    found = tuned(batch, start="srpt:source_factor=0.5", **options)
    assert set(found.runs["scheduler"]) == {"srpt:source_factor=0.5", found.scheduler}
    shown = report_of(found, batch)
    assert shown.content["start"] == "srpt:source_factor=0.5"
    assert "Change against srpt:source_factor=0.5" in shown.notes[0]
    assert np.abs([found.constants[name] for name in WEIGHTS]).max() <= 0.15  # near 0
    assert found.constants["source_factor"] == pytest.approx(0.5, rel=1)
    file = tmp_path / "tuned.json"
    file.write_text(json.dumps({name: shown.content[name] for name in ("rule", "parameters")}))
    again = tuned(batch, start=f"srpt-tuned:{file}", **options)
    assert again.constants["source_factor"] == pytest.approx(found.constants["source_factor"], rel=1)
    assert again.start_constants == found.constants
    file.unlink()
    assert f"Change against srpt-tuned:{file}" in report_of(again, batch).notes[0]
    with pytest.raises(CompareError, match="'fair' has no constants of srpt-tuned"):
        tuned(batch, start="fair", **options)
    for start in ("nope", "srpt:nope=1", "fair:1"):
        with pytest.raises(SchedulerError, match=start.partition(":")[0]):
            tuned(batch, start=start, **options)


def test_searches_are_the_same_with_any_workers_and_judge_on_other_seeds() -> None:
    settings = {"batch": setting(), "stream": setting(arrivals="poisson", interval=5.0)}
    one, two, other = tuned(settings), tuned(settings, workers=2), tuned(settings, seed=1)
    assert one.constants == two.constants != other.constants
    pd.testing.assert_frame_equal(one.runs, two.runs)
    for seed, judged_seed in ((3, 5), (3, 2), (3, 3)):
        with pytest.raises(CompareError, match="overlap those to tune on, 3 to 5"):
            tuned({"batch": setting(seed=seed)}, judged_seed=judged_seed)
    assert set(tuned({"batch": setting(seed=3)}, judged_seed=6, generations=1).runs["seed"]) == {3, 4, 6, 7}
    found = tuned({"batch": setting(seed=3)}, rule="gamma-boost", objective="p99", generations=2)
    assert "decay" in found.constants
    assert "load" not in found.constants
    assert make_scheduler(found.scheduler).load == 0.7  # type: ignore[attr-defined]


@cases(
    "objective, message",
    ("misses", "no misses to minimise"),
    ("jain", "objective must be 'mean'"),
    ("unfairness", "no unfairness"),
)
def test_metrics_that_cannot_be_minimised(objective: str, message: str) -> None:
    with pytest.raises(CompareError, match=message):
        tuned({"batch": setting()}, objective=objective, generations=1)


def test_a_generation_runs_the_next_sequences_and_all_candidates_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    items = []

    def remember(pool: object, given: list[tuple[bool, str, int, tuple[str, ...]]], *_: object) -> object:
        items.append(given)
        return np.random.default_rng(len(items)).random((len(given), len(given[0][3])))

    monkeypatch.setattr(tune, "_run", remember)
    found = tuned({"a": setting(seed=5), "b": setting(seed=9)}, judged_seed=100)
    searched = [[(judging, name, seed) for judging, name, seed, _ in each] for each in items[:2]]
    assert searched[0] == [(False, "a", 5), (False, "a", 6), (False, "b", 9), (False, "b", 10)]
    assert searched[1] == [(False, "a", 7), (False, "a", 5), (False, "b", 11), (False, "b", 9)]
    assert all(len({specs for *_, specs in each}) == 1 for each in items)
    assert len(set(items[0][0][3])) == 4 + int(3 * np.log(len(CONSTANTS)))  # as usual for CMA-ES
    judged = found.runs[found.runs["seeds"] == JUDGED_ON]
    assert judged.groupby("condition")["seed"].unique().map(list).to_dict() == {"a": [100, 101], "b": [100, 101]}


def test_each_setting_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the JCT in one setting outweighs a third more in the other, independent of the length of jobs."""
    told = []

    class Search:
        result = type("", (), {"xfavorite": np.zeros(len(CONSTANTS))})

        def __init__(self, *_: object) -> None: ...

        def ask(self) -> list[np.ndarray]:
            return [np.zeros(len(CONSTANTS)), np.ones(len(CONSTANTS))]

        def tell(self, _: object, values: list[float]) -> None:
            told.append(values)

    monkeypatch.setattr("cma.CMAEvolutionStrategy", Search)
    values = {"long": [1000.0, 1330.0], "short": [1.0, 0.5]}
    monkeypatch.setattr(tune, "_run", lambda _, items, *__: [values[name] for _, name, *_ in items])
    tuned({"long": setting(), "short": setting()}, generations=1)
    assert told[0][1] < told[0][0]
    assert told[0][1] - told[0][0] == pytest.approx((np.log(1.33) + np.log(0.5)) / 2)


def test_changes_are_paired_and_averaged_over_settings() -> None:
    runs = []
    for which, gain in ((TUNED_ON, 0.5), (JUDGED_ON, 0.8)):
        for name, length in (("long", 100.0), ("short", 1.0)):
            for seed in (1, 2, 3):
                changed = gain if name == "long" else 1.0
                for spec, factor in (("srpt", 1.0), (scheduler_name("srpt", CONSTANTS), changed)):
                    runs.append((which, name, seed, spec, length * seed * factor))
    columns = ["seeds", "condition", "seed", "scheduler", "mean_jct_s"]
    start = dict.fromkeys(CONSTANTS, 0.5)
    table = pd.DataFrame(runs, columns=columns)
    found = TunedRule("srpt", CONSTANTS, table, np.zeros((1, 14)), "srpt", start)
    settings = {"long": setting(), "short": setting()}
    shown = report_of(found, settings, "tuned.json")
    changes = {(each["setting"], each["seeds"]): each["mean"] for each in shown.content["changes"]}
    assert changes == {
        ("long", TUNED_ON): pytest.approx(-0.5),
        ("long", JUDGED_ON): pytest.approx(-0.2),
        ("short", TUNED_ON): 0.0,
        ("short", JUDGED_ON): 0.0,
    }
    assert shown.content["average"][JUDGED_ON]["mean"] == pytest.approx(-0.1)
    assert "srpt:tuned.json" in shown.notes[1]
    assert found.scheduler in report_of(found, settings).notes[1]


def test_the_command_and_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = "tune srpt --workload synthetic --jobs 3 --executors 5 --arrivals poisson --interval 5 --seeds 2"
    words += " --judged 2 --generations 1 --workers 1 --json tuned.json --out pictures"
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 0, done.output
    content = json.loads(Path("tuned.json").read_text())
    assert [(each["arrivals"], each["jobs"]) for each in content["settings"].values()] == [("poisson", 3)]
    assert content["parameters"].keys() == CONSTANTS.keys()
    names = ["srpt:tuned.json", content["scheduler"]]
    table = compare(names, workload="synthetic", jobs=3, executors=5, seeds=2)
    one, two = (table[table["scheduler"] == name]["mean_jct_s"].tolist() for name in names)
    assert one == two
    assert "srpt:tuned.json" in done.output
    assert Path("pictures/tune.png").stat().st_size > 1000


@cases(
    "words, message",
    (["fifo"], "rule must be 'srpt', 'srpt-tuned', 'gamma-boost' or "
     "'atc', got 'fifo'"),
    (["--interval", "3"], "--interval has no effect"),
    (["srpt-tuned", "--start", "fair"], "start 'fair' has no constants of srpt-tuned"),
    (["--seed", "4", "--judged-seed", "5"], "seeds to judge on, 5 to 44, overlap those to tune on, 4 to 203"),
)  # fmt: skip
def test_options_that_make_no_sense(words: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["tune", *words])
    assert done.exit_code != 0
    assert message in done.output
