"""The page of a comparison, as text and in a browser."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.evaluation import Comparison, Conditions
from decima.show.page import TICKS, comparison_page, packed_schedule
from decima.show.report import comparison_notes, comparison_table
from simulator import ClusterConfig, EpisodeRecord
from tests.browser import CHROMIUM, Page, visit
from tests.decima.episodes import episode
from workloads import JobProfile, StageProfile, TaskDurations, Workload

#: Names that would have an effect if the page treated them as markup or code.
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
STAGE = "<b>map</b> & </script>"


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Three jobs of two stages, on two executors; under fifo and fair."""
    stages = (
        StageProfile(4, TaskDurations.constant(3000.0), name=STAGE),
        StageProfile(2, TaskDurations.constant(2000.0)),
    )
    workload = Workload((JobProfile(EVIL, stages, np.array([[0, 1]])),), None, EVIL)
    cluster = ClusterConfig(num_executors=2, moving_delay_ms=1000.0)
    conditions = Conditions(workload, cluster, num_jobs=3, num_experiments=2)
    comparison = Comparison(conditions, ["fifo", "fair"])
    comparison.run(workers=1)
    return comparison


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    notes = comparison_notes(comparison)
    text = comparison_page(comparison, [comparison_table(comparison)], notes, f"decima {EVIL}")
    path.write_text(text, encoding="utf-8")
    return path


def unpacked(record: EpisodeRecord) -> dict[str, np.ndarray]:
    executors = record.config.num_executors
    content = np.frombuffer(gzip.decompress(base64.b64decode(packed_schedule(record))), "<u4").astype(int)
    counts, columns = content[:executors], content[executors:].reshape(6, -1)
    gap, duration, stage, job, parallelism, wave = columns
    executor = np.repeat(np.arange(executors), counts)
    start = np.zeros(gap.size)
    for place in range(gap.size):
        goes_on = place and executor[place] == executor[place - 1]
        start[place] = gap[place] + (start[place - 1] + duration[place - 1] if goes_on else 0)
    scale = record.end_ms / TICKS
    return {
        "executor": executor, "start": start * scale, "finish": (start + duration) * scale, "stage": stage,
        "job": job, "parallelism": parallelism, "wave": wave,
    }  # fmt: skip


def test_a_packed_schedule_holds_every_task_and_move() -> None:
    record = episode()
    found = unpacked(record)
    tasks, moves = found["stage"] >= 2, found["stage"] == 0
    assert (tasks | moves).all()
    rows = np.lexsort((record.task_start_ms, record.task_executor))
    for name, expected in (
        ("executor", record.task_executor), ("job", record.task_job), ("wave", record.task_wave),
        ("parallelism", record.task_parallelism), ("stage", 2 + record.task_job),
    ):  # fmt: skip
        assert found[name][tasks].tolist() == expected[rows].tolist(), name
    tick = record.end_ms / TICKS
    np.testing.assert_allclose(found["start"][tasks], record.task_start_ms[rows], atol=2 * tick)
    np.testing.assert_allclose(found["finish"][tasks], record.task_finish_ms[rows], atol=2 * tick)
    rows = np.lexsort((record.move_depart_ms, record.move_executor))
    np.testing.assert_allclose(found["finish"][moves], record.move_arrive_ms[rows], atol=2 * tick)
    assert found["job"][moves].tolist() == record.move_job[rows].tolist()


