"""Tenants: the file, tokens bound to tenants, and slots by quota, weight and priority on a shared cluster."""

import datetime
import math
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import make_scheduler
from decima.schedulers import Fair, Scheduler
from decima.schedulers.srpt import Srpt
from decima.service.audit import AuditLog, Event
from decima.service.credentials import Token
from decima.service.inputs import Inputs
from decima.service.metrics import Metrics
from decima.service.protocol import Pool, Refusal, Welcome
from decima.service.service import DeniedError, RefusedError, ServeError, Service
from decima.service.shares import divide
from decima.service.snapshot import Share
from decima.service.tenants import Tenants, read_tenants
from simulator import Decision, Observation
from tests.cases import cases
from tests.decima.service.scripted_cluster import Application, ScriptedCluster
from tests.decima.service.serving import Client, a_hello, a_job, a_stage, a_state, executors, serving
from tests.decima.service.test_applications import KILLED, PROFILE, Shares, a_profile, give_away, work
from tests.refusal import one_line
from workloads.job import JobProfile

ETL, BI, READER = "etl-0123456789abcdef", "bi-0123456789abcdef", "reader-0123456789abcdef"
SLOTS, DELAY_MS = 8, 3000.0
FILE = f"""
tenants:
  etl: {{applications: [nightly-*, hourly], quota: 6, weight: 2, priority: 1, pools: {{a: {{weight: 3, quota: 2}}}}}}
  bi: {{}}
tokens:
  etl-1: {{secret: {ETL}, tenant: etl, requests_per_second: 50, expires: 2027-12-31}}
  any: {{secret: {BI}}}
  grafana: {{secret: {READER}, role: reader}}
"""


def read(folder: Path, text: str, with_tokens: bool = True, with_slots: bool = True) -> Tenants:
    path = folder / "tenants.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return read_tenants(path, with_tokens, with_slots)


def declared(**tenants: dict[str, object]) -> Tenants:
    return Tenants.model_validate({"tenants": tenants})


