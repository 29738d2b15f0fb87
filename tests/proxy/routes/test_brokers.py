"""Brokers behind the proxy: one that is away costs nothing that another can answer."""

import pytest
from aerobee.client import Admin
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.route import BrokerData, TopicRouteData
from aerobee.proxy.messages.status import StatusError
from aerobee.testing import LocalCluster

from ..support import setup

NOWHERE = "127.0.0.1:1"


async def test_groups_are_asked_of_a_broker_that_answers() -> None:
    with LocalCluster() as cluster:
        async with Admin(cluster.name_server) as admin:
            await admin.update_group(SubscriptionGroupConfig("known", retry_max_times=3))
        async with setup(cluster) as proxied:
            service = proxied.proxy.service
            away = BrokerData("c", "away", {0: NOWHERE})
            service.brokers.learn(TopicRouteData(broker_datas=[away]))
            with pytest.raises(StatusError, match="can't connect"):
                await service.topics.group("known")
            await service.brokers.learn_all()
            service.topics.groups.forget("known")
            assert (await service.topics.group("known")).retry_max_times == 3


async def test_a_slave_answers_where_the_master_is_away() -> None:
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            brokers = proxied.proxy.service.brokers
            data = BrokerData("c", "b", {2: "slave:2", 1: "slave:1"})
            brokers.learn(TopicRouteData(broker_datas=[data]))
            assert brokers.address("b") == "slave:1"
            assert brokers.address("other") is None
            assert brokers.name_of("slave:2") == "b"
            assert brokers.name_of("slave:3") == ""
