"""Pictures against stored baselines. To store new ones, run with DECIMA_NEW_BASELINES=1."""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from decima.evaluation import Comparison, Conditions
from decima.show.page import _distribution
from decima.show.plots import (
    FEW_DAGS,
    MOST_DAGS,
    comparison_pictures,
    plot_dag,
    plot_dags,
    plot_film,
    plot_jct_cdf,
    plot_jobs_in_system,
    plot_mean_jobs_in_system,
    plot_schedule,
    plot_schedules,
)
from decima.show.style import STYLES, save_figure
from simulator.cluster.config import ClusterConfig, ExecutorClass
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.record import EpisodeRecord
from tests.decima.episodes import episode
from workloads.arrivals import JobSequence
from workloads.errors import ConfigError
from workloads.job import JobProfile, StageProfile, TaskDurations
from workloads.sources.workload_file import Workload

BASELINE = Path(__file__).parent / "baseline"
#: Root mean square of the difference, 0 to 255. Fonts and antialiasing differ by less between versions.
TOLERANCE = 8.0

JCT = {"fifo": [90.0, 110.0, 95.0], "fair": [50.0, 45.0, 70.0], "my:Own": [40.0, 42.0, 66.0]}


def difference(figure: Figure, name: str, folder: Path) -> str | None:
    """Return ``None`` if the figure equals its baseline, else a description of the difference."""
    picture, baseline = folder / f"{name}.png", BASELINE / f"{name}.png"
    figure.savefig(picture, dpi=50)
    if os.environ.get("DECIMA_NEW_BASELINES"):
        baseline.write_bytes(picture.read_bytes())
    return compare_images(str(baseline), str(picture), TOLERANCE)


def test_schedules_show_jobs_moves_and_classes(tmp_path: Path) -> None:
    assert difference(plot_schedule(episode(), "fair"), "schedule", tmp_path) is None
    classes = (ExecutorClass(2, memory=0.5), ExecutorClass(4, cpu=2.0, memory=1.0))
    record = replace(episode(), config=ClusterConfig(executor_classes=classes, moving_delay_ms=1000.0))
    assert difference(plot_schedule(record, "tetris"), "schedule-classes", tmp_path) is None
    moves, busy = 4 * 6, 4 * 6  # each job on each executor: two tasks without a gap
    assert bars(plot_schedule(episode())) == [moves, busy]


def test_schedules_of_the_same_jobs_share_their_axis_and_a_job_stands_out(tmp_path: Path) -> None:
    records = {"slow": episode(2.0), "fast": episode()}
    assert difference(plot_schedules(records, highlight=2), "schedules", tmp_path) is None
    for highlight, lines in ((None, 4), (2, 1)):  # at completions
        for axes in plot_schedules(records, highlight).axes:
            [drawn] = [item for item in axes.collections if isinstance(item, LineCollection)]
            assert len(drawn.get_segments()) == lines
    slow, fast = plot_schedules(records).axes
    assert slow.get_xlim() == fast.get_xlim() == (0, records["slow"].end_ms / 1000)
    assert fast.get_title(loc="left") == "fast: jobs complete after 12.5 s on average"
    for index in (-1, 4):
        with pytest.raises(ConfigError, match=f"one of 4 jobs, got {index}"):
            plot_schedules(records, highlight=index)
    with pytest.raises(ConfigError, match="record of fast"):
        plot_schedules({"fast": "record"})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="at least one"):
        plot_schedules({})


def test_frames_of_a_film_show_what_is_complete(tmp_path: Path) -> None:
    records = {"slow": episode(2.0), "fast": episode()}
    end_s = records["slow"].end_ms / 1000
    axes = plot_film(records, frames=2).axes
    titles = [panel.get_title(loc="left") for panel in axes]
    complete = [sum(record.completion_ms <= share * 1000 * end_s) for record in records.values() for share in (0.5, 1)]
    assert titles == [
        f"{time_s:.0f} s: {count} of 4 jobs" for time_s, count in zip([end_s / 2, end_s] * 2, complete, strict=True)
    ]
    assert complete[0] < complete[1] == complete[3] == 4
    assert {panel.get_xlim() for panel in axes} == {(0, end_s)}
    with pytest.raises(ConfigError, match="expected at least two frames, got 1"):
        plot_film(records, frames=1)
    with pytest.raises(ConfigError, match="at least one"):
        plot_film({})