def test_the_file_declares_shares_pools_and_tokens(tmp_path: Path) -> None:
    tenants = read(tmp_path, FILE)
    assert tenants.shares == {"etl": Share("etl", 2.0, quota=6, priority=1), "bi": Share("bi")}
    assert tenants.pools_of("etl") == {"a": Share("a", 3.0, quota=2)}
    assert tenants.pools_of("bi") is None
    tokens = tenants.access_tokens()
    assert tokens is not None
    token = tokens.find(ETL)
    assert (token.name, token.tenant, token.per_second) == ("etl-1", "etl", 50)
    assert token.expires == datetime.date(2027, 12, 31)
    assert math.isinf(tokens.find(BI).per_second)
    assert ETL not in repr(token)
    assert read(tmp_path, "", with_tokens=False).access_tokens() is None
    (tmp_path / "tenants.yaml").chmod(0o640)
    with pytest.raises(ServeError, match="chmod 600"):
        read_tenants(tmp_path / "tenants.yaml", with_tokens=False, with_slots=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file that belongs to root")
@cases("mode, is_read", (0o640, True), (0o440, True), (0o644, False), (0o660, False))
def test_a_file_of_root_may_be_readable_by_the_group_of_the_service(
    mode: int, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tmp_path, FILE)
    (tmp_path / "tenants.yaml").chmod(mode)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    if is_read:
        assert read_tenants(tmp_path / "tenants.yaml", True, True).tokens
    else:
        assert "chmod 600" in one_line(ServeError, read_tenants, tmp_path / "tenants.yaml", True, True)


TOKEN = f"tokens: {{a: {{secret: {ETL}, "


@cases(
    "text, reason",
    ("tenants: {a: {quota: 0}}", "tenants.a.quota: Input should be greater than or equal to 1"),
    ("tenants: {a: {quota: true}}", "tenants.a.quota: Input should be a valid integer"),
    ("tenants: {a: {quota: 1.5}}", "tenants.a.quota: Input should be a valid integer"),
    ("tenants: {a: {weight: .nan}}", "tenants.a.weight: "),
    ("tenants: {a: {weight: 0}}", "tenants.a.weight: "),
    ("tenants: {a: {quotum: 1}}", "tenants.a.quotum: Extra inputs are not permitted"),
    ("tenants: {'a b': {}}", "tenants.a b.[key]: String should match pattern"),
    ("tenants: {a: {}, a: {}}", "line 1, column 18: the key 'a' is given more than once"),
    ("tenants: {a: {applications: x}}", "tenants.a.applications: Input should be a valid tuple"),
    ("tenants: [", "line 1, column "),
    ("- tenants", "Input should be a valid dictionary"),
    (f"{TOKEN}role: admin}}}}", "tokens.a.role: Input should be 'driver' or 'reader'"),
    (f"{TOKEN}expires: 31.12.2027}}}}", "tokens.a.expires: Input should be a valid date"),
    (f"{TOKEN}requests_per_second: 0}}}}", "tokens.a.requests_per_second: Input should be greater than 0"),
    (f"{TOKEN}tenant: b}}}}", "tokens.a.tenant: 'b' is not among the tenants"),
    (f"{TOKEN}tenant: b, role: reader}}, c: {{secret: {BI}}}}}", "tokens.a.tenant: a reader sees all tenants"),
    (f"{TOKEN}}}, b: {{secret: {ETL}}}}}", "tokens.b: the same secret as a"),
    (f"{TOKEN}role: reader}}}}", "tokens: expected at least one for drivers"),
    ("tokens: {a: {secret: short}}", "tokens.a.secret: String should have at least 16 characters"),
    ("tenants: {}", "tokens: expected at least one for drivers"),
)
def test_a_malformed_file_is_refused_in_one_line_without_its_secrets(tmp_path: Path, text: str, reason: str) -> None:
    message = one_line(ServeError, read, tmp_path, text)
    assert message.startswith(f"{tmp_path / 'tenants.yaml'}: {reason}")
    assert ETL not in message


def test_quotas_need_shared_slots_and_tokens_exclude_a_token_file(tmp_path: Path) -> None:
    for key, value in (("quota", 1), ("weight", 2), ("priority", 1)):
        text = f"tenants: {{a: {{{key}: {value}}}}}"
        reason = f"tenants.a.{key}: needs --slots"
        assert reason in one_line(ServeError, read, tmp_path, text, with_tokens=False, with_slots=False)
    assert "tokens: not together" in one_line(ServeError, read, tmp_path, FILE, with_tokens=False)


@cases(
    "name, secret, tenant",
    ("nightly-7", ETL, "etl"),
    ("hourly", ETL, "etl"),
    ("weekly", ETL, "403 the token of etl-1 is not valid for an application of this name, 'weekly'"),
    ("nightly-7", BI, "etl"),  # by its name, as the token names no tenant
    ("weekly", BI, "bi"),
    ("weekly", READER, "403 the token of grafana is for page and metrics only"),
    ("weekly", "x" * 20, "401 wrong token"),
)
def test_a_driver_belongs_to_the_tenant_of_its_token_or_name(
    name: str, secret: str, tenant: str, tmp_path: Path
) -> None:
    tenants = read(tmp_path, FILE)
    service = Service(Srpt, tokens=tenants.access_tokens(), tenants=tenants)
    line = a_hello(name=name, token=secret).model_dump_json().encode()
    if tenant.startswith("4"):
        with pytest.raises(RefusedError, match=tenant):
            service.welcome(line)
    else:
        assert service.welcome(line)[0].tenant == tenant


def test_an_application_that_matches_no_tenant_belongs_to_default() -> None:
    tenants = declared(etl={"applications": ["nightly-*"]})
    assert tenants.tenant_of(a_hello(name="weekly"), None) == "default"
    with pytest.raises(DeniedError, match="403"):
        tenants.tenant_of(a_hello(), Token.of("a", ETL, tenant="gone"))


def test_a_removed_token_or_another_tenant_ends_running_connections(tmp_path: Path) -> None:
    before = read(tmp_path, FILE)
    service = Service(Srpt, tokens=before.access_tokens(), tenants=before)
    state = a_state(1, a_job("a", a_stage(1)), having=executors(2))
    reasons = []
    with serving(service) as where:
        with (
            Client(where, token=ETL, name="nightly-1") as removed,
            Client(where, token=BI, name="nightly-2", application="app-2") as moved,
            Client(where, token=BI, name="weekly", application="app-3") as other,
        ):
            for client in (removed, moved, other):
                assert client.ask(state).stages
            after = read(
                tmp_path, f"tenants: {{etl: {{applications: [x]}}, bi: {{}}}}\ntokens: {{any: {{secret: {BI}}}}}"
            )
            service.replace(Srpt, "", after.access_tokens(), after)
            reasons += [client.say(state.model_copy(update={"seq": 2})) for client in (removed, moved)]
            assert other.ask(state.model_copy(update={"seq": 2})).stages
        with Client(where, token=ETL, name="nightly-1") as removed:
            reasons.append(removed.greeting)
        with Client(where, token=BI, name="nightly-2") as moved:
            assert moved.greeting == Welcome()
    assert [each.reason for each in reasons if isinstance(each, Refusal)] == [
        "401 the token of etl-1 has been removed",
        "the application belongs to tenant bi now: connect again",
        "401 wrong token: none of the service's tokens",
    ]


def test_pools_of_a_tenant_have_quotas_and_other_pools_count_as_none() -> None:
    """A quota of a pool also holds while no other pool has tasks."""
    service = Service(Srpt, tenants=declared(etl={"pools": {"a": {"quota": 2}, "b": {}}}))
    driver, _ = service.welcome(a_hello(pools=(Pool(name="a", weight=9),)).model_dump_json().encode())

    def slots(seq: int, **pools: str) -> dict[str, int]:
        """Return the number of slots of each job; the value of a job is its pool."""
        jobs = [a_job(job, a_stage(number), pool=pool) for number, (job, pool) in enumerate(pools.items())]
        line = a_state(seq, *jobs, having=executors(8)).model_dump_json().encode()
        given = {stage.id: stage.slots or 0 for stage in service.answer(driver, line).stages}
        return {job: given.get(number, 0) for number, job in enumerate(pools)}

    assert slots(1, one="a") == {"one": 2}
    assert slots(2, one="a", two="b") == {"one": 2, "two": 6}
    assert slots(3, one="c", two="b") == {"one": 4, "two": 4}
    # The pool c is none of the tenant's, and its job is in the pool default, like a job without a pool.
    assert driver.state is not None
    assert [job.pool for job in driver.state.jobs] == [None, "b"]


def test_slots_are_divided_by_priority_quota_and_weight() -> None:
    tenants = [Share("a", 3.0), Share("b"), Share("c", quota=2, priority=1)]
    assert divide(tenants, [99, 99, 99], 10) == [6, 2, 2]
    assert divide(tenants, [1, 99, 0], 10) == [1, 9, 0]
    assert divide([Share("a", priority=-1), Share("b", quota=7)], [99, 99], 10) == [3, 7]


def run(
    applications: list[Application],
    tenants: Tenants,
    watch: Callable[[ScriptedCluster], None] = lambda cluster: None,
    policy: Any = "fair",
    slots: int = SLOTS,
) -> ScriptedCluster:
    """Return a shared cluster that has run all applications; the tenant is by name."""
    clusters: list[ScriptedCluster] = []
    service = Service(
        lambda: make_scheduler(policy), slots=slots, tenants=tenants, clock=lambda: clusters[0].now / 1000
    )
    clusters.append(ScriptedCluster(service, applications, DELAY_MS, watch))
    clusters[0].run()
    return clusters[0]


TENANT = st.builds(
    lambda quota, weight, priority: {"quota": quota, "weight": weight, "priority": priority},
    st.none() | st.integers(1, 9),
    st.sampled_from([0.5, 1.0, 4.0]),
    st.integers(0, 2),
)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 15_000), st.lists(PROFILE, min_size=1, max_size=2), KILLED), min_size=1, max_size=4
    ),
    st.lists(TENANT, min_size=1, max_size=3),
    st.sampled_from(["fifo", "srpt"]),
)  # fmt: skip
def test_quotas_hold_at_every_instant_and_every_task_runs_once(
    drawn: list[tuple[int, list[JobProfile], float]], shares: list[dict[str, object]], policy: str
) -> None:
    """Applications arrive, end and die. Executors that start or leave count."""
    declaration = {f"t{number}": {"applications": [f"t{number}-*"], **share} for number, share in enumerate(shares)}
    applications = [
        Application(f"t{number % len(shares)}-{number}", float(arrival_ms), profiles, dies_ms=dies_ms)
        for number, (arrival_ms, profiles, dies_ms) in enumerate(drawn)
    ]

    def watch(cluster: ScriptedCluster) -> None:
        used: dict[str, int] = defaultdict(int)
        for each in cluster.applications:
            used[each.name.partition("-")[0]] += each.slots
        assert sum(used.values()) <= SLOTS
        for number, share in enumerate(shares):
            assert used[f"t{number}"] <= (share["quota"] or SLOTS)  # type: ignore[operator]

    cluster = run(applications, declared(**declaration), watch, policy)
    if all(each.dies_ms == float("inf") for each in applications):
        assert cluster.tasks == sum(profile.num_tasks for each in applications for profile in each.profiles)


