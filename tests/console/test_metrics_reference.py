"""docs/metrics.md names every metric that is aerobee's own, with its type and its labels."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aerobee.broker.monitoring import metrics
from aerobee.broker.monitoring.metrics_labels import NODE
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.console.clusters import metrics as console_metrics
from aerobee.console.clusters.clusters import Clusters
from aerobee.console.exposition import Family
from aerobee.controller import overview as controller_overview
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.lake import overview as lake_overview
from aerobee.lake.service import Lake, TableReport
from aerobee.lake.settings import LakeSettings
from aerobee.namesrv import overview
from aerobee.namesrv.server import NameServer
from aerobee.proxy import overview as proxy_overview
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.scripts.commands import daemons

REFERENCE = Path(daemons.__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(aerobee_\w+)` \| (\w+) \| ([^|]*)\| ([^|]+) \|$", re.M)


def documented() -> set[tuple[str, str, tuple[str, ...]]]:
    """Name, type and labels of each row of the reference."""
    rows = ROW.findall(REFERENCE.read_text())
    assert len(rows) == len({name for name, *_ in rows}), "a metric is there twice"
    return {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


def own(
    families: Iterable[Family], common: Iterable[str] = ()
) -> set[tuple[str, str, tuple[str, ...]]]:
    """The same of what a daemon answers, as Prometheus reads it, without the `common` labels."""
    return {
        (
            name,
            kind,
            tuple(label for label in labels if label not in common),
        )
        for name, kind, _, labels, _ in families
        if name.startswith("aerobee_")
    }


async def test_the_reference_has_every_metric_of_ours_and_no_other(
    namesrv: NameServer, tmp_path: Path
) -> None:
    found = own(overview.families(namesrv))
    roles: list[dict[str, Any]] = [{}, {"broker_role": "SLAVE", "broker_id": 1}]
    for number, role in enumerate(roles):
        broker = Broker(
            BrokerConfig(
                listen_port=0,
                store_path_root_dir=str(tmp_path / str(number)),
                mapped_file_size_commit_log=1 << 20,
                mapped_file_size_timer_log=1 << 20,
                **role,
            )
        )
        await broker.start()
        found |= own(metrics.families(broker), NODE)
        await broker.stop()
    proxy = Proxy(ProxyConfig(namesrv_addr=namesrv.address, grpc_server_port=0))
    await proxy.start()
    found |= own(proxy_overview.families(proxy), NODE)
    await proxy.stop()
    controller = Controller(ControllerConfig(controller_store_path=str(tmp_path / "controller")))
    found |= own(controller_overview.families(controller))
    found |= own(console_metrics.families(Clusters({"main": namesrv.address})))
    lake = Lake(LakeSettings(place="tables"))
    lake.reports["orders"] = TableReport("orders", "rocketmq.orders")
    found |= own(lake_overview.families(lake))
    assert found == documented()
