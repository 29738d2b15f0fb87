"""The name server through its socket; remarks and fields are those of a Java name server 5.3.3."""

import asyncio
import json
import logging
import zlib
from pathlib import Path

import msgspec
import pytest
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from aerobee.protocol.codec.frame import FrameDecoder

from ..waiting import LONG
from .conftest import Answer, Asker, Connect, Start

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
BX = {
    "brokerName": "bx",
    "brokerAddr": "127.0.0.1:30911",
    "clusterName": "CX",
    "haServerAddr": "127.0.0.1:30912",
    "brokerId": "0",
    "enableActingMaster": "false",
    "compressed": "false",
    "bodyCrc32": "0",
}
MASTER = {"brokerName": "bx", "brokerAddr": "127.0.0.1:30911", "clusterName": "CX", "brokerId": "0"}


def topics(*names: str, counter: int = 1) -> RegisterBrokerBody:
    body = RegisterBrokerBody()
    body.topic_config_serialize_wrapper.data_version = DataVersion(0, 1_000, counter)
    for name in names:
        body.topic_config_serialize_wrapper.topic_config_table[name] = TopicConfig(name, 4, 4)
    return body


async def register(asker: Asker, *names: str, **ext: str) -> Answer:
    return await asker.ask(codes.REGISTER_BROKER, {**BX, **ext}, topics(*names).encode(), 479)


async def route(asker: Asker, topic: str, version: int = 479, **ext: str) -> Answer:
    return await asker.ask(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **ext}, version=version)