def held_between(
    begin_ms: float, end_ms: float, tenants: Tenants, applications: list[Application], policy: Any = "fair"
) -> dict[str, float]:
    """Return the mean number of registered executors of each application in a time interval."""
    seen: list[dict[str, int]] = []

    def watch(cluster: ScriptedCluster) -> None:
        if begin_ms <= cluster.now < end_ms:
            seen.append({each.name: len(each.executors) for each in cluster.applications})

    run(applications, tenants, watch, policy)
    return {name: sum(each[name] for each in seen) / len(seen) for name in seen[0]}


def long_job() -> list[JobProfile]:
    return [a_profile(1_000, 500.0)]


@cases("late", False, True)
def test_weights_give_slots_in_proportion(late: bool) -> None:
    """A tenant that comes later gets its share too, at the ends of tasks, although the other has pending tasks."""
    tenants = declared(a={"applications": ["a"], "weight": 3}, b={"applications": ["b"]})
    applications = [Application("a", 0.0, long_job()), Application("b", 20_000.0 * late, long_job())]
    held = held_between(50_000.0, 60_000.0, tenants, applications)
    assert held == {"a": pytest.approx(6, abs=0.2), "b": pytest.approx(2, abs=0.2)}


def test_a_higher_priority_is_served_first_and_others_wait() -> None:
    tenants = declared(low={"applications": ["low"]}, high={"applications": ["high"], "priority": 1, "quota": 6})
    applications = [Application("low", 0.0, long_job()), Application("high", 20_000.0, long_job())]
    held = held_between(50_000.0, 60_000.0, tenants, applications)
    assert held == {"low": pytest.approx(2, abs=0.2), "high": pytest.approx(6, abs=0.2)}
    tenants = declared(low={"applications": ["low"]}, high={"applications": ["high"], "priority": 1})
    applications = [Application("low", 0.0, long_job()), Application("high", 20_000.0, long_job())]
    held = held_between(50_000.0, 60_000.0, tenants, applications)
    assert held == {"low": pytest.approx(0, abs=0.2), "high": pytest.approx(8, abs=0.2)}


