"""conf/prometheus-alerts.yml: metrics that exist, and rules that Prometheus takes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from aerobee.scripts.commands import daemons

ROOT = Path(daemons.__file__).parents[2]
SHIPPED = ROOT / "conf" / "prometheus-alerts.yml"
PROMTOOL = shutil.which("promtool")


@pytest.mark.finding("A21")
def test_each_alert_is_on_a_metric_that_the_reference_has() -> None:
    known = set(
        re.findall(r"^\| `(aerobee_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    )
    rules = [
        rule for group in yaml.safe_load(SHIPPED.read_text())["groups"] for rule in group["rules"]
    ]
    assert rules
    for rule in rules:
        used = set(re.findall(r"aerobee_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= known, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} == rule["annotations"].keys()


@pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("CI"),
    reason="promtool is not installed (Debian's package prometheus has it)",
)
def test_prometheus_takes_the_rules() -> None:
    assert PROMTOOL is not None, "CI needs promtool: see .ci/run"
    command = [PROMTOOL, "check", "rules", str(SHIPPED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