ROUTE_T1 = (
    '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:30911"},"brokerName":"bx","cluster":"CX",'
    '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"bx","perm":6,'
    '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)


# --- the answers that a real name server gave ---------------------------------------------------


@pytest.mark.parametrize("version", [317, 401])
@pytest.mark.parametrize(
    ("ext", "topic"),
    [
        ({"topic": "TBW102"}, "TBW102"),
        ({"topic": "nope", "acceptStandardJsonOnly": "true"}, "nope"),
        ({}, "null"),
        (None, "null"),
    ],
)
async def test_an_unknown_topic_has_no_route(
    asker: Asker, ext: dict[str, str] | None, topic: str, version: int
) -> None:
    assert await asker.ask(codes.GET_ROUTEINFO_BY_TOPIC, ext, version=version) == Answer(
        17, f"No topic route info in name server for the topic: {topic}{FAQ}", None, b""
    )


async def test_an_unknown_request_is_not_supported(asker: Asker) -> None:
    assert await asker.ask(999) == Answer(3, " request type 999 not supported", None, b"")


async def test_an_unknown_cluster_has_no_topics(asker: Asker) -> None:
    found = await asker.ask(codes.GET_TOPICS_BY_CLUSTER, {"cluster": "nope"})
    assert found == Answer(0, None, None, b'{"topicList":[]}')


async def test_registrations_as_a_real_name_server_answers_them(
    namesrv: NameServer, asker: Asker, connect: Connect
) -> None:
    broker = await connect(namesrv)
    assert await register(broker, "T1") == Answer(1, "register broker failed", {}, b"")
    assert await register(broker, "T1", "T2") == Answer(0, None, {}, b"")
    assert await register(broker, "T3") == Answer(0, None, {}, b"")
    assert await register(broker, "T1", "T2", bodyCrc32="7") == Answer(
        1, "crc32 not match", {}, b""
    )
    assert await route(asker, "T1") == Answer(0, None, None, ROUTE_T1.encode())
    await broker.close()
    async with asyncio.timeout(LONG):
        while (await route(asker, "T1")).code != codes.TOPIC_NOT_EXIST:
            pass


async def test_cluster_info_as_a_real_name_server_writes_it(asker: Asker) -> None:
    await register(
        asker,
        "T1",
        "T2",
        brokerName="broker-a",
        brokerAddr="127.0.0.1:20911",
        clusterName="DefaultCluster",
    )
    found = await asker.ask(codes.GET_BROKER_CLUSTER_INFO)
    assert found == Answer(
        0,
        None,
        None,
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:20911"},"brokerName":'
        b'"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":'
        b'{"DefaultCluster":["broker-a"]}}',
    )


# --- registration -------------------------------------------------------------------------------


async def test_a_registration_of_java_with_its_crc_is_taken(asker: Asker) -> None:
    body = topics("T1", "T2").encode()
    ext = {**BX, "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    assert (await asker.ask(codes.REGISTER_BROKER, ext, body)).code == 0
    assert (await route(asker, "T1")).code == 0


@pytest.mark.parametrize("said", ["true", "false"])
async def test_a_compressed_registration_is_taken_whatever_its_header_says(
    asker: Asker, said: str
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "json_bodies.json"
    vectors = json.loads(golden.read_text("utf-8"))
    vector = next(each for each in vectors if "inflated_hex" in each)
    await register(asker)
    ext = {**BX, "compressed": said, "bodyCrc32": str(vector["crc32"])}
    found = await asker.ask(codes.REGISTER_BROKER, ext, bytes.fromhex(vector["hex"]))
    assert found.code == 0
    assert b'"readQueueNums":8' in (await route(asker, "TopicA")).body


async def test_an_ancient_broker_registers_its_topics_alone(asker: Asker) -> None:
    body = TopicConfigSerializeWrapper({"T1": TopicConfig("T1"), "T2": TopicConfig("T2")}).encode()
    assert (await asker.ask(codes.REGISTER_BROKER, BX, body, version=36)).code == 0
    assert (await route(asker, "T1")).code == 0


@pytest.mark.parametrize("version", [36, 479])
async def test_a_registration_without_a_body_has_no_topics(asker: Asker, version: int) -> None:
    assert await asker.ask(codes.REGISTER_BROKER, BX, version=version) == Answer(0, None, {}, b"")
    found = await asker.ask(codes.QUERY_DATA_VERSION, MASTER, DataVersion().encode())
    assert found.ext == {"changed": "false"}


@pytest.mark.parametrize(
    ("compressed", "reason"),
    [
        ("false", "RegisterBrokerBody can't be read: JSON can't be read"),
        ("true", "RegisterBrokerBody can't be inflated"),
    ],
)
async def test_a_registration_that_can_not_be_read_says_why(
    asker: Asker, compressed: str, reason: str
) -> None:
    ext = {**BX, "compressed": compressed}
    found = await asker.ask(codes.REGISTER_BROKER, ext, b"{nonsense")
    assert found.code == codes.SYSTEM_ERROR
    assert (found.remark or "").startswith(reason)


async def test_a_registration_without_an_address_names_the_field(asker: Asker) -> None:
    ext = {key: value for key, value in BX.items() if key != "brokerAddr"}
    found = await asker.ask(codes.REGISTER_BROKER, ext, topics("T1", "T2").encode())
    assert found.code == codes.SYSTEM_ERROR
    assert "brokerAddr" in (found.remark or "")


async def test_a_slave_is_told_where_its_master_is(asker: Asker) -> None:
    await register(asker, "T1", "T2")
    found = await register(asker, brokerAddr="127.0.0.1:40911", brokerId="1")
    assert found.ext == {"haServerAddr": "127.0.0.1:30912", "masterAddr": "127.0.0.1:30911"}
    group = await asker.ask(901, {"clusterName": "CX", "brokerName": "bx"})
    assert group.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:30911",1:"127.0.0.1:40911"},'
        b'"brokerName":"bx","cluster":"CX"}}'
    )


async def test_an_unknown_member_group_has_no_addresses(asker: Asker) -> None:
    found = await asker.ask(901, {"clusterName": "C", "brokerName": "n"})
    assert found.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"n","cluster":"C"}}'


async def test_ordered_topics_are_told_to_brokers_and_clients_where_that_is_set(
    start: Start, connect: Connect
) -> None:
    server = await start(order_message_enable=True)
    asker = await connect(server)
    assert (await register(asker, "T1", "T2")).body == b""
    item = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "bx:4"}
    await asker.ask(codes.PUT_KV_CONFIG, item)
    assert (await register(asker, "T1", "T2")).body == b'{"table":{"T1":"bx:4"}}'
    assert b'"orderTopicConf":"bx:4"' in (await route(asker, "T1")).body
    assert b"orderTopicConf" not in (await route(asker, "T2")).body
    changed = await asker.ask(
        codes.UPDATE_NAMESRV_CONFIG, body=b"returnOrderTopicConfigToBroker=false\n"
    )
    assert changed.code == 0
    assert (await register(asker, "T1", "T2")).body == b""