def test_a_cdf_has_one_line_per_scheduler_and_none_squeezes_the_others(tmp_path: Path) -> None:
    assert difference(plot_jct_cdf(JCT), "jct-cdf", tmp_path) is None
    [axes] = plot_jct_cdf(JCT).axes
    assert (axes.get_xscale(), axes.get_xlim()[0]) == ("linear", 0)
    [axes] = plot_jct_cdf({**JCT, "fifo": [900.0, 1100.0, 950.0]}).axes
    assert axes.get_xscale() == "log"
    left, right = axes.get_xlim()
    assert 20 < left < 40 < 1100 < right


def test_a_legend_names_each_job_once_and_idle_executors() -> None:
    jobs, marks = plot_schedule(episode(), "fair").legends
    assert [text.get_text() for text in jobs.get_texts()] == ["job #1", "job #2", "job #3", "job #4"]
    assert [text.get_text() for text in marks.get_texts()] == [
        "executor moves", "executor is idle", "job completes", "job arrives",
    ]  # fmt: skip
    record = episode()
    profile = record.sequence.profiles[0]
    names = ["a", "a" * 60 + "1", "a", "a" * 60 + "2"]
    profiles = tuple(replace(profile, name=name) for name in names)
    jobs, _ = plot_schedule(replace(record, sequence=replace(record.sequence, profiles=profiles))).legends
    shown = [text.get_text() for text in jobs.get_texts()]
    assert (shown[0], shown[2]) == ("a #1", "a #2")
    assert len(set(shown)) == 4


def test_a_long_title_is_not_shortened() -> None:
    title = "Every executor of another job costs a moving delay of 2 s, and more words follow after these"
    shown = plot_schedule(episode(), title).axes[0].get_title(loc="left")
    *lines, last = shown.splitlines()
    assert (" ".join(lines), last) == (title, "average JCT 12.5 s")


def test_jobs_in_system_are_means_over_all_experiments(tmp_path: Path) -> None:
    """Two experiments: in one the schedulers are equal, in the other ``fair`` keeps jobs twice as long."""
    rows = [
        {"scheduler": name, "seed": seed, "arrival_s": arrival, "jct_s": jct}
        for name, times in {"fair": (10.0, 20.0), "decima": (10.0, 10.0)}.items()
        for seed, jct in enumerate(times)
        for arrival in (0.0, 10.0, 20.0)
    ]
    rows.append({"scheduler": "fair", "seed": 0, "arrival_s": 5.0, "jct_s": np.nan})
    figure = plot_mean_jobs_in_system(pd.DataFrame(rows))
    [axes] = figure.axes
    assert axes.get_title(loc="left") == "Mean of 2 experiments"
    fair, decima = axes.lines
    at = lambda line, second: float(np.interp(second, *line.get_data()))  # noqa: E731
    assert [at(fair, second) for second in (5, 15, 35)] == pytest.approx([1, 1.5, 0.5])
    assert [at(decima, second) for second in (5, 15, 35)] == pytest.approx([1, 1, 0])
    # 30 s in 30 s, then 60 s or 30 s in 40 s; Student's t of one degree of freedom is 12.706.
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["fair: 1.2 ± 3.2", "decima: 0.88 ± 1.6"]
    assert difference(figure, "mean-jobs-in-system", tmp_path) is None


def test_pictures_of_a_comparison_and_its_page_have_equal_colours_and_say_which_experiments() -> None:
    stages = (StageProfile(4, TaskDurations.constant(3000.0)),)
    workload = Workload((JobProfile("job", stages, np.zeros((0, 2))),), None, "made up")
    cluster = ClusterConfig(num_executors=2, moving_delay_ms=1000.0)
    for experiments, title in ((2, "Mean of 2 experiments"), (1, "Seed 5")):
        conditions = Conditions(
            workload, cluster, num_jobs=3, num_experiments=experiments, arrivals="poisson", interval_ms=4000.0, seed=5
        )
        comparison = Comparison(conditions, ["fifo", "fair", "tuned-weighted-fair"])
        comparison.run(workers=1)
        pictures = comparison_pictures(comparison)
        system, cdf = pictures["jobs-in-system"](), pictures["jct-cdf"]()
        assert system.axes[0].get_title(loc="left") == title
        assert pictures["schedule-fair"]().axes[0].get_title(loc="left").startswith("fair, seed 5: ")
        expected = [STYLES[name][0] for name in comparison.schedulers]
        for figure in (system, cdf):
            assert [line.get_color() for line in figure.axes[0].lines] == expected
        data = _distribution(comparison.runs, "mean_jct_s", "", "")["data"]
        assert [trace["line"]["color"] for trace in data] == expected


