"""monitoring/: metrics that exist, rules that fire, a section of the docs for each rule."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from aerobee.broker.monitoring import metrics
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.scripts.commands import daemons

ROOT = Path(daemons.__file__).parents[2]
MONITORING = ROOT / "monitoring"
DOCUMENTED = ROOT / "docs" / "monitoring.md"
PROMTOOL = shutil.which("promtool")
METRIC = re.compile(r"\b(?:rocketmq|aerobee)_\w+")


def rules() -> list[dict[str, Any]]:
    """All rules."""
    groups = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def boards() -> dict[str, dict[str, Any]]:
    """The boards by the names of their files."""
    return {
        path.stem: json.loads(path.read_text())
        for path in sorted((MONITORING / "grafana").glob("*.json"))
    }


async def served(folder: Path) -> set[str]:
    """The names of samples: those of a broker, and all that the reference of metrics has."""
    broker = Broker(
        BrokerConfig(
            listen_port=0,
            store_path_root_dir=str(folder),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_timer_log=1 << 20,
        )
    )
    await broker.start()
    found = set(re.findall(r"^\| `(aerobee_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.M))
    for name, kind, _, _, samples in metrics.families(broker):
        list(samples)
        found |= {f"{name}_bucket", f"{name}_count"} if kind == "histogram" else {name}
    found.add("rocketmq_storage_message_reserve_time_milliseconds")  # with the first message
    await broker.stop()
    return found


async def test_rules_and_boards_are_on_metrics_that_exist(tmp_path: Path) -> None:
    known = await served(tmp_path)
    for rule in rules():
        used = set(METRIC.findall(rule["expr"]))
        assert used, rule["alert"]
        assert used <= known, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} == rule["annotations"].keys()
    assert list(boards()) == ["cluster", "group", "topic"]
    for name, board in boards().items():
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        queries = [target["expr"] for panel in panels for target in panel["targets"]]
        queries += [one["query"]["query"] for one in board["templating"]["list"][1:]]
        assert len(queries) > 10, name
        for query in queries:
            used = set(METRIC.findall(query))
            assert used, query
            assert used <= known, query
        identities = [panel["id"] for panel in board["panels"]]
        assert len(identities) == len(set(identities)), name


def test_each_rule_has_its_section_and_its_test() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    sections = re.findall(r"^### (\w+)$", DOCUMENTED.read_text(), re.M)
    assert sections == names
    tested = re.findall(r'alertname="(\w+)"', (MONITORING / "rules_test.yml").read_text())
    assert tested == names


@pytest.mark.interop
@pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("CI"),
    reason="promtool is not installed (Debian's package prometheus has it)",
)
@pytest.mark.parametrize("words", [("check", "rules.yml"), ("test", "rules_test.yml")])
def test_prometheus_takes_the_rules_and_they_fire_as_they_should(words: tuple[str, str]) -> None:
    assert PROMTOOL is not None, "CI needs promtool: see .ci/run"
    what, file = words
    command = [PROMTOOL, what, "rules", file]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=MONITORING
    )
    assert done.returncode == 0, done.stdout + done.stderr
