import time
from pathlib import Path

import numpy as np
import pytest

from decima.show.plots import FEW_DAGS, MOST_DAGS, plot_dag, plot_dags
from decima.show.style import save_figure
from tests.decima.show.test_plots import difference
from workloads.job import JobProfile, StageProfile, TaskDurations


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
