"""The manifests for Kubernetes are valid, and fit each other, the service and Spark."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from decima.cli.serve import serve

KUBERNETES = Path(__file__).parents[3] / "docs" / "kubernetes"
FILES = ("decima.yaml", "spark-driver.yaml")
VERSION = "1.30"
#: Resources whose schema is not part of Kubernetes.
CUSTOM = ("PodMonitor",)


def resources(*files: str) -> list[dict[str, Any]]:
    return [each for file in files for each in yaml.safe_load_all((KUBERNETES / file).read_text())]


def one(kind: str) -> dict[str, Any]:
    [found] = [each for each in resources(*FILES) if each["kind"] == kind]
    return found


@pytest.mark.parametrize("file", FILES)
def test_manifests_match_the_schema_of_kubernetes(file: str) -> None:
    """Unknown and misspelt fields are errors."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for resource in resources(file):
        if resource["kind"] not in CUSTOM:
            kubernetes_validate.validate(resource, VERSION, strict=True)
            with pytest.raises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate({**resource, "unknown": 1}, VERSION, strict=True)


def test_names_refer_to_what_exists() -> None:
    """Labels select the pods of the Deployment; ports, volumes, Secret and account exist."""
    pod = one("Deployment")["spec"]["template"]
    labels = pod["metadata"]["labels"]
    [container] = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    selectors = (
        one("Deployment")["spec"]["selector"]["matchLabels"],
        one("Service")["spec"]["selector"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one("PodMonitor")["spec"]["selector"]["matchLabels"],
    )
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert {port["targetPort"] for port in one("Service")["spec"]["ports"]} <= ports.keys()
    assert {each["port"] for each in one("PodMonitor")["spec"]["podMetricsEndpoints"]} <= ports.keys()
    allowed = [port["port"] for rule in one("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(allowed) == sorted(ports)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["secret"]["secret"]["secretName"] == one("Secret")["metadata"]["name"]
    for each in (*pod["spec"]["initContainers"], container):
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes.keys()
    binding = one("RoleBinding")
    assert binding["roleRef"]["name"] == one("Role")["metadata"]["name"]
    assert binding["subjects"][0]["name"] == one("ServiceAccount")["metadata"]["name"]


def test_the_arguments_are_those_of_the_command() -> None:
    [container] = one("Deployment")["spec"]["template"]["spec"]["containers"]
    context = serve.make_context("serve", list(container["args"]))
    assert str(context.params["token_file"]) == "/run/decima/token"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (context.params["address"], context.params["metrics"]) == (str(ports["spark"]), ports["metrics"])
