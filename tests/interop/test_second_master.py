"""Our broker beside a living RocketMQ master of its name, behind RocketMQ's name server."""

from pathlib import Path

import pytest
from aerobee.broker.monitoring.overview import note
from aerobee.broker.naming.other_masters import DuplicateMasterError
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.harness.clusters import JavaCluster


def config(cluster: JavaCluster, store: Path, **more: object) -> BrokerConfig:
    """A broker with the cluster and the name of the real one."""
    settings: dict[str, object] = {
        "broker_cluster_name": cluster.properties["brokerClusterName"],
        "broker_name": cluster.properties["brokerName"],
        "namesrv_addr": cluster.namesrv,
        "listen_port": 0,
        "store_path_root_dir": str(store),
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_timer_log": 1 << 20,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    return BrokerConfig(**(settings | more))  # type: ignore[arg-type]


async def test_our_broker_does_not_start_as_a_second_master_beside_the_real_one(
    java_cluster: JavaCluster, tmp_path: Path
) -> None:
    second = Broker(config(java_cluster, tmp_path / "store"))
    with pytest.raises(DuplicateMasterError, match=f"a living master at {java_cluster.broker}"):
        await second.start()
    other_name = Broker(config(java_cluster, tmp_path / "store", broker_name="another"))
    await other_name.start()
    assert note(other_name) is None
    await other_name.stop()