def test_names_are_text_and_nothing_is_loaded_from_elsewhere(comparison: Comparison, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # Parts of the page without the source of Plotly, which is long and known.
    ours = re.sub(r"<script>/\*\*\n\* plotly.*?</script>", "", text, flags=re.DOTALL)
    assert len(ours) < 100_000
    assert EVIL not in ours
    assert 'onerror="' not in ours
    assert "<b>" not in ours
    assert ours.count("</script>") == 1 + len(comparison.schedulers) + 1
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", ours)
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', ours, flags=re.DOTALL)
    [profile] = json.loads(data)["profiles"]
    assert (profile["name"], profile["stages"][0]["name"]) == (EVIL, STAGE)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to draw the page")
def test_the_page_draws_zooms_and_answers_the_mouse(comparison: Comparison, page: Path, tmp_path: Path) -> None:
    record = comparison.episodes["fair"]
    first = int(np.nanargmin(record.task_start_ms))
    middle_s = (record.task_start_ms[first] + record.task_finish_ms[first]) / 2000
    seen: dict[str, Any] = {}

    async def look(tab: Page) -> None:
        await tab.until("document.body && document.body.dataset.drawn")
        seen["title"] = await tab.run("document.title")
        seen["plots"] = await tab.run("document.querySelectorAll('.main-svg').length")
        seen["buttons"] = await tab.run(
            "[...document.querySelectorAll('.modebar-btn')].map(each => each.dataset.title)"
        )
        seen["cells"] = await tab.run("[...document.querySelectorAll('td')].map(cell => cell.textContent)")
        seen["opened"] = await tab.run(
            "[document.getElementById('schedules')._fullLayout.xaxis.range[1], document.getElementById('job').value, "
            "+document.getElementById('moment').value]"
        )
        seen["table"] = await tab.run(
            "[...document.querySelectorAll('#stages tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        seen["sorted"] = await tab.run(
            "(() => { document.getElementById('every').click(); "
            "document.querySelectorAll('#stages button')[1].click(); "
            "return [...document.querySelectorAll('#stages tr')].slice(1).map(row => row.cells[1].textContent); })()"
        )
        await tab.run(
            "for (const [id, name] of [['above', 'fair'], ['below', 'fifo']]) { "
            "const menu = document.getElementById(id); "
            "menu.selectedIndex = [...menu.options].findIndex(each => each.text === name); menu.onchange(); }"
        )
        await tab.run("document.getElementById('schedules').scrollIntoView()")
        # The pointer moves to a task and clicks it.
        where = (
            "(() => { const graph = document.getElementById('schedules'), box = graph.getBoundingClientRect(), "
            f"{{xaxis: x, yaxis: y}} = graph._fullLayout; return [box.left + x._offset + x.d2p({middle_s}), "
            f"box.top + y._offset + y.d2p({record.task_executor[first] + 0.5})]; }})()"
        )
        x, y = await tab.until(where)
        await tab.until("document.getElementById('above').selectedOptions[0].text === 'fair'")
        seen["pixel"] = await tab.run(
            "(() => { const canvas = document.querySelector('#schedules canvas'), "
            "box = canvas.getBoundingClientRect(), "
            f"x = ({x} - box.left) * canvas.width / box.width, y = ({y} - box.top) * canvas.height / box.height; "
            "return [...canvas.getContext('2d').getImageData(x, y - 25, 1, 1).data]; })()"
        )
        seen["colours"] = await tab.run("JSON.parse(document.getElementById('data').textContent).colours")
        await tab.mouse("Moved", x, y)
        seen["hint"] = await tab.until(
            "document.getElementById('hint').hidden ? '' : document.getElementById('hint').textContent"
        )
        await tab.mouse("Pressed", x, y)
        await tab.mouse("Released", x, y)
        seen["clock"] = await tab.until(
            f"Math.abs(document.getElementById('moment').value - {middle_s}) < 0.5 "
            "&& document.getElementById('clock').textContent"
        )
        seen["job"] = await tab.run("document.getElementById('job').selectedOptions[0].text")
        seen["stages"] = await tab.run("[...document.querySelectorAll('#dags text')].map(each => each.textContent)")
        # Both schedules zoom together.
        seen["range"] = await tab.run("[...document.getElementById('schedules')._fullLayout.xaxis.range]")
        await tab.mouse("Pressed", x, y)
        for step in range(1, 6):
            await tab.mouse("Moved", x + 40 * step, y, buttons=1)
        await tab.mouse("Released", x + 200, y)
        seen["zoomed"] = await tab.until(
            "(() => { const range = [...document.getElementById('schedules')._fullLayout.xaxis.range]; "
            f"return range[1] - range[0] < {seen['range'][1]} / 2 && range; }})()"
        )
        await tab.picture(tmp_path / "page.png")
        # On a phone, tables that scroll can be reached by keyboard.
        size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        await tab.send("Emulation.setDeviceMetricsOverride", **size)
        scrolling = "[...document.querySelectorAll('main table')].filter(each => each.scrollWidth > each.clientWidth)"
        await tab.until(f"{scrolling}.length && {scrolling}.every(each => each.tabIndex === 0)")
        seen["title at the end"] = await tab.run("document.title")
        seen["images"] = await tab.run("document.querySelectorAll('img').length")
        assert not tab.errors

    visit(page, look, tmp_path)
    records = list(comparison.episodes.values())
    end_s, job, moment_s = seen["opened"]
    assert end_s == pytest.approx(max(record.end_ms for record in records) / 1000)
    for record_of in records:
        tasks = record_of.tasks().query(f"job == {job}")
        assert tasks["start_ms"].min() / 1000 < moment_s < tasks["finish_ms"].max() / 1000
    tasks = comparison.episodes["fifo"].tasks().query(f"job == {job} and stage == 0")
    times = (tasks["finish_ms"] - tasks["start_ms"]) / 1000
    [_, cells, _] = seen["table"]
    assert cells[:2] == [f"0: {STAGE}", "4"]
    assert [float(text) for text in cells[5:10]] == pytest.approx(
        times.quantile([0, 0.25, 0.5, 0.75, 1]).tolist(), abs=0.006
    )
    assert seen["sorted"] == ["4"] * 3 + ["2"] * 3
    assert EVIL in seen["title"]
    assert (seen["title at the end"], seen["images"], seen["cells"][0]) == (seen["title"], 0, "fifo")
    # No button sends data to a server.
    own = {"Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"}
    assert set(seen["buttons"]) == own
    assert seen["plots"] >= 4
    job, task = record.task_job[first], record.task_stage[first]
    assert f"job {job}: {EVIL}\nstage {task}: {STAGE}" in seen["hint"]
    assert f"parallelism {record.task_parallelism[first]}" in seen["hint"]
    assert "#" + bytes(seen["pixel"][:3]).hex() == seen["colours"][job]
    assert seen["job"] == f"{job}: {EVIL}"
    assert "0/4" in seen["stages"]
    assert seen["zoomed"][0] == pytest.approx(middle_s, abs=0.5)