def test_jobs_in_system_have_one_line_and_mean_per_scheduler(tmp_path: Path) -> None:
    records = {"fifo": episode(1.6), "fair": episode()}
    assert difference(plot_jobs_in_system(records), "jobs-in-system", tmp_path) is None
    records = {f"my:Scheduler{number}": episode(1 + number / 10) for number in range(9)}
    figure = plot_jobs_in_system(records)
    assert len(figure.axes[0].lines) == 9
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[3] == f"my:Scheduler3: {EpisodeMetrics(episode(1.3)).mean_jobs_in_system:.2g}"


@pytest.mark.parametrize("title", ["fifo, seed 0", "my.package.of.schedulers:ShortestJobFirstOrWhatever:0.25"])
@pytest.mark.parametrize("name", ["job", "a very long name of a job that goes on"])
def test_nothing_lies_on_a_legend(title: str, name: str) -> None:
    record = episode()
    profile = replace(record.sequence.profiles[0], name=name)
    record = replace(record, sequence=replace(record.sequence, profiles=(profile,) * 4))
    figures = [
        plot_schedule(record, title),
        plot_jct_cdf({**JCT, title: JCT["fair"]}),
        plot_jobs_in_system({"fifo": record, title: record}),
    ]
    for figure in figures:
        figure.draw_without_rendering()
        [axes] = figure.axes
        boxes = [legend.get_window_extent() for legend in figure.legends]
        boxes += [text.get_window_extent() for text in (axes._left_title, axes.xaxis.label)]
        boxes.append(axes.get_window_extent())
        for place, box in enumerate(boxes):
            assert figure.bbox.x0 <= box.x0
            assert box.x1 <= figure.bbox.x1
            for other in boxes[:place]:
                assert box.width * box.height == 0 or not box.overlaps(other)


def test_many_jobs_and_unfinished_episodes_are_drawn() -> None:
    record = episode()
    many = replace(
        record,
        sequence=replace(record.sequence, profiles=record.sequence.profiles[:1] * 40, arrival_ms=np.arange(40.0)),
        **{
            field: np.resize(getattr(record, field), 40 * 12)
            for field in ("task_start_ms", "task_finish_ms", "task_executor", "task_wave", "task_parallelism")
        },
        completion_ms=np.resize(record.completion_ms, 40),
    )
    [legend] = plot_schedule(many).legends
    assert legend.get_texts()[0].get_text() == "40 jobs in 20 colours"
    whole = episode()
    cut = replace(
        whole,
        end_ms=15_000.0,
        completion_ms=np.where(whole.completion_ms <= 15_000.0, whole.completion_ms, np.nan),
        task_executor=np.where(whole.task_start_ms < 15_000.0, whole.task_executor, -1).astype(np.int32),
    )
    figure = plot_schedule(cut)
    assert figure.axes[0].get_xlim() == (0, 15)
    assert bars(figure)[1] < 4 * 6


def test_the_comparison_notices_another_picture(tmp_path: Path) -> None:
    if os.environ.get("DECIMA_NEW_BASELINES"):
        pytest.skip("the baselines are being replaced")
    assert difference(plot_schedule(episode(1.2), "fair"), "schedule", tmp_path) is not None
    other = {"fifo": JCT["fair"], "fair": JCT["fifo"], "my:Own": JCT["my:Own"]}
    assert difference(plot_jct_cdf(other), "jct-cdf", tmp_path) is not None
    records = {"fifo": episode(), "fair": episode(1.6)}
    assert difference(plot_jobs_in_system(records), "jobs-in-system", tmp_path) is not None


