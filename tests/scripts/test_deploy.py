"""The files of deploy/ as far as they can be looked at without a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from aerobee.broker.settings.config import KEYS
from aerobee.conf.sources import from_environment
from aerobee.scripts import cli

from .kubeconform import KUBECONFORM, conforms

DEPLOY = Path(__file__).parents[2] / "deploy"


def manifests(kind: str) -> list[dict[str, Any]]:
    text = (DEPLOY / "kubernetes" / "aerobee.yaml").read_text()
    return [each for each in yaml.safe_load_all(text) if each["kind"] == kind]


def containers() -> list[dict[str, Any]]:
    return [
        each
        for one in manifests("StatefulSet")
        for each in one["spec"]["template"]["spec"]["containers"]
    ]


# --- Kubernetes -----------------------------------------------------------------------------------


@pytest.mark.interop
@pytest.mark.skipif(
    KUBECONFORM is None,
    reason="kubeconform is not installed: .github/workflows/nightly.yml says how",
)
def test_kubernetes_takes_each_manifest() -> None:
    text = (DEPLOY / "kubernetes" / "aerobee.yaml").read_text()
    done = conforms(text)
    assert done.returncode == 0, done.stdout
    wrong = text.replace("terminationGracePeriodSeconds", "terminationGraceSeconds")
    assert "terminationGraceSeconds" in conforms(wrong).stdout


def test_the_manifests_fit_together() -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in manifests("Service")}
    for each in manifests("StatefulSet"):
        spec = each["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert services[spec["serviceName"]]["selector"] == labels
        # Else Kubernetes makes variables of the services that begin as settings do.
        assert spec["template"]["spec"]["enableServiceLinks"] is False
        for container in spec["template"]["spec"]["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            there = {port["name"]: port["port"] for port in services[spec["serviceName"]]["ports"]}
            assert ports == there
            assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
            assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_the_manifests_run_commands_and_set_settings_that_there_are() -> None:
    for container in containers():
        assert container["args"][0] in cli.COMMANDS
        names = {each["name"]: "x" for each in container.get("env", [])}
        keys = {each.key for each in from_environment(names, KEYS.fields)}
        assert keys <= set(KEYS.fields)
    brokers = [each for each in containers() if each["args"] == ["broker"]]
    values = {each["name"]: each.get("value") for each in brokers[0]["env"]}
    servers = manifests("StatefulSet")[0]
    replicas, name = servers["spec"]["replicas"], servers["metadata"]["name"]
    wanted = [f"{name}-{number}.{name}:9876" for number in range(replicas)]
    assert values["NAMESRV_ADDR"] == ";".join(wanted)
