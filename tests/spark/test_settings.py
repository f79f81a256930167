"""Invalid settings: the application runs as without the plugin, and its log has the error."""

import os
from pathlib import Path

import pytest

from decima.service.server import DEFAULT_TOKEN_FILE, ServeError, read_token
from tests.cases import cases
from tests.spark.eventlog import most_at_once
from tests.spark.harness import application, end_shared_jvm, until, why_not
from tests.spark.policy import PolicyServer, ordered

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@cases(
    "setting, complaint",
    ({"address": "here"}, "spark.decima.address is 'here', but must be HOST:PORT"),
    ({"mode": "both"}, "spark.decima.mode is 'both', but must be async or sync"),
    ({"timeoutMs": 0}, "spark.decima.timeoutMs is 0, but must be at least 1"),
    ({"executors": "true"}, "the policy cannot move executors: the cluster is neither a standalone one nor Kubernetes"),
    ({"address": "unix:/nowhere"}, "no policy at unix:/nowhere, Spark's own order until there is one"),
)
def test_spark_runs_all_the_same(setting: dict[str, object], complaint: str, tmp_path: Path) -> None:
    conf = {f"spark__decima__{key}": value for key, value in setting.items()}
    with application(tmp_path / "app", "127.0.0.1:9", "local[2]", **conf) as sleeper:
        sleeper.start("job", (4, 50)).join()
        assert len(sleeper.tasks()) == 4
        assert most_at_once(sleeper.tasks()) == 2
        assert complaint in sleeper.log()


def test_the_token_is_that_of_the_service_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the file in $HOME, as for the service, if it belongs to this user."""
    end_shared_jvm()  # the next JVM gets the variable
    monkeypatch.setenv("HOME", str(tmp_path))
    token = read_token(DEFAULT_TOKEN_FILE)
    server = PolicyServer(ordered(), token=token)
    with application(tmp_path / "app", server.address, "local[2]") as sleeper:
        sleeper.start("job", (4, 50)).join()
        until(lambda: any(state.jobs for state in server.states))
    server.close()
    assert {hello.token for hello in server.hellos} == {token}
    if os.geteuid() != 0:
        return  # only root can give a file away
    os.chown(tmp_path / ".decima" / "token", 1, -1)
    with pytest.raises(ServeError, match="belongs to another user"):
        read_token(DEFAULT_TOKEN_FILE)
    server = PolicyServer(ordered())
    with application(tmp_path / "other", server.address, "local[2]") as sleeper:
        sleeper.start("job", (4, 50)).join()
        until(lambda: any(state.jobs for state in server.states))
    server.close()
    assert {hello.token for hello in server.hellos} == {""}