async def test_a_data_version_says_whether_anything_changed(asker: Asker) -> None:
    version = topics(counter=5).topic_config_serialize_wrapper.data_version
    asked = (codes.QUERY_DATA_VERSION, MASTER, version.encode())
    assert await asker.ask(*asked) == Answer(0, None, {"changed": "true"}, b"")
    await asker.ask(codes.REGISTER_BROKER, BX, topics("T1", "T2", counter=5).encode())
    assert await asker.ask(*asked) == Answer(
        0, None, {"changed": "false"}, b'{"counter":5,"stateVersion":0,"timestamp":1000}'
    )
    other = await asker.ask(codes.QUERY_DATA_VERSION, MASTER, version.following(2_000).encode())
    assert other.ext == {"changed": "true"}
    assert (await asker.ask(codes.QUERY_DATA_VERSION, MASTER)).code == codes.SYSTEM_ERROR


async def test_a_broker_unregisters(asker: Asker) -> None:
    await register(asker, "T1", "T2")
    assert await asker.ask(codes.UNREGISTER_BROKER, MASTER) == Answer(0, None, None, b"")
    assert (await route(asker, "T1")).code == codes.TOPIC_NOT_EXIST
    found = await asker.ask(codes.GET_BROKER_CLUSTER_INFO)
    assert found.body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


# --- time ---------------------------------------------------------------------------------------


async def test_a_silent_broker_is_dropped_and_its_connection_closed(
    start: Start, connect: Connect
) -> None:
    now_ms = 0
    server = await start(clock=lambda: now_ms)
    broker, asker = await connect(server), await connect(server)
    await register(broker, "T1", "T2")
    now_ms = 60_000
    heard = {"clusterName": "CX", "brokerAddr": "127.0.0.1:30911"}
    assert await broker.ask(codes.BROKER_HEARTBEAT, heard) == Answer(0, None, None, b"")
    unknown = {"clusterName": "CX", "brokerAddr": "127.0.0.1:1"}
    assert await broker.ask(codes.BROKER_HEARTBEAT, unknown) == Answer(0, None, None, b"")
    now_ms = 180_000
    assert server.scan().addresses == []
    now_ms = 180_001
    assert server.scan().addresses == [("CX", "127.0.0.1:30911")]
    assert await broker.is_closed_by_peer()
    assert (await route(asker, "T1")).code == codes.TOPIC_NOT_EXIST


async def test_the_scan_runs_by_itself(start: Start, connect: Connect) -> None:
    now_ms = 0
    server = await start(clock=lambda: now_ms, scan_not_active_broker_interval=10)
    broker = await connect(server)
    await register(broker, "T1", "T2", heartbeatTimeoutMillis="1000")
    now_ms = 1_001
    assert await broker.is_closed_by_peer()
    assert server.routes.live == {}


async def test_routes_wait_for_brokers_where_that_is_set(start: Start, connect: Connect) -> None:
    now_ms = 0
    server = await start(clock=lambda: now_ms, need_wait_for_service=True)
    asker = await connect(server)
    await register(asker, "T1", "T2")
    now_ms = 44_999
    waits = "name server not ready: it waits for brokers 45 s (needWaitForService); ask again later"
    assert await route(asker, "T1") == Answer(1, waits, None, b"")
    now_ms = 45_000
    assert (await route(asker, "T1")).code == 0


# --- routes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "ext", "standard"),
    [
        (400, {}, False),
        (401, {}, True),
        (317, {"acceptStandardJsonOnly": "true"}, True),
        (317, {"acceptStandardJsonOnly": "false"}, False),
    ],
)
async def test_broker_ids_are_quoted_for_clients_that_read_standard_json(
    asker: Asker, version: int, ext: dict[str, str], standard: bool
) -> None:
    await register(asker, "T1", "T2")
    expected = ROUTE_T1 if standard else ROUTE_T1.replace('"0":', "0:")
    assert (await route(asker, "T1", version, **ext)).body.decode() == expected


