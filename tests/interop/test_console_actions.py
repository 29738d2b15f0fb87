"""The console's actions on the real servers and on ours, with the same outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import Consumer, Message, Producer, Security
from aerobee.client.errors import AerobeeError, NoRouteError
from aerobee.console.actions.action import State, Unfit
from aerobee.console.actions.definitions import export
from aerobee.console.actions.redrive import Phase, Run
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.scripts.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from ..console.actions.desk import Desk
from .programs import SECONDS

ROOT = Security("root", "root-secret")
AUTH = "org.apache.rocketmq.auth"


def guarding(folder: Path) -> dict[str, str | int]:
    """The settings of a broker with access control."""
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": (
            f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": (
            f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
        ),
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    }


@pytest.fixture(scope="module", params=["java_cluster", "aerobee_cluster"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The real one, then ours."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def desk(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Desk]:
    async with Desk(cluster.namesrv, tmp_path / "redrives") as desk:
        yield desk


async def soon(holds: Callable[[], Awaitable[bool]]) -> None:
    """The real broker fills its index, and delivers, a moment later."""
    for _ in range(10 * round(SECONDS)):
        if await holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not so within {SECONDS} s")


async def at(desk: Desk, group: str, topic: str) -> list[int]:
    table = (await desk.admin.consume_stats(group, topic)).offset_table
    return [one.consumer_offset for _, one in sorted(table.items())]


async def test_topics(desk: Desk) -> None:
    form = {"topic": "made", "write": "2", "read": "3", "type": "FIFO"}
    await desk.do("topic-create", **form)
    (config,) = (await desk.admin.topic_config("made")).values()
    assert (config.write_queue_nums, config.read_queue_nums) == (2, 3)
    assert config.attributes["message.type"] == "FIFO"
    await desk.do("topic-update", **form | {"write": "4", "read": "4", "perm": "read"})
    (config,) = (await desk.admin.topic_config("made")).values()
    assert (config.write_queue_nums, config.perm) == (4, 4)
    assert config.attributes["message.type"] == "FIFO"
    await desk.do("topic-delete", topic="made")

    async def is_gone() -> bool:
        try:
            await desk.admin.route("made")
        except NoRouteError:
            return True
        return False

    await soon(is_gone)
    assert (await desk.plan("topic-update", **form)).refusals == [
        "topic made is on none of these brokers; create it instead"
    ]


async def test_groups(desk: Desk) -> None:
    await desk.do("group-create", group="MadeGroup", tries="3")
    await desk.do("group-update", group="MadeGroup", tries="5", enabled="")
    (config,) = (await desk.admin.group_config("MadeGroup")).values()
    assert (config.retry_max_times, config.consume_enable) == (5, False)
    await desk.do("group-delete", group="MadeGroup")
    for wrapper in (await desk.admin.groups()).values():
        assert "MadeGroup" not in wrapper.subscription_group_table


async def test_offsets_of_an_offline_group(desk: Desk, cluster: Cluster) -> None:
    await desk.do("topic-create", topic="moved", write="2", read="2")
    await desk.do("group-create", group="Moved")
    await desk.do("group-create", group="Copied")
    async with Producer(cluster.namesrv) as producer:
        for queue in await producer.queues("moved"):
            for _ in range(10):
                await producer.send(Message("moved", b"x"), queue=queue)
    base = {"group": "Moved", "topic": "moved"}
    queue = MessageQueue("moved", next(iter(await desk.admin.masters())), 0)

    async def is_there() -> bool:
        return await desk.watched.reader.max_offset(queue) == 10

    await soon(is_there)
    for form, wanted in (
        ({"kind": "end"}, [10, 10]),
        ({"kind": "begin"}, [0, 0]),
        ({"kind": "forward", "steps": "3"}, [3, 3]),
        ({"kind": "offset", "queue": "1", "offset": "7"}, [3, 7]),
        ({"kind": "time", "time": "2020-01-01T00:00:00"}, [0, 0]),
        ({"kind": "forward", "steps": "4"}, [4, 4]),
    ):
        await desk.do("offsets-reset", **base, **form)
        assert await at(desk, "Moved", "moved") == wanted
    await desk.do("offsets-clone", source="Moved", target="Copied", topic="moved")
    assert await at(desk, "Copied", "moved") == [4, 4]


async def test_a_message_is_sent_and_consumed_again_by_one_member(
    desk: Desk, cluster: Cluster
) -> None:
    await desk.do("topic-create", topic="sent", write="1", read="1")
    await desk.do("group-create", group="Members")
    (sent,) = await desk.do("message-send", topic="sent", body="hello", keys="k1", tag="t")
    assert sent.remark.startswith("SEND_OK")

    async def is_indexed() -> bool:
        return bool(await desk.admin.query("sent", "k1"))

    await soon(is_indexed)
    (record,) = await desk.admin.query("sent", "k1")
    async with (
        Consumer(cluster.namesrv, group="Members", topics=["sent"], start="earliest") as one,
        asyncio.timeout(SECONDS),
    ):
        message = await one.receive()
        assert message is not None
        await message.ack()
        online = await desk.admin.consumer_connection("Members")
        assert online is not None
        form = {
            "group": "Members",
            "topic": "sent",
            "client": online.connection_set[0].client_id or "",
            "id": record.offset_id,
        }
        plan = await desk.plan("message-resend", **form)
        assert plan.refusals == []

        async def take() -> None:
            message = await one.receive()
            assert message is not None
            await message.ack()

        taking = asyncio.create_task(take())
        (outcome,) = await desk.confirm("message-resend", plan, **form)
        assert outcome.state is State.DONE, outcome
        await taking


async def test_a_setting_and_the_write_permission_of_a_broker(desk: Desk) -> None:
    ((name, address),) = (await desk.admin.masters()).items()
    await desk.do("broker-set", setting="fileReservedTime", value="71")
    assert "fileReservedTime=71" in await desk.admin.broker_config(address)
    await desk.do("topic-create", topic="written")

    async def perm() -> int:
        return (await desk.admin.route("written")).queue_datas[0].perm

    await desk.do("broker-wipe", broker=name)
    assert await perm() == 4
    await desk.do("broker-write", broker=name)
    assert await perm() == 6


async def test_a_scheduled_message_is_cancelled(desk: Desk, cluster: Cluster) -> None:
    await desk.do("topic-create", topic="later", write="1", read="1", type="DELAY")
    async with Producer(cluster.namesrv) as producer:
        receipt = await producer.send(Message("later", b"x", delay=3_600.0))
    (broker,) = await desk.admin.masters()
    form = {"topic": "later", "broker": broker, "id": receipt.msg_id}

    async def is_listed() -> bool:
        try:
            await desk.plan("message-cancel", **form)
        except Unfit as wrong:
            return "waits for a time" not in str(wrong)
        return True

    await soon(is_listed)
    (address,) = (await desk.admin.masters()).values()
    await desk.admin.update_broker_config(address, {"recallMessageEnable": False})
    plan = await desk.plan("message-cancel", **form)
    assert "recallMessageEnable is false" in plan.refusals[0]
    await desk.do("broker-set", setting="recallMessageEnable", value="true")
    await desk.do("message-cancel", **form)

    async def is_cancelled() -> bool:
        try:
            await desk.plan("message-cancel", **form)
        except Unfit as wrong:
            return "was cancelled already" in str(wrong)
        return False

    await soon(is_cancelled)


async def test_dead_letters_go_to_their_group_again_and_each_once(
    desk: Desk, cluster: Cluster
) -> None:
    await desk.do("topic-create", topic="work", write="1", read="1")
    await desk.do("group-create", group="Workers")
    async with Producer(cluster.namesrv) as producer:
        for n in range(3):
            await producer.send(Message("work", b'{"n": %d}' % n))
    options: dict[str, Any] = {"group": "Workers", "topics": ["work"], "start": "earliest"}
    async with Consumer(cluster.namesrv, **options) as consumer, asyncio.timeout(SECONDS):
        for _ in range(3):
            message = await consumer.receive()
            assert message is not None
            await message.nack(delay_level=-1)
    form = {"group": "Workers", "rate": "1000", "where": "body.n > 0"}

    async def are_dead() -> bool:
        try:
            plan = await desk.plan("redrive", **form)
        except AerobeeError:
            return False
        return [one.after for one in plan.changes] == ["2 sent"]

    await soon(are_dead)
    for sent, skipped in ((2, 0), (1, 2)):
        run = await started(desk, **form)
        await run.finished.wait()
        assert (run.phase, run.why) == (Phase.ENDED, None)
        assert (run.counts.sent, run.counts.skipped) == (sent, skipped)
        form = form | {"where": ""}
    async with Consumer(cluster.namesrv, **options) as consumer, asyncio.timeout(SECONDS):
        bodies = set()
        for _ in range(3):
            message = await consumer.receive()
            assert message is not None
            assert message.topic == "work"
            bodies.add(message.body)
            await message.ack()
    assert bodies == {b'{"n": 0}', b'{"n": 1}', b'{"n": 2}'}


async def started(desk: Desk, **form: str) -> Run:
    """A run of what a rehearsal showed."""
    action = desk.actions["redrive"]
    values = action.read(desk.whole("redrive", form))
    plan = await action.plan(desk.watched, values, {})
    assert plan.refusals == []
    assert action.start is not None
    run: Run = action.start(desk.watched, values, plan)
    return run


async def test_definitions_are_exported_and_imported(desk: Desk) -> None:
    await desk.do("topic-create", topic="defined", write="3", read="3")
    await desk.do("group-create", group="Defined", tries="2")
    text, _ = await export(desk.watched)
    found = json.loads(text)
    assert "defined" in {one["name"] for one in found["topics"]}
    same = await desk.plan("definitions-import", text=text)
    assert same.refusals == ["there is no difference: the cluster has all of this"], [
        (one.place, one.before, one.after, one.note) for one in same.changes
    ]
    for one in found["topics"]:
        if one["name"] == "defined":
            one["write_queues"] = one["read_queues"] = 5
    for one in found["groups"]:
        if one["name"] == "Defined":
            one["retry_max_times"] = 4
    await desk.do("definitions-import", text=json.dumps(found))
    (config,) = (await desk.admin.topic_config("defined")).values()
    assert config.write_queue_nums == 5
    (group,) = (await desk.admin.group_config("Defined")).values()
    assert group.retry_max_times == 4


@pytest.fixture(scope="module", params=["java", "aerobee"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster with access control."""
    folder = tmp_path_factory.mktemp("guarded")
    found: Cluster
    if request.param == "java":
        found = JavaCluster(folder, guarding(folder), flags=TEST_BROKER_FLAGS)
    else:
        found = AerobeeCluster(folder, SMALL_FILES | guarding(folder))
    try:
        found.start()
        yield found
    finally:
        found.stop()


async def test_users_and_rules(guarded: Cluster, tmp_path: Path) -> None:
    async with Desk(guarded.namesrv, tmp_path / "redrives", security=ROOT) as desk:
        (name,) = await desk.admin.masters()
        await desk.do("user-create", user="ann", password="hush-hush")
        await desk.do("user-update", user="ann", status="disabled")
        (user,) = (await desk.admin.users("ann"))[name]
        assert (user.user_type, user.user_status) == ("Normal", "disable")
        form = {"user": "ann", "resource": "Topic:orders", "actions": "Pub, Get"}
        await desk.do("rule-create", **form)
        await desk.do("rule-update", **form | {"decision": "Deny", "sources": "10.0.0.0/8"})
        plan = await desk.plan("rule-delete", user="ann", resource="Topic:orders")
        assert [one.before for one in plan.changes] == ["Deny Get, Pub from 10.0.0.0/8"]
        await desk.do("rule-delete", user="ann", resource="Topic:orders")
        await desk.do("user-delete", user="ann")
        assert (await desk.admin.users("ann"))[name] == []
