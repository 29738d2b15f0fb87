"""The rules of the route table: which brokers are registered and alive, and their topics."""

from collections.abc import Iterable

import pytest
from aerobee.namesrv.registration import Registered, Registration, Removed
from aerobee.namesrv.routes import RouteTable, only_zone
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.route import QueueData
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.bodies.topic_queue_mapping import TopicQueueMappingInfo
from aerobee.protocol.errors import Refusal

VERSION = DataVersion(0, 1_000, 1)


def listed(topics: Iterable[str | None]) -> list[str]:
    return [topic for topic in topics if topic is not None]


def said(
    *topics: str,
    name: str = "a",
    id_: int = 0,
    addr: str = "10.0.0.1:1",
    cluster: str = "C",
    version: DataVersion = VERSION,
    perm: int = 6,
    queues: int = 4,
    flags: int = 0,
    **more: object,
) -> Registration:
    table = {
        topic: TopicConfig(topic, queues, queues, perm, topic_sys_flag=flags) for topic in topics
    }
    return Registration(cluster, name, id_, addr, table, version, **more)  # type: ignore[arg-type]


def register(
    routes: RouteTable, one: Registration, now_ms: int = 0, connection: object = "x"
) -> Registered | None:
    return routes.register(one, now_ms, connection)


@pytest.fixture
def routes() -> RouteTable:
    """A table with broker "a" of cluster "C", which has the topics T1 and T2."""
    table = RouteTable()
    assert register(table, said("T1", "T2")) == Registered()
    return table


def perms(routes: RouteTable, topic: str) -> dict[str | None, int]:
    found = routes.route(topic)
    return {} if found is None else {queue.broker_name: queue.perm for queue in found.queue_datas}


def addresses(routes: RouteTable, name: str = "a") -> dict[int, str]:
    return routes.member_group("C", name).broker_addrs


# --- registration -------------------------------------------------------------------------------


def test_a_first_registration_with_one_topic_is_refused_and_leaves_no_trace() -> None:
    routes = RouteTable()
    assert register(routes, said("T1")) is None
    assert (routes.brokers, routes.clusters, routes.live, routes.topics) == ({}, {}, {}, {})


@pytest.mark.parametrize("topics", [(), ("T1", "T2")])
def test_a_first_registration_with_no_or_several_topics_is_accepted(
    topics: tuple[str, ...],
) -> None:
    routes = RouteTable()
    assert register(routes, said(*topics)) == Registered()
    assert listed(routes.all_topics()) == list(topics)


def test_one_topic_after_a_full_registration_is_accepted(routes: RouteTable) -> None:
    assert register(routes, said("T3", version=DataVersion(0, 2_000, 2))) == Registered()
    assert listed(routes.all_topics()) == ["T1", "T2", "T3"]


def test_another_id_of_a_known_name_needs_a_full_registration_of_its_own(
    routes: RouteTable,
) -> None:
    assert register(routes, said("T1", id_=1, addr="10.0.0.2:1")) is None
    assert addresses(routes) == {0: "10.0.0.1:1"}


