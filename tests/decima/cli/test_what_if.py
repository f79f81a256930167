"""The command ``decima spark what-if``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from tests.decima.cli.commands import succeeded
from tests.decima.evaluation.spark.test_what_if import night
from tests.workloads.spark.logs import LogBuilder, stage_info


def what_if(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["spark", "what-if", *arguments])


@pytest.mark.usefixtures("pictures")
def test_it_tells_the_gain_and_how_uncertain_it_is(tmp_path: Path) -> None:
    night(2).write(tmp_path / "log")
    result = succeeded(what_if("log", "--draws", "2", "--json", "found.json", "--out", "pictures"))
    assert "4 jobs as they came, 2 executors" in result.stdout
    assert "no task fails and no executor is lost" in " ".join(result.stdout.split())
    assert " measured 10.4 as it ran 10.9 10.9 to 10.9 Spark FIFO 10.9" in " ".join(result.stdout.split())
    assert "jobs take 10.9 s; measured: 10.4 s (+4.8%)" in " ".join(result.stdout.split())
    assert "Under no scheduler, jobs would complete sooner than under Spark FAIR in 95 % of the draws." in result.stdout
    assert (tmp_path / "pictures" / "what-if.png").stat().st_size > 5000
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["command"] == "decima spark what-if log --unknown 0.0 --estimator forest --draws 2 --seed 0"
    assert document["schedulers"]["srpt"]["mean_jct_s"] < document["schedulers"]["Spark FIFO"]["mean_jct_s"]
    assert set(document["schedulers"]) == {"Spark FIFO", "Spark FAIR", "weighted fair", "srpt", "srpt-tuned"}


def test_names_of_queries_are_no_markup(tmp_path: Path) -> None:
    log = LogBuilder().executor("0").sql(0, 2000, "[red]q[/red]")
    log.job(0, [stage_info(0, 2)], at=2000, sql=0)
    log.run(0, 2000, 2200).job_end(0, 2200).sql_end(0, 2200).end().write(tmp_path / "log")
    assert "[red]q[/red]" in what_if("log", "--draws", "1").stdout