async def test_a_zone_is_filtered_and_written_in_the_default_form(asker: Asker) -> None:
    await register(asker, "T1", "T2", __ZONE_NAME="Z1")
    other = {"brokerName": "by", "brokerAddr": "127.0.0.1:40911"}
    await register(asker, "T1", "T2", __ZONE_NAME="Z2", **other)
    found = await route(asker, "T1", __ZONE_MODE="true", __ZONE_NAME="z1")
    expected = ROUTE_T1.replace('"0":', "0:").replace("false}", 'false,"zoneName":"Z1"}')
    assert found.body.decode() == expected
    for ext in ({"__ZONE_MODE": "true"}, {"__ZONE_NAME": "z1"}):
        both = msgspec.json.decode((await route(asker, "T1", 479, **ext)).body)
        assert len(both["brokerDatas"]) == 2


async def test_an_acting_master_is_shown_where_that_is_set(start: Start, connect: Connect) -> None:
    server = await start(support_acting_master=True)
    asker = await connect(server)
    await register(asker, "T1", "T2", brokerId="3", enableActingMaster="true")
    found = msgspec.json.decode((await route(asker, "T1")).body)
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:30911"}
    assert found["queueDatas"][0]["perm"] == 4


async def test_write_permission_is_wiped_and_added(asker: Asker) -> None:
    await register(asker, "T1", "T2")
    wiped = await asker.ask(codes.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "bx"})
    assert wiped == Answer(0, None, {"wipeTopicCount": "2"}, b"")
    assert b'"perm":4' in (await route(asker, "T1")).body
    added = await asker.ask(codes.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "bx"})
    assert added == Answer(0, None, {"addTopicCount": "2"}, b"")
    assert b'"perm":6' in (await route(asker, "T1")).body


# --- topics -------------------------------------------------------------------------------------


async def test_a_topic_is_registered_and_deleted(asker: Asker) -> None:
    await register(asker, "T1", "T2")
    body = b'{"queueDatas":[{"brokerName":"bx","perm":6,"readQueueNums":3,"writeQueueNums":3}]}'
    assert (await asker.ask(217, {"topic": "N"}, body)) == Answer(0, None, None, b"")
    assert b'"readQueueNums":3' in (await route(asker, "N")).body
    assert (await asker.ask(217, {"topic": "M"})).code == 0
    for ext in ({"topic": "N", "clusterName": "CX"}, {"topic": "T1"}, {"topic": "nope"}):
        assert await asker.ask(codes.DELETE_TOPIC_IN_NAMESRV, ext) == Answer(0, None, None, b"")
    assert (await asker.ask(206)).body == b'{"topicList":["T2"]}'


async def test_a_registered_topic_in_fastjsons_dialect_is_read(asker: Asker) -> None:
    await register(asker, "T1", "T2")
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"bx"}],"queueDatas":'
        b'[{"brokerName":"bx","perm":6,"readQueueNums":2,"writeQueueNums":2}]}'
    )
    assert (await asker.ask(217, {"topic": "N"}, body)).code == 0
    assert b'"readQueueNums":2' in (await route(asker, "N")).body