def test_a_route_names_queues_and_brokers(routes: RouteTable) -> None:
    found = routes.route("T1")
    assert found is not None
    assert found.encode().decode() == (
        '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:1"},"brokerName":"a","cluster":"C",'
        '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a",'
        '"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert routes.route("T9") is None
    assert routes.route(None) is None


def test_a_topic_on_two_brokers_has_both_in_its_route(routes: RouteTable) -> None:
    register(routes, said("T2", "T3", name="b", addr="10.0.0.2:1"))
    found = routes.route("T2")
    assert found is not None
    assert {broker.broker_name for broker in found.broker_datas} == {"a", "b"}
    assert perms(routes, "T1") == {"a": 6}
    assert perms(routes, "T3") == {"b": 6}


def test_the_same_version_changes_no_known_topic_but_adds_unknown_ones(routes: RouteTable) -> None:
    register(routes, said("T1", "T4", queues=9))
    known, added = routes.route("T1"), routes.route("T4")
    assert known is not None
    assert added is not None
    assert known.queue_datas[0].read_queue_nums == 4
    assert added.queue_datas[0].read_queue_nums == 9


def test_another_version_changes_the_topics(routes: RouteTable) -> None:
    register(routes, said("T1", "T2", queues=9, version=DataVersion(0, 1_000, 2)))
    found = routes.route("T1")
    assert found is not None
    assert found.queue_datas[0].write_queue_nums == 9


def test_a_topic_stays_when_the_broker_no_longer_reports_it(routes: RouteTable) -> None:
    register(routes, said("T1", "T3", version=DataVersion(0, 2_000, 2)))
    assert listed(routes.all_topics()) == ["T1", "T2", "T3"]


def test_a_topic_goes_with_its_report_where_the_setting_says_so(routes: RouteTable) -> None:
    one = said("T1", "T3", version=DataVersion(0, 2_000, 2))
    routes.register(one, 0, "x", delete_missing=True)
    assert listed(routes.all_topics()) == ["T1", "T3"]


def test_a_slave_learns_its_masters_address_and_registers_no_topics(routes: RouteTable) -> None:
    register(routes, said("T1", "T2", ha_addr="10.0.0.1:2"))
    found = register(routes, said("S1", "S2", id_=1, addr="10.0.0.2:1", acting_master=False))
    assert found == Registered("10.0.0.1:2", "10.0.0.1:1")
    assert addresses(routes) == {0: "10.0.0.1:1", 1: "10.0.0.2:1"}
    assert listed(routes.all_topics()) == ["T1", "T2"]


def test_without_a_master_the_slave_with_the_smallest_id_registers_topics() -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", id_=1, addr="10.0.0.2:1", acting_master=False))
    register(routes, said("T3", "T4", id_=2, addr="10.0.0.3:1", acting_master=False))
    assert listed(routes.all_topics()) == ["T1", "T2"]
    assert perms(routes, "T1") == {"a": 6}


def test_a_slave_that_may_act_as_master_registers_its_topics_as_read_only() -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", id_=1, addr="10.0.0.2:1", acting_master=True))
    assert perms(routes, "T1") == {"a": 4}


def test_an_old_slave_registers_no_topics_even_without_a_master() -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", id_=1, addr="10.0.0.2:1"))
    assert listed(routes.all_topics()) == []
    assert routes.brokers["a"].enable_acting_master is False


def test_a_slave_that_became_master_is_not_listed_twice(routes: RouteTable) -> None:
    register(routes, said("T1", "T2", id_=1, addr="10.0.0.2:1"))
    register(routes, said("T1", "T2", id_=0, addr="10.0.0.2:1"))
    assert addresses(routes) == {0: "10.0.0.2:1"}


def test_a_master_with_a_smaller_state_version_does_not_replace_the_present_one(
    routes: RouteTable,
) -> None:
    register(routes, said("T1", "T2", version=DataVersion(2, 1_000, 1)))
    late = said("T8", "T9", addr="10.0.0.9:1", version=DataVersion(1, 9_000, 9))
    assert register(routes, late) == Registered()
    assert addresses(routes) == {0: "10.0.0.1:1"}
    assert list(routes.live) == [("C", "10.0.0.1:1")]
    assert listed(routes.all_topics()) == ["T1", "T2"]


def test_a_master_with_the_same_state_version_takes_over_the_id(routes: RouteTable) -> None:
    register(routes, said("T1", "T2", addr="10.0.0.9:1"))
    assert addresses(routes) == {0: "10.0.0.9:1"}


def test_filter_servers_are_kept_replaced_and_removed(routes: RouteTable) -> None:
    def known() -> dict[str, list[str]]:
        found = routes.route("T1")
        assert found is not None
        return found.filter_server_table

    register(routes, said("T1", "T2", filter_servers=["f:1"]))
    assert known() == {"10.0.0.1:1": ["f:1"]}
    register(routes, said("T1", "T2", filter_servers=None))
    assert known() == {"10.0.0.1:1": ["f:1"]}
    register(routes, said("T1", "T2", filter_servers=[]))
    assert known() == {}


def test_a_registration_over_the_limit_of_topics_is_refused_whole() -> None:
    routes = RouteTable(topics_max=2)
    register(routes, said("T1", "T2"))
    with pytest.raises(Refusal, match="1 more topics on top of 2 are over the limit of 2"):
        register(routes, said("T1", "T3", queues=9, version=DataVersion(0, 2_000, 2)))
    register(routes, said("T1", "T2", queues=9, version=DataVersion(0, 3_000, 3)))
    assert listed(routes.all_topics()) == ["T1", "T2"]
    with pytest.raises(Refusal, match="over the limit of 2"):
        routes.register_topic("T3", [QueueData("a")])


def test_a_registration_over_the_limit_of_addresses_is_refused() -> None:
    routes = RouteTable(addresses_max=1)
    register(routes, said("T1", "T2"))
    register(routes, said("T1", "T2"))
    with pytest.raises(Refusal, match="1 broker addresses are registered, the limit is 1"):
        register(routes, said("T1", "T2", name="b", addr="10.0.0.2:1"))


# --- lost brokers -------------------------------------------------------------------------------


def test_a_silent_broker_is_removed_after_more_than_120_seconds(routes: RouteTable) -> None:
    assert routes.expire(120_000) == Removed()
    assert routes.route("T1") is not None
    removed = routes.expire(120_001)
    assert removed.addresses == [("C", "10.0.0.1:1")]
    assert removed.connections == ["x"]
    assert routes.route("T1") is None
    assert (routes.brokers, routes.clusters, routes.live, routes.topics) == ({}, {}, {}, {})


def test_a_heartbeat_counts_from_its_own_time(routes: RouteTable) -> None:
    routes.heard("C", "10.0.0.1:1", 50_000)
    routes.heard("C", "10.0.0.7:1", 50_000)
    assert routes.expire(170_000).addresses == []
    assert routes.expire(170_001).addresses == [("C", "10.0.0.1:1")]


def test_a_broker_may_name_a_timeout_of_its_own() -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", timeout_ms=10_000))
    assert routes.expire(10_000).addresses == []
    assert routes.expire(10_001).addresses == [("C", "10.0.0.1:1")]


def test_a_closed_connection_removes_all_its_brokers(routes: RouteTable) -> None:
    register(routes, said("T2", "T3", name="b", addr="10.0.0.2:1"), connection="y")
    register(routes, said("T4", "T5", name="c", addr="10.0.0.3:1"), connection="y")
    assert routes.lost("z").addresses == []
    removed = routes.lost("y")
    assert sorted(removed.addresses) == [("C", "10.0.0.2:1"), ("C", "10.0.0.3:1")]
    assert removed.connections == []
    assert listed(routes.all_topics()) == ["T1", "T2"]
    assert perms(routes, "T2") == {"a": 6}
    assert routes.lost("y").addresses == []


def test_a_registration_on_a_new_connection_outlives_the_old_one(routes: RouteTable) -> None:
    register(routes, said("T1", "T2"), connection="y")
    assert routes.lost("x").addresses == []
    assert routes.route("T1") is not None
    assert routes.lost("y").addresses == [("C", "10.0.0.1:1")]


def test_the_loss_of_an_address_whose_id_another_broker_took_changes_no_topic(
    routes: RouteTable,
) -> None:
    register(routes, said("T1", "T2", addr="10.0.0.9:1"), connection="y")
    assert routes.lost("x").addresses == [("C", "10.0.0.1:1")]
    assert addresses(routes) == {0: "10.0.0.9:1"}
    assert perms(routes, "T1") == {"a": 6}
    assert list(routes.live) == [("C", "10.0.0.9:1")]


@pytest.mark.parametrize("acting", [True, False, None])
def test_a_slave_that_leaves_loses_only_its_address(acting: bool | None) -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", acting_master=acting))
    register(routes, said(id_=1, addr="10.0.0.2:1", acting_master=acting))
    routes.unregister("C", "10.0.0.2:1", "a", 1)
    assert addresses(routes) == {0: "10.0.0.1:1"}
    assert perms(routes, "T1") == {"a": 6}


@pytest.mark.parametrize(("acting", "perm"), [(True, 4), (False, 6), (None, 6)])
def test_topics_of_a_lost_master_are_read_only_where_slaves_may_act(
    acting: bool | None, perm: int
) -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", acting_master=acting))
    register(routes, said(id_=1, addr="10.0.0.2:1", acting_master=acting))
    routes.unregister("C", "10.0.0.1:1", "a", 0)
    assert addresses(routes) == {1: "10.0.0.2:1"}
    assert perms(routes, "T1") == {"a": perm}


def test_unregistering_an_unknown_broker_changes_nothing(routes: RouteTable) -> None:
    routes.unregister("C", "10.0.0.7:1", "nope", 0)
    routes.unregister("C", "10.0.0.7:1", "a", 0)
    assert addresses(routes) == {0: "10.0.0.1:1"}
    assert listed(routes.all_topics()) == ["T1", "T2"]


# --- notices about the smallest id --------------------------------------------------------------


def test_the_other_brokers_are_notified_of_a_new_smallest_id() -> None:
    routes = RouteTable()
    register(routes, said("T1", "T2", id_=2, addr="10.0.0.3:1", acting_master=True))
    found = register(
        routes, said("T1", "T2", id_=1, addr="10.0.0.2:1", acting_master=True, ha_addr="10.0.0.2:2")
    )
    assert found is not None
    assert found.notice is not None
    assert found.notice.targets == ["10.0.0.3:1"]
    assert (found.notice.min_broker_id, found.notice.min_broker_addr) == (1, "10.0.0.2:1")
    assert (found.notice.offline_addr, found.notice.ha_addr) == (None, "10.0.0.2:2")


def test_the_remaining_brokers_are_notified_of_the_loss_of_the_smallest_id() -> None:
    routes = RouteTable()
    for id_ in (0, 1, 2):
        register(routes, said(id_=id_, addr=f"10.0.0.{id_}:1", acting_master=True), connection=id_)
    assert routes.lost(2).notices == []
    (notice,) = routes.lost(0).notices
    assert (notice.min_broker_id, notice.targets) == (1, ["10.0.0.1:1"])
    assert notice.offline_addr == "10.0.0.0:1"


def test_no_broker_is_notified_where_slaves_do_not_act_as_master() -> None:
    routes = RouteTable()
    for id_ in (0, 1):
        register(routes, said(id_=id_, addr=f"10.0.0.{id_}:1", acting_master=False), connection=id_)
    assert routes.lost(0).notices == []


# --- topics -------------------------------------------------------------------------------------


def test_write_permission_is_wiped_and_given_back_until_the_next_change(routes: RouteTable) -> None:
    register(routes, said("T1", "T2", name="b", addr="10.0.0.2:1"))
    assert routes.wipe_write_perm("a") == 2
    assert perms(routes, "T1") == {"a": 4, "b": 6}
    register(routes, said("T1", "T2"))
    assert perms(routes, "T1") == {"a": 4, "b": 6}
    register(routes, said("T1", "T2", perm=7, version=DataVersion(0, 2_000, 2)))
    assert perms(routes, "T1") == {"a": 7, "b": 6}
    assert routes.wipe_write_perm("a") == 2
    assert perms(routes, "T1") == {"a": 5, "b": 6}
    assert routes.add_write_perm("a") == 2
    assert perms(routes, "T1") == {"a": 6, "b": 6}
    assert routes.wipe_write_perm("nope") == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(routes: RouteTable) -> None:
    register(routes, said("T1", "T2", name="b", addr="10.0.0.2:1", cluster="D"))
    routes.delete_topic("T1", "nope")
    assert perms(routes, "T1") == {"a": 6, "b": 6}
    routes.delete_topic("T1", "C")
    assert perms(routes, "T1") == {"b": 6}
    routes.delete_topic("T1", "D")
    assert listed(routes.all_topics()) == ["T2"]
    routes.delete_topic("T2")
    assert listed(routes.all_topics()) == []
    routes.delete_topic("T2")


def test_a_topic_is_registered_up_to_the_first_unknown_broker(routes: RouteTable) -> None:
    routes.register_topic("N", [QueueData("a", 1, 1, 6), QueueData("nope", 1, 1, 6)])
    assert routes.route("N") is None
    routes.register_topic("N", [QueueData("a", 1, 1, 6)])
    assert perms(routes, "N") == {"a": 6}
    routes.register_topic("N", [QueueData("a", 1, 1, 4), QueueData("nope"), QueueData("a", 9)])
    assert perms(routes, "N") == {"a": 4}
    routes.register_topic("empty", [])
    assert routes.route("empty") is None


def test_lists_of_topics(routes: RouteTable) -> None:
    register(routes, said("U", "T2", name="b", addr="10.0.0.2:1", cluster="D", flags=1))
    register(routes, said("V", "W", name="c", addr="10.0.0.3:1", cluster="D", flags=2))
    register(routes, said("X", "Y", name="d", addr="10.0.0.4:1", cluster="D", flags=3))
    assert listed(routes.topics_of_cluster("C")) == ["T1", "T2"]
    assert listed(routes.topics_of_cluster("D")) == ["T2", "U", "V", "W", "X", "Y"]
    assert listed(routes.topics_of_cluster("nope")) == []
    assert listed(routes.topics_by_flag(1)) == ["U", "X", "Y"]
    assert listed(routes.topics_by_flag(2)) == ["V", "W", "X", "Y"]
    assert listed(routes.topics_by_flag(2, 1)) == ["V", "W"]
    system = routes.system_topics()
    assert system.topic_list == ["C", "D", "a", "b", "c", "d"]
    assert system.broker_addr == "10.0.0.1:1"
    assert RouteTable().system_topics().broker_addr is None


# --- zones and acting masters -------------------------------------------------------------------


def test_a_zone_keeps_its_own_brokers_and_those_without_a_master() -> None:
    routes = RouteTable()
    register(routes, said("T", "t", name="a", zone="Z1", filter_servers=["f:1"]))
    register(routes, said("T", "t", name="b", zone="Z2", addr="10.0.0.2:1", filter_servers=["f:2"]))
    register(
        routes, said("T", "t", name="c", zone="Z2", addr="10.0.0.3:1", id_=1, acting_master=False)
    )
    route = routes.route("T")
    assert route is not None
    found = only_zone(route, "z1")
    assert [broker.broker_name for broker in found.broker_datas] == ["a", "c"]
    assert [queue.broker_name for queue in found.queue_datas] == ["a", "c"]
    assert found.filter_server_table == {"10.0.0.1:1": ["f:1"]}


def acting_table(perm: int = 6) -> RouteTable:
    routes = RouteTable()
    topics = ("T", "rmq_sys_SYNC_BROKER_MEMBER_a")
    register(routes, said(*topics, acting_master=True, perm=perm))
    for id_ in (1, 2):
        register(routes, said(id_=id_, addr=f"10.0.0.{id_ + 1}:1", acting_master=True))
    routes.unregister("C", "10.0.0.1:1", "a", 0)
    return routes


def shown(routes: RouteTable, topic: str = "T", *, acting_master: bool = True) -> dict[int, str]:
    found = routes.route(topic, acting_master=acting_master)
    assert found is not None
    return found.broker_datas[0].broker_addrs


def test_the_slave_with_the_smallest_id_is_shown_as_master_where_the_client_supports_it() -> None:
    routes = acting_table()
    assert shown(routes) == {0: "10.0.0.2:1", 2: "10.0.0.3:1"}
    assert shown(routes, acting_master=False) == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}
    assert addresses(routes) == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}


