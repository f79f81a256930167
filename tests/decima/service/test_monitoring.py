"""The Grafana board and the alert rules name metrics that the service exports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from decima.service.metrics import Metrics

FOLDER = Path(__file__).parents[3] / "docs" / "monitoring"
METRIC = re.compile(r"\bdecima_\w+")


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Names of all time series of the service."""
    lines = generate_latest(Metrics().registry).decode().splitlines()
    return {re.split(r"[{ ]", line)[0] for line in lines if line and not line.startswith("#")}


def board() -> dict[str, Any]:
    return json.loads((FOLDER / "decima-grafana.json").read_text())


def test_metrics_of_board_and_alerts_are_exported(exported: set[str]) -> None:
    panels = board()["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert all(METRIC.search(each) for each in expressions)
    named = {name for each in expressions for name in METRIC.findall(each)}
    assert named <= exported
    series = {name for name in exported if not name.endswith(("_created", "_sum", "_count"))}
    assert named == series, "every metric is on the board"
    [group] = yaml.safe_load((FOLDER / "decima-alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        named = METRIC.findall(rule["expr"])
        assert named
        assert set(named) <= exported, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "info")
        assert re.fullmatch(r"\d+m", rule.get("for", "0m"))


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in board()["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in board()["panels"]}) == len(places)