async def test_lists_of_topics(asker: Asker) -> None:
    await register(asker, "T1", "T2")
    assert (await asker.ask(206)).body == b'{"topicList":["T1","T2"]}'
    by_cluster = await asker.ask(codes.GET_TOPICS_BY_CLUSTER, {"cluster": "CX"})
    assert by_cluster.body == b'{"topicList":["T1","T2"]}'
    system = await asker.ask(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert system.body == b'{"brokerAddr":"127.0.0.1:30911","topicList":["CX","bx"]}'
    for code in (311, 312, 313):
        assert (await asker.ask(code)).body == b'{"topicList":[]}'


async def test_lists_of_topics_can_be_disabled(start: Start, connect: Connect) -> None:
    server = await start(enable_all_topic_list=False, enable_topic_list=False)
    asker = await connect(server)
    for code in (206, 224, 311, 312, 313):
        found = await asker.ask(code, {"cluster": "CX"})
        key = "enableAllTopicList" if code == 206 else "enableTopicList"
        assert found == Answer(1, f"disable: {key} is false", None, b"")
    assert (await asker.ask(304)).code == 0


# --- key-value config and settings --------------------------------------------------------------


async def test_the_key_value_config_is_put_read_and_deleted(asker: Asker) -> None:
    item = {"namespace": "N", "key": "k"}
    missing = Answer(22, "No config item, Namespace: N Key: k", {}, b"")
    assert await asker.ask(codes.GET_KV_CONFIG, item) == missing
    assert await asker.ask(219, item) == Answer(22, "No config item, Namespace: N", None, b"")
    assert await asker.ask(100, {**item, "value": "v"}) == Answer(0, None, None, b"")
    assert await asker.ask(codes.GET_KV_CONFIG, item) == Answer(0, None, {"value": "v"}, b"")
    assert (await asker.ask(219, item)).body == b'{"table":{"k":"v"}}'
    assert await asker.ask(codes.DELETE_KV_CONFIG, item) == Answer(0, None, None, b"")
    assert await asker.ask(codes.DELETE_KV_CONFIG, item) == Answer(0, None, None, b"")
    assert await asker.ask(codes.GET_KV_CONFIG, item) == missing
    assert (await asker.ask(219, item)).body == b'{"table":{}}'


async def test_a_key_that_is_put_without_a_value_is_gone(asker: Asker) -> None:
    item = {"namespace": "N", "key": "k"}
    for value, found in (("", 0), ("v", 0), (None, 22)):
        sent = item if value is None else {**item, "value": value}
        assert (await asker.ask(codes.PUT_KV_CONFIG, sent)).code == 0
        assert (await asker.ask(codes.GET_KV_CONFIG, item)).code == found


async def test_no_name_is_not_an_empty_name(asker: Asker) -> None:
    empty = {"namespace": "", "key": "", "value": "v"}
    assert (await asker.ask(codes.PUT_KV_CONFIG, empty)).code == 0
    assert (await asker.ask(codes.GET_KV_CONFIG, {"namespace": ""})).code == 22
    assert (await asker.ask(codes.GET_KV_CONFIG, {"key": ""})).code == 22
    assert (await asker.ask(219)).code == 22
    assert (await asker.ask(codes.GET_KV_CONFIG, empty)).ext == {"value": "v"}


async def test_the_key_value_config_without_a_key(asker: Asker) -> None:
    found = await asker.ask(codes.PUT_KV_CONFIG, {"value": "v"})
    assert found == Answer(1, "namespace or key is null: null, null; send both", None, b"")
    found = await asker.ask(codes.GET_KV_CONFIG)
    assert found.remark == "No config item, Namespace: null Key: null"
    assert (await asker.ask(219)).remark == "No config item, Namespace: null"
    assert (await asker.ask(codes.DELETE_KV_CONFIG)).code == 0


async def test_the_key_value_config_outlives_the_server(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    path = str(tmp_path / "namesrv" / "kvConfig.json")
    first = await connect(await start(kv_config_path=path))
    item = {"namespace": "N", "key": "k", "value": "v"}
    assert (await first.ask(codes.PUT_KV_CONFIG, item)).code == 0
    second = await connect(await start(kv_config_path=path))
    assert (await second.ask(codes.GET_KV_CONFIG, item)).ext == {"value": "v"}


async def test_settings_are_shown_and_changed(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "namesrv.properties"
    server = await start(config_store_path=str(path))
    asker = await connect(server)
    shown = (await asker.ask(codes.GET_NAMESRV_CONFIG)).body.decode()
    assert "enableTopicList=true\n" in shown
    assert "scanNotActiveBrokerInterval=5000\n" in shown
    body = b"enableTopicList=false\nnoSuchSetting=1\n"
    assert await asker.ask(codes.UPDATE_NAMESRV_CONFIG, None, body) == Answer(0, None, None, b"")
    assert not server.config.enable_topic_list
    assert (await asker.ask(311)).remark == "disable: enableTopicList is false"
    assert "enableTopicList=false\n" in path.read_text()
    assert (await asker.ask(codes.UPDATE_NAMESRV_CONFIG)).code == 0


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"kvConfigPath=/x\n", 16, "Can not update config in black list. What may not"),
        (b"configStorePath=/x\n", 16, "Can not update config in black list. What may not"),
        (b"rocketmqHome=/x\n", 16, "Can not update config in black list. What may not"),
        (b"configBlackList=\n", 16, "Can not update config in black list. What may not"),
        (b"productEnvName=x\\u12\n", 1, "string2Properties error: "),
        (
            b"scanNotActiveBrokerInterval=no\n",
            29,
            "setting scanNotActiveBrokerInterval is 'no': expected int, got str",
        ),
    ],
)
async def test_settings_that_may_not_be_changed_so(
    namesrv: NameServer, asker: Asker, body: bytes, code: int, remark: str
) -> None:
    before = namesrv.config
    found = await asker.ask(codes.UPDATE_NAMESRV_CONFIG, body=body)
    assert found.code == code
    assert (found.remark or "").startswith(remark)
    assert namesrv.config == before