def test_no_slave_is_shown_as_master_of_member_topics_or_of_writable_ones() -> None:
    routes = acting_table()
    assert shown(routes, "rmq_sys_SYNC_BROKER_MEMBER_a") == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}
    routes.add_write_perm("a")
    assert shown(routes) == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}


# --- static topics ------------------------------------------------------------------------------


def static(broker: str, epoch: int = 1) -> dict[str, TopicQueueMappingInfo]:
    """The mapping in which a broker says that it leads queue 0 of topic S."""
    info = TopicQueueMappingInfo("S", total_queues=1, bname=broker, epoch=epoch, curr_id_map={0: 0})
    return {"S": info}


def test_a_route_has_the_mapping_that_each_broker_registered_for_a_static_topic() -> None:
    routes = RouteTable()
    for name in ("a", "b"):
        one = said("S", "T", name=name, addr=f"{name}:1", mappings=static(name))
        register(routes, one, connection=name)
    found = routes.route("S")
    assert found is not None
    assert found.topic_queue_mapping_by_broker == {
        "a": static("a")["S"],
        "b": static("b")["S"],
    }
    plain = routes.route("T")
    assert plain is not None
    assert plain.topic_queue_mapping_by_broker is None
    newer = DataVersion(0, 1_000, 2)
    register(routes, said("S", addr="a:1", version=newer, mappings=static("a", 2)), connection="a")
    assert routes.mappings["S"]["a"].epoch == 2
    # As in RocketMQ, only under a new data version.
    register(routes, said("S", addr="a:1", version=newer, mappings=static("a", 3)), connection="a")
    assert routes.mappings["S"]["a"].epoch == 2


def test_a_mapping_for_another_broker_or_an_unknown_static_topic_is_dropped() -> None:
    routes = RouteTable()
    register(routes, said("S", "T", mappings=static("other")))
    register(routes, said("T", "U", mappings=static("a"), name="b", addr="b:1"), connection="b")
    assert routes.mappings == {}


def test_the_mapping_of_a_static_topic_goes_with_the_topic() -> None:
    routes = RouteTable()
    register(routes, said("S", "T", mappings=static("a")))
    routes.delete_topic("S")
    assert routes.mappings == {}
    newer = DataVersion(0, 1_000, 2)
    register(routes, said("S", "T", mappings=static("a"), version=newer))
    assert routes.mappings.keys() == {"S"}
    routes.lost("x")
    assert routes.mappings == {}


def test_the_registration_of_a_broker_with_static_topics_deletes_no_topic() -> None:
    routes = RouteTable()
    register(routes, said("S", "T"))
    newer = DataVersion(0, 1_000, 2)
    one = said("S", "U", mappings=static("a"), version=newer)
    routes.register(one, 0, "x", delete_missing=True)
    assert routes.route("T") is not None