class AtMostThree(Scheduler):
    """Gives each job three executors, in order of arrival."""

    def decide(self, observation: Observation) -> Decision | None:
        for job, stage in enumerate(observation.next_stage.tolist()):
            if stage >= 0 and observation.held(job) < 3:
                return Decision(stage, 3)
        return None


@cases("quota, expected", (None, 5), (4, 4))
def test_slots_that_the_policy_leaves_idle_in_a_tenant_are_for_others(quota: int | None, expected: int) -> None:
    """Both tenants have four of eight slots, but the only job of one uses three."""
    tenants = declared(a={"applications": ["a"]}, b={"applications": ["b*"], "quota": quota})
    applications = [Application(name, 0.0, long_job()) for name in ("a", "b1", "b2")]
    held = held_between(50_000.0, 55_000.0, tenants, applications, AtMostThree)
    assert held["a"] == pytest.approx(3, abs=0.1)
    assert held["b1"] + held["b2"] == pytest.approx(expected, abs=0.1)


def test_a_quota_that_is_lowered_at_a_reload_holds_when_running_tasks_have_ended() -> None:
    shares = Shares(Srpt, slots=4)
    service = shares.service
    service.replace(Srpt, "", None, declared(a={"quota": 3}))
    assert shares.ask("one", work()) == 3
    assert shares.ask("one", work(running=3), running=3) == 3
    service.replace(Srpt, "", None, declared(a={"quota": 1}))
    assert shares.ask("one", work(running=3), running=3) == 1
    assert shares.ask("one", work(running=1), running=1, leaving=2) == 1
    service.replace(Srpt, "", None, declared(a={}))
    assert shares.ask("one", work(running=1), running=1) == 4


