import json
import re
import shlex
import typing
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner, Result as Outcome

from reproduce import common, render
from reproduce.__main__ import cli, figures, options
from tests.cases import cases


def command(*words: str) -> Outcome:
    return CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)


def example(
    *,
    jobs: int = 3,
    load: tuple[float, ...] = (0.5, 0.7),
    kind: typing.Literal["batch", "stream"] = "batch",
    policy: Path | None = None,
    live: bool = False,
) -> None:
    """Do nothing.

    Args:
        jobs: Number of
            jobs.
        load: Load.
        kind: Kind of arrivals.
        policy: Policy file.
        live: Whether it is live.
    """


def test_options_come_from_the_signature_and_the_docstring_of_a_function() -> None:
    found = {option.name: option for option in options(example)}
    assert list(found) == ["jobs", "load", "kind", "policy", "live"]
    assert [option.default for option in found.values()] == [3, (0.5, 0.7), "batch", None, False]
    assert found["jobs"].help == "Number of jobs."
    assert found["load"].multiple
    assert found["live"].is_flag


def test_a_command_runs_a_figure_prints_its_table_and_saves_it_where_it_is_told(tmp_path: Path) -> None:
    done = command("fig9a", "--seeds", "2", "--jobs", "3", "--workload", "synthetic", "--out", str(tmp_path))
    assert "| tuned-weighted-fair |" in done.output
    assert (tmp_path / "fig9a.png").is_file()
    content = json.loads((tmp_path / "fig9a.json").read_text())
    assert content["options"] | {"seeds": 2, "seed": 0, "workload": "synthetic"} == content["options"]
    assert [row["scheduler"] for row in content["tables"]["batches"]][-1] == "decima"


def test_the_cpu_time_is_unknown_where_other_processes_worked() -> None:
    result = common.Result({})
    assert result.content("", {"workers": 1})["cpu_s"] > 0
    assert result.content("", {})["cpu_s"] > 0
    assert result.content("", {"workers": 2})["cpu_s"] is None


def test_every_figure_is_listed_with_a_sentence_and_has_an_option_for_each_argument() -> None:
    listed = command().output
    for name, sentence in figures().items():
        assert name in listed
        assert sentence.endswith("."), f"{name}: {sentence}"
        assert "Usage" in command(name, "--help").output


def test_a_cell_has_the_format_of_its_metric_and_an_interval() -> None:
    row = {"mean_jct_s": 12.345, "mean_jct_ci95_s": 1.0, "vs fair": -0.0512, "vs fair_ci95": None, "jobs": 3}
    texts = [common.cell(row, column, {}) for column in ("mean_jct_s", "vs fair", "jobs")]
    assert texts == ["12.3 ± 1.0", "-5.1%", "3"]
    assert common.cell(row, "vs fair", {"vs fair": ".3f"}) == "-0.051"


PUBLISHED = common.Result(
    {"first": pd.DataFrame({"scheduler": ["fair", "decima"], "mean_jct_s": [2.0, 1.0]})}, values={"speedup": "2.0"}
)
TABLE = """\
| scheduler | Mean JCT (s) |
| --------- | -----------: |
| fair      |          2.0 |
| decima    |          1.0 |"""


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PUBLISHED.save("example", PUBLISHED.content("python -m reproduce example", {}), tmp_path, tmp_path)
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    render.results.cache_clear()


@pytest.mark.usefixtures("published")
def test_markers_are_filled_with_tables_and_values_and_the_rest_of_a_page_stays() -> None:
    page = "A\n<!-- result example -->old<!-- end -->\nB <!-- value example speedup -->1<!-- end --> times, "
    page += "<!-- value example decima mean_jct_s --><!-- end --> s"
    expected = (
        f"A\n<!-- result example -->\n{TABLE}\n<!-- end -->\nB <!-- value example speedup -->2.0<!-- end --> times, "
    )
    expected += "<!-- value example decima mean_jct_s -->1.0<!-- end --> s"
    assert render.rendered(page) == expected
    assert render.rendered(expected) == expected


@pytest.mark.usefixtures("published")
@cases(
    "marker, message",
    ("result nothing", "nothing: no results"),
    ("result example second", "example: no table 'second', expected one of first"),
    ("result example first: jobs", "example: no table"),
    ("value example slowdown", "example: no value 'slowdown'"),
)
def test_a_marker_that_names_nothing_is_refused(marker: str, message: str) -> None:
    with pytest.raises(render.RenderError, match=message):
        render.rendered(f"<!-- {marker} --><!-- end -->")


@pytest.mark.usefixtures("published")
def test_a_marker_without_an_end_is_refused() -> None:
    with pytest.raises(render.RenderError, match="no <!-- end -->"):
        render.rendered("<!-- run example --> .. <!-- run example --><!-- end -->")


def test_pages_show_the_published_results() -> None:
    render.results.cache_clear()
    for page in render.pages():
        text = page.read_text(encoding="utf-8")
        assert render.rendered(text) == text, f"{page.name}: run python -m reproduce render"


def test_published_results_have_a_page_that_the_index_lists_and_a_command_that_exists() -> None:
    listed = (common.PICTURES / "reproduce" / "index.md").read_text(encoding="utf-8")
    names = {file.stem for file in common.RESULTS.glob("*.json")} & figures().keys()
    assert names
    for name in names:
        page = common.PICTURES / "reproduce" / f"{name}.md"
        assert f"({name}.md)" in listed
        assert f"<!-- result {name}" in page.read_text(encoding="utf-8")
        python, *words = shlex.split(render.results(name)["command"])
        assert (python, *words[:3]) == ("python", "-m", "reproduce", name)
        figure = cli.get_command(click.Context(cli), name)
        assert figure is not None
        figure.make_context(name, words[3:])


def test_pictures_of_pages_exist() -> None:
    for page in (common.PICTURES / "reproduce").glob("*.md"):
        for picture in re.findall(r"\]\((\S+\.png)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).exists(), f"{page.name}: {picture}"


@cases("name, arrivals", ("paper", "stream"), ("headroom", "poisson"))
def test_unknown_arrivals_are_refused(name: str, arrivals: str) -> None:
    result = CliRunner().invoke(cli, [name, "--arrivals", arrivals])
    assert f"'{arrivals}' is not one of 'batches', 'streams'" in result.output
