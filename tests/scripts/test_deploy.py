"""The files of deploy/ as far as they can be looked at without systemd, a cluster or Grafana."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from aerobee.broker.settings.config import KEYS
from aerobee.conf.sources import from_environment
from aerobee.scripts import cli

from .command import FREE_PORTS, SECONDS, SMALL, output, running

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def manifests(kind: str) -> list[dict[str, Any]]:
    text = (DEPLOY / "kubernetes" / "aerobee.yaml").read_text()
    return [each for each in yaml.safe_load_all(text) if each["kind"] == kind]


def containers() -> list[dict[str, Any]]:
    return [
        each
        for one in manifests("StatefulSet")
        for each in one["spec"]["template"]["spec"]["containers"]
    ]


# --- systemd --------------------------------------------------------------------------------------


@pytest.mark.requirement("Documents: systemd units, Kubernetes manifests, dashboard")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # The command must be one that there is.
    for each in UNITS:
        text = each.read_text().replace("/opt/aerobee/bin/aerobee", sys.executable)
        (tmp_path / each.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert said == []


@pytest.mark.finding("S10", "W2")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_there_is(unit: Path) -> None:
    found = re.search(
        r"^ExecStart=/opt/aerobee/bin/aerobee (\w+) -c (\S+)$", unit.read_text(), re.M
    )
    assert found is not None
    assert found[1] in cli.COMMANDS
    assert (Path(__file__).parents[2] / "conf" / Path(found[2]).name).exists()


# --- Kubernetes -----------------------------------------------------------------------------------


@pytest.mark.finding("S10", "W2")
@pytest.mark.requirement("Documents: systemd units, Kubernetes manifests, dashboard")
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


# --- Grafana --------------------------------------------------------------------------------------


@pytest.mark.finding("S10", "W2")
@pytest.mark.requirement("Documents: systemd units, Kubernetes manifests, dashboard")
def test_the_dashboard_shows_metrics_that_a_broker_has(tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "aerobee.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    wanted = {
        name for query in queries for name in re.findall(r"\b(?:rocketmq|aerobee)_\w+", query)
    }
    assert len(wanted) > 5
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, "--store", str(tmp_path / "s")) as daemon:
        output("pub", "orders", "-n", daemon.namesrv, data="hello")
        ask = ["sub", "orders", "--namesrv", daemon.namesrv, "--from", "earliest", "-n", "1"]
        output(*ask, "--group", "billing")
        with urllib.request.urlopen(f"{daemon.page}metrics", timeout=SECONDS) as answer:
            text = answer.read().decode()
    # A metric without a sample yet has its description all the same.
    there = set(re.findall(r"^(?:# TYPE )?(\w+)", text, re.M)) - {"#"}
    there |= {f"{name}_total" for name in there}
    assert wanted <= there, sorted(wanted - there)