def test_executors_that_have_not_left_yet_count_in_the_quota() -> None:
    """Free slots of the cluster are no reason to start executors of a second application earlier."""
    shares = Shares(slots=8)
    shares.service.replace(Fair, "", None, declared(a={"quota": 4}))
    assert shares.ask("one", work()) == 4
    assert shares.ask("one", work(running=4), running=4) == 4
    assert shares.ask("two", work()) == 0
    give_away(shares)


def test_metrics_are_by_tenant(tmp_path: Path) -> None:
    metrics, tenants = Metrics(), declared(etl={"applications": ["nightly"], "quota": 6}, bi={})
    metrics.show_inputs("1", "srpt", Inputs(Srpt, tenants=tenants))
    service = Service(Srpt, tenants=tenants, watchers=[metrics])
    drivers = [service.welcome(a_hello(name=name).model_dump_json().encode())[0] for name in ("nightly", "nightly")]
    for driver in drivers:
        service.answer(driver, a_state(1, a_job("a", a_stage(1)), having=executors(3)).model_dump_json().encode())
        service.answered(driver)

    def values(tenant: str) -> list[float | None]:
        names = ("slots", "pending_tasks", "quota_slots", "questions_total")
        return [metrics.registry.get_sample_value(f"decima_tenant_{name}", {"tenant": tenant}) for name in names]

    assert values("etl") == [6, 20, 6, 2]
    assert values("bi") == [0, 0, math.inf, 0]
    service.leave(drivers[0])
    assert values("etl") == [3, 10, 6, 2]


def test_the_audit_log_goes_on_after_a_restart_and_names_changed_values(tmp_path: Path) -> None:
    path, file = tmp_path / "audit.jsonl", tmp_path / "tenants.yaml"
    six, four = (declared(etl={"quota": quota}) for quota in (6, 4))
    audit = AuditLog(path, "srpt", Inputs(Srpt, tenants=six, sha256={str(file): "one"}))
    audit.ended(Inputs(Srpt, tenants=four, sha256={str(file): "two"}), "")
    audit.ended(None, "tenants.yaml: wrong")
    AuditLog(path, "srpt", Inputs(Srpt, tenants=six, sha256={str(file): "three"}))
    assert path.stat().st_mode & 0o777 == 0o600
    events = list(map(Event.model_validate_json, path.read_text().splitlines()))
    assert [event.changes for event in events] == [(), ("tenants.etl.quota: 6 -> 4",), (), ()]
    assert [(event.files[str(file)].before, event.files[str(file)].after) for event in events] == [
        (None, "one"), ("one", "two"), ("two", "two"), ("two", "three"),
    ]  # fmt: skip
    assert events[2].reason == "tenants.yaml: wrong"
    with pytest.raises(ServeError, match="cannot write"):
        AuditLog(tmp_path / "none" / "audit.jsonl", "srpt", Inputs(Srpt))