async def test_levels_of_loggers_change_while_the_name_server_runs(
    namesrv: NameServer, asker: Asker
) -> None:
    logger = logging.getLogger("aerobee.namesrv.routes")
    before = logger.level
    try:
        body = b"logLevel=aerobee.namesrv.routes=error\n"
        assert (await asker.ask(codes.UPDATE_NAMESRV_CONFIG, body=body)).code == 0
        assert logger.level == logging.ERROR
        found = await asker.ask(codes.UPDATE_NAMESRV_CONFIG, body=b"logLevel=aerobee.x=error\n")
        assert (found.code, logger.level) == (codes.INVALID_PARAMETER, logging.ERROR)
        assert "but must name a module of aerobee" in (found.remark or "")
    finally:
        assert (await asker.ask(codes.UPDATE_NAMESRV_CONFIG, body=b"logLevel=\n")).code == 0
    assert logger.level == before


# --- notices to brokers, bad bytes, other codecs ------------------------------------------------


async def test_brokers_are_told_of_a_new_smallest_id(start: Start, connect: Connect) -> None:
    told: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            for command in decoder.feed(data):
                assert command.code == codes.NOTIFY_MIN_BROKER_ID_CHANGE
                assert command.is_oneway
                told.put_nowait(command.fields())
        writer.close()

    listening = await asyncio.start_server(broker, "127.0.0.1", 0)
    slave = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    server = await start(notify_min_broker_id_changed=True)
    master, asker = await connect(server), await connect(server)
    await register(master, "T1", "T2", enableActingMaster="true")
    await register(asker, brokerAddr=slave, brokerId="1", enableActingMaster="true")
    await master.ask(codes.UNREGISTER_BROKER, MASTER)
    assert await asyncio.wait_for(told.get(), LONG) == {
        "minBrokerId": "1",
        "minBrokerAddr": slave,
        "offlineBrokerAddr": "127.0.0.1:30911",
    }
    await server.stop()
    listening.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\x40abcd",
        b"\x00\x00\x00\x06\x09\x00\x00\x02{}",
    ],
)
async def test_bytes_that_are_no_frame_close_one_connection_only(
    namesrv: NameServer, asker: Asker, garbage: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", namesrv.port)
    writer.write(garbage)
    assert await asyncio.wait_for(reader.read(1), LONG) == b""
    writer.close()
    await writer.wait_closed()
    assert (await asker.ask(codes.GET_BROKER_CLUSTER_INFO)).code == 0


async def test_the_binary_header_codec_is_answered_in_kind(asker: Asker) -> None:
    body = topics("T1", "T2").encode()
    assert (await asker.ask(codes.REGISTER_BROKER, BX, body, codec=1)).code == 0
    found = await asker.ask(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "T1"}, codec=1)
    assert found.body.decode() == ROUTE_T1


async def test_a_taken_port_is_one_plain_sentence(namesrv: NameServer, start: Start) -> None:
    other = NameServer(namesrv.config.changed({"listenPort": namesrv.port}))
    with pytest.raises(OSError, match=f"can't listen on 127.0.0.1:{namesrv.port}: another program"):
        await other.start()


async def test_two_name_servers_do_not_know_of_each_other(start: Start, connect: Connect) -> None:
    first, second = await start(), await start()
    one, other = await connect(first), await connect(second)
    await register(one, "T1", "T2")
    assert (await route(one, "T1")).code == 0
    assert (await route(other, "T1")).code == codes.TOPIC_NOT_EXIST
