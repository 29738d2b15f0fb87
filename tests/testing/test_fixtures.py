"""The fixtures that pytest knows by itself once aerobee is installed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from aerobee.client import Message, blocking
from aerobee.testing import LocalCluster


def test_a_test_gets_a_broker(aerobee_cluster: LocalCluster) -> None:
    with blocking.Producer(aerobee_cluster.name_server) as producer:
        assert producer.send(Message("orders", b"x")).queue_offset == 0


def test_the_next_test_gets_another(aerobee_cluster: LocalCluster) -> None:
    with blocking.Producer(aerobee_cluster.name_server) as producer:
        assert producer.send(Message("orders", b"x")).queue_offset == 0


def test_clusters_are_made_to_measure(aerobee_clusters: Callable[..., LocalCluster]) -> None:
    one, two = aerobee_clusters(brokers=2), aerobee_clusters(default_topic_queue_nums=1)
    assert len(one.brokers) == 2
    assert two.brokers[0].config.default_topic_queue_nums == 1
    assert one.name_server != two.name_server


def test_a_run_of_pytest_that_wants_no_broker_imports_none(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_plain(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.hasplugin('aerobee')\n"
        "    assert 'aerobee.broker.server' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
