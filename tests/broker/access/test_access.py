"""Access control over the wire: which clients are served, and what they may do."""

import asyncio
import json
import logging
import ssl
from inspect import unwrap
from pathlib import Path

import pytest
from aerobee.broker.access import needs
from aerobee.broker.access import users as users_module
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio import guard as guard_module
from aerobee.protocol.aio.connection import Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.access import UserInfo
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from aerobee.protocol.bodies.queues import LockBatchRequestBody
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.bodies.topic import CreateTopicListRequestBody, TopicConfig
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.message.message_id import offset_message_id
from aerobee.protocol.security.signature import signature, signed, signed_content
from aerobee.store.base.errors import StoreError

from ...waiting import LONG, until
from ..conftest import Config, Start
from ..parts import Wire, connection_of
from .conftest import ADMIN, ON, SHOP, Callers, Signing, allow

ON_BOTH_ENGINES = True


async def exchange(port: int, *frames: bytes) -> list[Command]:
    """The responses to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(frames))
    decoder = FrameDecoder()
    found: list[Command] = []
    async with asyncio.timeout(LONG):
        while len(found) < len(frames):
            found += decoder.feed(await reader.read(65_536))
    writer.close()
    return found


async def test_a_user_without_rules_reads_only_the_unrestricted_broker_data(
    guarded: Broker, as_user: Callers
) -> None:
    assert guarded.access is not None
    guarded.access.users.create(UserInfo("normal", "p"))
    normal = as_user(("normal", "p"))
    for code in (
        codes.GET_ALL_TOPIC_CONFIG,
        codes.GET_BROKER_RUNTIME_INFO,
        codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    ):
        assert (await normal.ask(code)).code == codes.SUCCESS
        assert (await as_user(None).ask(code)).code == codes.NO_PERMISSION  # it has to sign
    for code in (codes.GET_BROKER_CONFIG, codes.GET_ALL_CONSUMER_OFFSET):
        assert (await normal.ask(code)).code == codes.NO_PERMISSION


# --- authentication -------------------------------------------------------------------------------


async def test_the_first_user_is_created_and_may_do_everything(as_user: Callers) -> None:
    admin = as_user(ADMIN)
    assert (await admin.send("T", b"hello")).code == codes.SUCCESS
    found = await admin.pull("T")
    assert (found.code, found.body is not None) == (codes.SUCCESS, True)


@pytest.mark.parametrize(
    ("user", "remark"),
    [
        (None, "username cannot be null"),
        (("nobody", "x"), "User:nobody is not found."),
        (("admin", "guessed"), "check signature failed"),
        (("no\nbody", "x"), r"User:no\nbody is not found."),
        (("x" * 1_000, "x"), "User:" + "x" * 64 + " is not found."),
    ],
)
async def test_a_client_without_a_valid_signature_is_refused(
    guarded: Broker, as_user: Callers, user: tuple[str, str] | None, remark: str
) -> None:
    stranger = as_user(user)
    end = guarded.store.log_end
    for answer in (
        await stranger.send("T"),
        await stranger.send("T", code=codes.SEND_BATCH_MESSAGE),
        await stranger.pull("T"),
        await stranger.heartbeat(),
        await stranger.ask(codes.GET_BROKER_CONFIG),
    ):
        assert answer.code == codes.NO_PERMISSION
        assert (answer.remark or "").startswith(remark)
    assert guarded.store.log_end == end
    assert guarded.access is not None
    assert guarded.access.refusals.count == 5


async def test_a_request_changed_after_signing_is_refused(guarded: Broker) -> None:
    fields = signed({"topic": "T"}, b"body", *ADMIN)
    code = codes.GET_TOPIC_CONFIG
    for changed, body in (
        ({**fields, "topic": "U"}, b"body"),
        ({**fields, "more": "x"}, b"body"),
        (fields, b"other"),
        ({**fields, "Signature": ""}, b"body"),
        ({**fields, "Signature": "Jörg \u20ac"}, b"body"),
        ({key: value for key, value in fields.items() if key != "Signature"}, b"body"),
    ):
        (answer,) = await exchange(guarded.port, encode_request(code, 1, changed, body))
        assert answer.code == codes.NO_PERMISSION, changed
        assert (answer.remark or "").startswith("check signature failed")


async def test_the_signature_covers_every_field_also_unknown_and_non_string_ones(
    guarded: Broker,
) -> None:
    fields = {"zz": "last", "AA": "first", "n": "7", "topic": "TBW102", "AccessKey": "admin"}
    proof = signature(ADMIN[1], signed_content(fields, b""))
    header = (
        b'{"code":%d,"extFields":{"n":7,"zz":"last","topic":"TBW102","AA":"first",'
        b'"AccessKey":"admin","gone":null,"Signature":"%s"},"flag":0,"opaque":1,"version":479}'
        % (codes.GET_TOPIC_CONFIG, proof.encode())
    )
    frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    (answer,) = await exchange(guarded.port, frame)
    assert answer.code == codes.SUCCESS


@pytest.mark.parametrize(("version", "served"), [(399, True), (400, False)])
async def test_the_field_that_old_clients_add_after_signing_is_not_signed(
    guarded: Broker, version: int, served: bool
) -> None:
    fields = signed({"topic": "TBW102"}, b"", *ADMIN) | {"_UNIQUE_KEY_QUERY": "true"}
    frame = encode_request(codes.GET_TOPIC_CONFIG, 1, fields, version=version)
    (answer,) = await exchange(guarded.port, frame)
    assert (answer.code == codes.SUCCESS) is served


@pytest.mark.parametrize("codec", [0, 1])
async def test_a_signature_is_valid_in_each_header_codec(guarded: Broker, codec: int) -> None:
    fields = signed({"topic": "TBW102"}, b"", *ADMIN)
    frame = encode_request(codes.GET_TOPIC_CONFIG, 1, fields, codec=codec)
    (answer,) = await exchange(guarded.port, frame)
    assert answer.code == codes.SUCCESS


async def test_a_malformed_header_or_one_without_fields_is_refused(guarded: Broker) -> None:
    for ext in (b"null", b"{}", b"[1]", b'"AccessKey"', b'{"AccessKey":""}'):
        header = b'{"code":30,"extFields":%s,"flag":0,"opaque":1,"version":479}' % ext
        frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        try:
            (answer,) = await exchange(guarded.port, frame)
        except TimeoutError:
            raise AssertionError(ext) from None
        assert answer.code == codes.NO_PERMISSION, ext


async def test_the_handler_reads_the_fields_that_were_signed(guarded: Broker) -> None:
    """The fields are decoded once: a second decoder could read the bytes differently."""
    fields = signed({"topic": "TBW102"}, b"", *ADMIN)
    (command,) = FrameDecoder().feed(encode_request(codes.GET_TOPIC_CONFIG, 1, fields))
    assert guarded.access is not None
    guarded.access.guard.check(needs.TOPIC_GET, command, connection_of(Wire()))
    decoded: object = command.ext
    assert decoded == fields


async def test_no_signature_is_valid_for_a_password_that_is_not_valid_unicode(
    guarded: Broker, as_user: Callers
) -> None:
    assert guarded.access is not None
    guarded.access.users.create(UserInfo("odd", "\ud800"))  # from an environment, say
    for secret in ("?", "", "\ufffd"):
        assert (await as_user(("odd", secret)).send("T")).code == codes.NO_PERMISSION


async def test_a_disabled_user_is_refused(guarded: Broker, as_user: Callers) -> None:
    shop = as_user(SHOP)
    allow(guarded, "Topic:T", "Pub")
    assert (await shop.send("T")).code == codes.SUCCESS
    assert guarded.access is not None
    guarded.access.users.update(UserInfo("shop", None, None, "disable"))
    answer = await shop.send("T")
    assert (answer.code, answer.remark) == (codes.NO_PERMISSION, "User:shop is disabled.")


async def test_a_new_password_takes_effect_at_once(guarded: Broker, as_user: Callers) -> None:
    assert guarded.access is not None
    guarded.access.users.update(UserInfo("admin", "new"))
    assert (await as_user(ADMIN).send("T")).code == codes.NO_PERMISSION
    assert (await as_user(("admin", "new")).send("T")).code == codes.SUCCESS


async def test_both_ports_and_tls_require_a_signature(guarded: Broker, as_user: Callers) -> None:
    assert (await as_user(None, guarded.fast_port).send("T")).code == codes.NO_PERMISSION
    assert (await as_user(ADMIN, guarded.fast_port).send("T")).code == codes.SUCCESS
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for user, code in ((None, codes.NO_PERMISSION), (ADMIN, codes.SUCCESS)):
        caller = as_user(user)
        sign = None if user is None else lambda fields, body: signed(fields, body, *ADMIN)
        await caller.peers.close()
        caller.peers = Peers(tls=context, sign=sign)
        assert (await caller.send("T")).code == code


async def test_a_refused_oneway_request_does_nothing(guarded: Broker, as_user: Callers) -> None:
    fields = {"topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "1"}
    frame = encode_request(codes.DELETE_TOPIC_IN_BROKER, 1, {"topic": "TBW102"}, oneway=True)
    asked = encode_request(codes.GET_TOPIC_CONFIG, 2, signed({"topic": "TBW102"}, b"", *ADMIN))
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded.port)
    writer.write(frame + asked)
    found = FrameDecoder().feed(await reader.read(65_536))
    writer.close()
    assert [(answer.opaque, answer.code) for answer in found] == [(2, codes.SUCCESS)]
    assert fields["topic"] not in guarded.topics.all()


async def test_refusals_are_logged_at_most_once_a_second(
    guarded: Broker, as_user: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    assert guarded.access is not None
    now = [5_000]
    guarded.access.refusals._now_ms = lambda: now[0]
    stranger = as_user(("nobody", "x"))
    with caplog.at_level(logging.WARNING, guard_module.log.name):
        for _ in range(3):
            await stranger.pull("T")
        now[0] += guard_module.LOG_EVERY_MS
        await stranger.pull("T")
    ours = [record for record in caplog.records if record.name == guard_module.log.name]
    told = [record.getMessage() for record in ours]
    assert [text.partition(" (")[2] for text in told] == [
        "1 refused since the start)",
        "4 refused since the start)",
    ]
    assert "refused request PULL_MESSAGE of 127.0.0.1:" in told[0]


# --- white lists, and authentication alone -------------------------------------------------------


async def test_a_request_on_the_white_list_needs_no_signature(start: Start, config: Config) -> None:
    white = f" {codes.GET_TOPIC_CONFIG}, {codes.AUTH_CREATE_USER} ,{codes.GET_MAX_OFFSET}"
    more = {
        "authentication_whitelist": white,
        "authorization_whitelist": f"{codes.GET_TOPIC_CONFIG},{codes.AUTH_CREATE_USER}",
    }
    broker = await start(config(**ON, **more))
    caller = Signing(broker)
    try:
        served = await caller.ask(codes.GET_TOPIC_CONFIG, {"topic": "TBW102"})
        assert served.code == codes.SUCCESS
        assert (await caller.send("T")).code == codes.NO_PERMISSION
        # Permissions are looked up for authenticated users only.
        other = await caller.ask(codes.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
        assert other.code == codes.NO_PERMISSION
        # A user name without a signature doesn't make a super user.
        body = b'{"password":"x","userType":"Super"}'
        fields = {"username": "me", "AccessKey": "admin"}
        answer = await caller.ask(codes.AUTH_CREATE_USER, fields, body)
        assert answer.code == codes.NO_PERMISSION
        assert broker.access is not None
        assert broker.access.users.get("me") is None
    finally:
        await caller.peers.close()


async def test_without_authorization_each_user_with_a_signature_may_do_everything(
    start: Start, config: Config
) -> None:
    broker = await start(config(**{**ON, "authorization_enabled": False}))
    assert broker.access is not None
    broker.access.users.create(UserInfo(*SHOP))
    shop, stranger = Signing(broker, SHOP), Signing(broker)
    try:
        assert (await shop.send("T")).code == codes.SUCCESS
        assert (await stranger.send("T")).code == codes.NO_PERMISSION
        body = b'{"password":"x","userType":"Super"}'
        answer = await shop.ask(codes.AUTH_CREATE_USER, {"username": "me"}, body)
        assert (answer.code, answer.remark) == (
            codes.SYSTEM_ERROR,
            "The super user can only be create by super user",
        )
    finally:
        await shop.peers.close()
        await stranger.peers.close()


async def test_without_access_control_the_request_table_is_unchanged(
    start: Start, config: Config, guarded: Broker, tmp_path: Path
) -> None:
    """Switched off it costs nothing: handlers are called directly, frequent rows stay hot."""
    broker = await start(config(store_path_root_dir=str(tmp_path / "free")))

    def rows(of: Broker) -> dict[int, Row]:
        (connection,) = of.server.connections
        return dict(connection.session.rows)

    callers = [Signing(broker), Signing(guarded)]
    for caller in callers:
        await caller.send("T")
    free, checked = rows(broker), rows(guarded)
    for caller in callers:
        await caller.peers.close()
    assert broker.access is None
    assert free.keys() == checked.keys()
    hot = {code for code, row in free.items() if row.hot}
    assert {codes.SEND_MESSAGE_V2, codes.PULL_MESSAGE} <= hot
    assert free[codes.SEND_MESSAGE_V2].handler == broker.sends.on_send
    # Switched on, each request is checked before its header is decoded.
    assert not any(row.hot or row.header for row in checked.values())
    assert not any(row.handler == unwrap(row.handler) for row in checked.values())


# --- authorization ------------------------------------------------------------------------------


HEARTBEAT = HeartbeatData(
    "c1",
    [ProducerData("any")],
    [
        ConsumerData(
            "G",
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
            [subscription("T", "*"), subscription("%RETRY%G", "*")],
        )
    ],
).encode()
QUEUE = {"topic": "T", "queueId": "0"}
READER = {"consumerGroup": "G", **QUEUE}
PULL = {
    **READER,
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}
SEND = {
    "producerGroup": "pg",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "1",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1",
    "flag": "0",
    "properties": "",
}
SEND_V2 = dict(zip("abcdefghi", SEND.values(), strict=True))
LOCK = LockBatchRequestBody(
    "G", "c1", False, [MessageQueue("T", "broker-a", 0), MessageQueue("%RETRY%G", "broker-a", 0)]
).encode()
BATCH_ACK = BatchAckMessageRequestBody(
    "broker-a", [BatchAck("G", "T"), BatchAck("G", "%RETRY%G"), BatchAck("H", "T")]
).encode()
TOPICS = CreateTopicListRequestBody([TopicConfig("T"), TopicConfig("U")]).encode()
TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
COMMIT = {**READER, "commitOffset": "0"}
Rights = list[tuple[str, str]]

RIGHTS: list[tuple[int, dict[str, str], bytes, Rights]] = [
    (codes.SEND_MESSAGE, SEND, b"x", [("Topic:T", "Pub")]),
    (codes.SEND_MESSAGE_V2, SEND_V2, b"x", [("Topic:T", "Pub")]),
    (codes.SEND_MESSAGE_V2, {**SEND_V2, "b": "%RETRY%G"}, b"x", [("Group:G", "Sub")]),
    (codes.SEND_BATCH_MESSAGE, SEND_V2, b"x", [("Topic:T", "Pub")]),
    (codes.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"}, b"", [("Topic:T", "Pub")]),
    (codes.PULL_MESSAGE, PULL, b"", [("Topic:T", "Sub"), ("Group:G", "Sub")]),
    (codes.LITE_PULL_MESSAGE, PULL, b"", [("Topic:T", "Sub"), ("Group:G", "Sub")]),
    (codes.PULL_MESSAGE, {**PULL, "topic": "%RETRY%G"}, b"", [("Group:G", "Sub")]),
    (codes.PULL_MESSAGE, {**PULL, "topic": "%RETRY%G_T"}, b"", [("Group:G", "Sub")]),
    (
        codes.PULL_MESSAGE,
        {**PULL, "topic": "%RETRY%H"},
        b"",
        [("Group:H", "Sub"), ("Group:G", "Sub")],
    ),
    (codes.HEART_BEAT, {}, HEARTBEAT, [("Group:G", "Sub"), ("Topic:T", "Sub")]),
    (codes.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "G"}, b"", [("Group:G", "Sub")]),
    (codes.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "G"}, b"", []),
    (codes.LOCK_BATCH_MQ, {}, LOCK, [("Group:G", "Sub"), ("Topic:T", "Sub")]),
    (codes.UNLOCK_BATCH_MQ, {}, LOCK, [("Group:G", "Sub"), ("Topic:T", "Sub")]),
    (
        codes.BATCH_ACK_MESSAGE,
        {},
        BATCH_ACK,
        [("Topic:T", "Sub"), ("Group:G", "Sub"), ("Group:H", "Sub")],
    ),
    (codes.ACK_MESSAGE, READER, b"", [("Topic:T", "Sub"), ("Group:G", "Sub")]),
    (codes.POP_MESSAGE, READER, b"", [("Topic:T", "Sub"), ("Group:G", "Sub")]),
    (codes.POLLING_INFO, READER, b"", [("Topic:T", "Get"), ("Group:G", "Get")]),
    (codes.QUERY_CONSUMER_OFFSET, READER, b"", [("Topic:T", "Get"), ("Group:G", "Sub")]),
    (codes.UPDATE_CONSUMER_OFFSET, COMMIT, b"", [("Topic:T", "Update"), ("Group:G", "Sub")]),
    (codes.GET_CONSUMER_LIST_BY_GROUP, READER, b"", [("Group:G", "Get")]),
    (
        codes.CONSUMER_SEND_MSG_BACK,
        {"group": "G", "offset": "99999999", "delayLevel": "1"},
        b"",
        [("Group:G", "Sub")],
    ),
    (codes.END_TRANSACTION, {"topic": "T"}, b"", [("Topic:T", "Pub")]),
    (codes.GET_MAX_OFFSET, QUEUE, b"", [("Topic:T", "Get")]),
    (codes.QUERY_MESSAGE, QUEUE, b"", [("Topic:T", "Sub")]),
    (codes.VIEW_MESSAGE_BY_ID, {"offset": "0", "topic": "T"}, b"", [("Topic:T", "Get")]),
    (codes.UPDATE_AND_CREATE_TOPIC, TOPIC, b"", [("Topic:T", "Create")]),
    (codes.UPDATE_AND_CREATE_TOPIC_LIST, {}, TOPICS, [("Topic:T", "Create"), ("Topic:U", "All")]),
    (codes.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, b"", [("Topic:T", "Delete")]),
    (
        codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        {},
        SubscriptionGroupConfig("G").encode(),
        [("Group:G", "Create")],
    ),
    (codes.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}, b"", [("Group:G", "Delete")]),
    (
        codes.GET_CONSUME_STATS,
        {"consumerGroup": "G", "topic": "T", "topicList": "U;V"},
        b"",
        [("Topic:T", "Get"), ("Topic:U", "Get"), ("Topic:V", "Get"), ("Group:G", "Get")],
    ),
    (codes.GET_BROKER_CONFIG, {}, b"", [("Cluster:DefaultCluster", "Get")]),
    (codes.UPDATE_BROKER_CONFIG, {}, b"", [("Cluster:DefaultCluster", "Update")]),
    (codes.GET_ALL_CONSUMER_OFFSET, {}, b"", [("Cluster:DefaultCluster", "Get")]),
    (codes.AUTH_LIST_USER, {}, b"", [("Cluster:DefaultCluster", "Get")]),
    (codes.AUTH_DELETE_USER, {"username": "x"}, b"", [("Cluster:DefaultCluster", "Update")]),
    (codes.GET_CONSUMER_LIST_BY_GROUP, {}, b"", [("Cluster:DefaultCluster", "Get")]),
    (codes.CHECK_CLIENT_CONFIG, {}, b"", []),
]  # fmt: skip


async def test_each_request_needs_exactly_its_permissions(
    guarded: Broker, as_user: Callers
) -> None:
    assert guarded.access is not None
    lists, shop = guarded.access.lists, as_user(SHOP)

    async def is_refused(number: int) -> bool:
        code, fields, body, _ = RIGHTS[number]
        answer = await shop.ask(code, fields, body)
        return "has no permission to access" in (answer.remark or "")

    wrong: list[tuple[int, str, object]] = []
    for number, (_, _, _, rights) in enumerate(RIGHTS):
        for missing in range(len(rights)):
            lists.forget("shop")
            allow(guarded, "Topic:other", "All")
            for at, (resource, action) in enumerate(rights):
                if at != missing:
                    allow(guarded, resource, action)
            if not await is_refused(number):
                wrong.append((number, "served without", rights[missing]))
        lists.forget("shop")
        allow(guarded, "Topic:other", "All")
        for resource, action in rights:
            allow(guarded, resource, action)
        if await is_refused(number):
            wrong.append((number, "refused with", rights))
    assert wrong == []


async def test_the_remark_names_the_user_the_action_the_source_and_the_reason(
    guarded: Broker, as_user: Callers
) -> None:
    shop = as_user(SHOP)
    answer = await shop.send("T")
    assert (answer.code, answer.remark) == (
        codes.NO_PERMISSION,
        "User:shop has no permission to access Topic:T from 127.0.0.1, no matched policies.",
    )
    allow(guarded, "Topic:T", "Pub", decision="Deny")
    assert (await shop.send("T")).remark == (
        "User:shop has no permission to access Topic:T from 127.0.0.1, the decision is deny."
    )


async def test_an_entry_may_restrict_the_source_address(guarded: Broker, as_user: Callers) -> None:
    shop = as_user(SHOP)
    allow(guarded, "Topic:T", "Pub", ips=["192.168.0.0/16"])
    assert (await shop.send("T")).code == codes.NO_PERMISSION
    allow(guarded, "Topic:T", "Pub", ips=["192.168.0.0/16", "127.0.0.1"])
    assert (await shop.send("T")).code == codes.SUCCESS


async def test_access_to_a_message_by_offset_is_checked_against_its_stored_topic(
    guarded: Broker, as_user: Callers
) -> None:
    admin, shop = as_user(ADMIN), as_user(SHOP)
    allow(guarded, "Topic:Own", "All")
    allow(guarded, "Group:G", "Sub")
    places = {}
    for topic in ("Own", "Secret", "%RETRY%G", "%RETRY%G_Own", "%RETRY%H"):
        places[topic] = guarded.store.log_end
        assert (await admin.send(topic)).code == codes.SUCCESS
    for topic, place in places.items():
        message = offset_message_id(guarded.store.host, place)
        may = topic not in ("Secret", "%RETRY%H")
        back = {"offset": str(place), "group": "G", "delayLevel": "1", "originTopic": "Own"}
        directly = {"consumerGroup": "G", "clientId": "c", "msgId": message, "topic": "Own"}
        for code, fields, allowed in (
            (codes.VIEW_MESSAGE_BY_ID, {"offset": str(place), "topic": "Own"}, topic == "Own"),
            (codes.VIEW_MESSAGE_BY_ID, {"offset": f"+{place}"}, topic == "Own"),
            (codes.CONSUMER_SEND_MSG_BACK, back, may),
            (codes.CONSUME_MESSAGE_DIRECTLY, directly, may),
        ):
            answer = await shop.ask(code, fields)
            is_refused = "has no permission to access" in (answer.remark or "")
            assert is_refused is not allowed, (topic, code)


async def test_a_body_that_cannot_be_parsed_is_refused(as_user: Callers) -> None:
    shop = as_user(SHOP)
    for code in (codes.HEART_BEAT, codes.LOCK_BATCH_MQ, codes.BATCH_ACK_MESSAGE):
        answer = await shop.ask(code, None, b"{no json")
        assert answer.code == codes.NO_PERMISSION
        assert (answer.remark or "").startswith("parse authorization context error: ")


async def test_a_permitted_long_poll_waits_for_messages(guarded: Broker, as_user: Callers) -> None:
    for right in (("Topic:T", "Sub", "Pub"), ("Group:cg", "Sub")):
        allow(guarded, *right)
    shop = as_user(SHOP)
    await shop.send("T", queue_id=0)
    reading = asyncio.create_task(shop.pull("T", 1, suspend_ms=20_000))
    await until(lambda: guarded.long_polls.count >= 1)
    await shop.send("T", b"second", queue_id=0)
    assert (await reading).code == codes.SUCCESS


# --- restarts ----------------------------------------------------------------------------------


async def test_the_broker_warns_at_start_if_there_is_no_user(
    start: Start, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    await start(config(authentication_enabled=True))
    assert "there is no user, so nobody can do anything" in caplog.text


async def test_a_first_user_over_the_limit_stops_the_start(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "USERS_MAX", 0)
    with pytest.raises(StoreError, match="user admin can't be made: there are 0 users, the limit"):
        await Broker(config(**ON)).start()


async def test_users_persist_and_a_restart_does_not_reset_the_first_user(
    config: Config, tmp_path: Path
) -> None:
    inner = '{"accessKey":"inner","secretKey":"inner-secret"}'
    wanted = config(**ON, inner_client_authentication_credentials=inner)
    broker = Broker(wanted)
    await broker.start()
    assert broker.access is not None
    assert [user.username for user in broker.access.users.all()] == ["admin", "inner"]
    assert all(user.is_super for user in broker.access.users.all())
    broker.access.users.update(UserInfo("admin", "changed"))
    await broker.stop()
    broker = Broker(wanted)
    await broker.start()
    assert broker.access is not None
    user = broker.access.users.get("admin")
    assert user is not None
    assert user.password == "changed"
    await broker.stop()


async def test_the_audit_log_has_changes_and_refusals(
    start: Start, config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "audit.jsonl"
    broker: Broker = await start(config(**ON, audit_log=str(path)))
    admin, nobody = Signing(broker, ADMIN), Signing(broker)
    try:
        await admin.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("Audited", 1, 1, 6))
        await admin.send("Audited", b"no line")
        assert (await nobody.send("Audited", b"refused")).code == codes.NO_PERMISSION
    finally:
        await admin.peers.close()
        await nobody.peers.close()
    created, refused = map(json.loads, path.read_text().splitlines())
    assert (created["user"], created["result"]) == ("admin", "allowed")
    assert created["fields"]["topic"] == "Audited"
    assert (refused["user"], refused["result"]) == ("", "refused")
    assert "Signature" not in created["fields"]