def mosaic(jobs: np.ndarray) -> EpisodeRecord:
    """Return tasks of 1 s, consecutive on each executor; ``jobs`` [executors, tasks] are their jobs."""
    executors, length = jobs.shape
    order = np.argsort(jobs.ravel(), kind="stable")
    executor, place = np.divmod(order, length)
    counts = np.bincount(jobs.ravel())
    profiles = {
        count: JobProfile("job", (StageProfile(count, TaskDurations.constant(1000.0)),))
        for count in set(counts.tolist())
    }
    start = place * 1000.0
    return EpisodeRecord(
        config=ClusterConfig(num_executors=executors),
        sequence=JobSequence(tuple(profiles[count] for count in counts.tolist()), np.zeros(counts.size)),
        task_start_ms=start,
        task_finish_ms=start + 1000.0,
        task_executor=executor.astype(np.int32),
        task_wave=np.zeros(order.size, np.int8),
        task_parallelism=np.ones(order.size, np.int32),
        completion_ms=np.full(counts.size, length * 1000.0),
        move_executor=np.zeros(0, np.int32),
        move_job=np.zeros(0, np.int64),
        move_depart_ms=np.zeros(0),
        end_ms=length * 1000.0,
        num_decisions=counts.size,
    )


def bars(figure: Figure) -> list[int]:
    collections = [item for item in figure.axes[0].collections if isinstance(item, PolyCollection)]
    return [len(collection.get_paths()) for collection in collections]


def test_two_hundred_thousand_tasks_are_drawn_in_a_moment(tmp_path: Path) -> None:
    record = mosaic(np.tile(np.repeat(np.arange(200), 20), (50, 1)))
    before = time.process_time()
    plot_schedule(record, "fifo").savefig(tmp_path / "schedule.png")
    assert time.process_time() - before < 3
    assert (tmp_path / "schedule.png").stat().st_size < 500_000


def profile(name: str, *tasks: int, edges: tuple[tuple[int, int], ...] = ()) -> JobProfile:
    stages = tuple(
        StageProfile(count, TaskDurations.constant(1000.0), name=f"org.example.stage number {number}")
        for number, count in enumerate(tasks)
    )
    return JobProfile(name, stages, np.array(edges).reshape(-1, 2))


LONG = "org.example.warehouse.nightly.CustomerLifetimeValueAggregation_v"


def test_dags_explain_their_colours(tmp_path: Path) -> None:
    diamond = profile(f"{LONG}1", 8, 2, 30, 4, edges=((0, 1), (0, 2), (1, 3), (2, 3)))
    shown = plot_dags([diamond, profile(f"{LONG}2", 5), profile("$x^2$", 3, 1, edges=((0, 1),))])
    assert difference(shown, "dags", tmp_path) is None
    titles = [axes.get_title(loc="left") for axes in shown.axes]
    assert titles[0].endswith("1\n4 stages, 44 tasks, 44.0 s of work")
    assert titles[1].endswith("2\n1 stage, 5 tasks, 5.0 s of work")
    assert [text.get_text() for text in shown.legends[0].get_texts()][1] == "on the path with the most work"


@pytest.mark.parametrize("stages", [1, 3, 20])
def test_no_title_is_cut(stages: int) -> None:
    chain = tuple((number, number + 1) for number in range(stages - 1))
    for figure in (plot_dag(profile(LONG * 3, *[200] * stages, edges=chain)), plot_dags([profile(LONG, 1)] * 5)):
        figure.draw_without_rendering()
        boxes = [axes._left_title.get_window_extent() for axes in figure.axes]
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
        assert all(figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)
        assert all(not box.overlaps(other) for place, box in enumerate(boxes) for other in boxes[:place])
        legend = figure.legends[0].get_window_extent()
        assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
        assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_many_and_large_dags_are_drawn(tmp_path: Path) -> None:
    figure = plot_dags([profile("job", 1)] * (MOST_DAGS + 1))
    assert len(figure.axes) == FEW_DAGS
    assert figure.legends[0].get_title().get_text() == f"the first {FEW_DAGS} of {MOST_DAGS + 1} DAGs"
    chain = profile("chain", *[2] * 8000, edges=tuple((number, number + 1) for number in range(7999)))
    before = time.process_time()
    save_figure(plot_dag(chain), tmp_path / "chain.png")
    assert time.process_time() - before < 5
    assert len(plot_dag(chain).axes[0].texts) == 0
