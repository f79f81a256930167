"""Manifests for Kubernetes, the Grafana board with its alerts, and the script that retrains every night."""

import datetime
import json
import os
import re
import shutil
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from decima.cli.serve import serve
from decima.schedulers.srpt import Srpt
from decima.service.inputs import Inputs
from decima.service.log import DecisionLog
from decima.service.metrics import Metrics
from decima.service.service import Connected
from decima.service.tenants import Tenants
from tests.cases import cases
from tests.decima.service.serving import a_hello

KUBERNETES = Path(__file__).parents[3] / "docs" / "kubernetes"
VERSION = "1.30"
#: Resources whose schema is not part of Kubernetes.
CUSTOM = ("PodMonitor", "PrometheusRule")
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, with its kustomize")

Manifests = dict[str, dict[str, Any]]


@cache
def built(folder: str) -> Manifests:
    """Return the resources that Kustomize builds from a folder, by kind."""
    command = ["kubectl", "kustomize", str(KUBERNETES / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    resources = list(yaml.safe_load_all(done.stdout))
    by_kind = {each["kind"]: each for each in resources}
    assert len(by_kind) == len(resources)
    return by_kind


@needs_kubectl
@pytest.mark.parametrize("folder", ["base", "in-charge"])
def test_manifests_match_the_schema_of_kubernetes(folder: str) -> None:
    """Unknown and misspelt fields are errors."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kinds = {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount", "Role", "RoleBinding"}
    assert built(folder).keys() == kinds | set(CUSTOM)
    for kind in kinds:
        resource = built(folder)[kind]
        assert resource["metadata"]["namespace"] == "spark"
        kubernetes_validate.validate(resource, VERSION, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**resource, "unknown": 1}, VERSION, strict=True)


@needs_kubectl
def test_names_refer_to_what_exists() -> None:
    """Labels select the pods of the Deployment; ports, volumes and account exist; the image is given by its digest."""
    manifests = built("base")
    pod = manifests["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    [container] = pod["spec"]["containers"]
    assert re.fullmatch(r"\S+/decima@sha256:[0-9a-f]{64}", container["image"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    selectors = (
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
        manifests["Service"]["spec"]["selector"],
        manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        manifests["PodMonitor"]["spec"]["selector"]["matchLabels"],
    )
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert {port["targetPort"] for port in manifests["Service"]["spec"]["ports"]} <= ports.keys()
    [scraped] = manifests["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert scraped["port"] in ports
    allowed = [port["port"] for rule in manifests["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(allowed) == sorted(ports)
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert volumes == {mount["name"] for mount in container["volumeMounts"]}
    secrets = {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
    secrets |= {scraped["tlsConfig"]["ca"]["secret"]["name"], scraped["authorization"]["credentials"]["name"]}
    comment = (KUBERNETES / "base" / "kustomization.yaml").read_text().partition("apiVersion")[0]
    assert secrets == set(re.findall(r"decima-\w+", comment))
    binding = manifests["RoleBinding"]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    assert binding["subjects"][0]["name"] == manifests["ServiceAccount"]["metadata"]["name"]


@needs_kubectl
@cases("folder, shadow, slots", ("base", True, None), ("in-charge", False, 8))
def test_the_arguments_are_those_of_the_command(folder: str, shadow: bool, slots: int | None) -> None:
    """The overlay differs from the base only in the arguments."""
    [container] = built(folder)["Deployment"]["spec"]["template"]["spec"]["containers"]
    params = serve.make_context("serve", list(container["args"])).params
    assert (params["shadow"], params["slots"]) == (shadow, slots)
    mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]
    assert all(params[name].parent in mounts for name in ("tenants_file", "tls_cert", "tls_key"))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (params["address"], params["metrics"]) == (str(ports["spark"]), ports["metrics"])
    paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: (get["path"], get["port"], get["scheme"]) for name, get in paths.items()} == {
        "startup": ("/readyz", "metrics", "HTTPS"),
        "liveness": ("/healthz", "metrics", "HTTPS"),
        "readiness": ("/readyz", "metrics", "HTTPS"),
    }
    deployment = deepcopy(built(folder)["Deployment"])
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] = built("base")["Deployment"]["spec"]["template"][
        "spec"
    ]["containers"][0]["args"]
    assert {**built(folder), "Deployment": deployment} == built("base")


FOLDER = Path(__file__).parents[3] / "docs" / "monitoring"
METRIC = re.compile(r"\bdecima_\w+")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all time series of the service."""
    metrics = Metrics()
    metrics.welcomed(Connected(1, a_hello()))
    tenants = Tenants.model_validate({"tenants": {"etl": {"quota": 1}}})
    metrics.show_inputs("1", "fifo", Inputs(Srpt, tenants=tenants, certificate_end=datetime.datetime.now(datetime.UTC)))
    metrics.watch_log(DecisionLog(tmp_path_factory.mktemp("log") / "log.jsonl", "fifo"))
    lines = generate_latest(metrics.registry).decode().splitlines()
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
        assert named or rule["alert"] == "DecimaServiceAbsent"
        assert set(named) <= exported, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "info")
        assert re.fullmatch(r"\d+m", rule.get("for", "0m"))


def test_the_rules_for_the_operator_of_kubernetes_are_the_same() -> None:
    rules = yaml.safe_load((KUBERNETES / "base" / "alerts.yaml").read_text())
    assert rules["spec"] == yaml.safe_load((FOLDER / "decima-alerts.yml").read_text())


UNIT = FOLDER.parent / "systemd" / "decima.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_the_unit_restricts_the_service() -> None:
    """Systemd rates the exposure from 0 (none) to 10."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True)
    [level] = re.findall(r"Overall exposure level for decima.service: (\S+)", done.stdout)
    assert float(level) < 3


def test_the_unit_starts_and_reloads_the_command() -> None:
    [start] = re.findall(r"^ExecStart=\S+ serve (.+)$", UNIT.read_text(), re.M)
    options = start.replace("/etc/decima/jobs.json", str(UNIT))  # a file that exists
    params = serve.make_context("serve", options.split()).params
    assert params["metrics"]
    assert f"StateDirectory={params['log_file'].parent.name}\n" in UNIT.read_text()
    assert "ExecReload=/bin/kill -USR1 $MAINPID\n" in UNIT.read_text()


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


SCRIPT = Path(__file__).parents[3] / "docs" / "monitoring" / "retrain.sh"
#: Stands in for decima: train writes a policy, compare the mean JCT of both policies for each of 20 seeds.
FAKE = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
options = dict(zip(sys.argv, sys.argv[1:]))
out = Path(options["--out"])
if sys.argv[1] == "train":
    out.mkdir()
    (out / "policy.npz").write_text("new")
elif sys.argv[1] == "compare":
    old, new = options["--schedulers"].split(",")
    means = {old: [10.0 + seed for seed in range(20)], new: [NEW for seed in range(20)]}
    rows = {name: {"per_seed_mean_jct_s": values} for name, values in means.items()}
    Path(options["--json"]).write_text(json.dumps({"schedulers": rows}))
"""


@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("bash")), reason="needs jq and bash")
@cases(
    "new, status, kept",
    ("10.0 + seed - 0.5", 0, "new"),
    ("10.0 + seed + 0.5", 3, "old"),
    ("10.0 + seed - 0.5 + 3 * (-1) ** seed", 3, "old"),  # lower, but within the interval,
)
def test_only_a_better_policy_is_installed(tmp_path: Path, new: str, status: int, kept: str) -> None:
    fake, policy = tmp_path / "decima", tmp_path / "policy.npz"
    fake.write_text(FAKE.replace("NEW", new))
    fake.chmod(0o755)
    policy.write_text("old")
    done = subprocess.run(
        ["bash", str(SCRIPT), "a.jsonl", "b.jsonl", str(policy), "8"],
        env={**os.environ, "DECIMA": str(fake)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert policy.read_text() == kept
    assert f"mean JCT lower by {'-' if new.endswith('+ 0.5') else ''}0.5 s" in done.stdout
