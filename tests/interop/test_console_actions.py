"""The console on the real servers: each action, by itself and in a browser, and a broker that is
killed. tests/console has the same with our servers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aerobee.client import (
    Admin,
    Consumer,
    Message,
    Producer,
    Security,
)
from aerobee.client.errors import AerobeeError, NoRouteError
from aerobee.console.actions.action import State, Unfit
from aerobee.console.actions.definitions import export
from aerobee.console.actions.redrive import Phase, Run
from aerobee.harness.clusters import (
    BROKER_NAME,
    TEST_BROKER_FLAGS,
    Cluster,
    JavaCluster,
)
from aerobee.protocol.bodies.body import MessageQueue

from ..console.actions.runner import ActionRunner
from ..console.web.site import Site
from ..console.web.test_actions_browser import CHROMIUM, page, press
from ..console.web.test_browser import refreshed
from .console_journeys import Journey, is_routed
from .programs import SECONDS, Mqadmin, started
from .support import until

__all__ = ["page", "refreshed"]  # fixtures

ROOT = Security("root", "root-secret")
AUTH = "org.apache.rocketmq.auth"


def guarding(folder: Path) -> dict[str, str | int]:
    """The settings of a broker with access control, which soon gives a transaction up."""
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
        # A transaction is given up after one check.
        "transactionCheckMax": 1,
        "transactionCheckInterval": 500,
        "transactionTimeOut": 500,
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    }


@pytest.fixture(scope="module")
def cluster(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: its definitions are exported whole."""
    folder = tmp_path_factory.mktemp("acted-on")
    with started(JavaCluster(folder, flags=TEST_BROKER_FLAGS)) as found:
        yield found


@pytest.fixture
async def runner(cluster: Cluster, tmp_path: Path) -> AsyncIterator[ActionRunner]:
    async with ActionRunner(cluster.namesrv, tmp_path / "redrives", is_sampled=False) as runner:
        yield runner


async def at(runner: ActionRunner, group: str, topic: str) -> list[int]:
    table = (await runner.admin.consume_stats(group, topic)).offset_table
    return [one.consumer_offset for _, one in sorted(table.items())]


async def test_topics(runner: ActionRunner) -> None:
    form = {"topic": "made", "write": "2", "read": "3", "type": "FIFO"}
    await runner.do("topic-create", **form)
    (config,) = (await runner.admin.topic_config("made")).values()
    assert (config.write_queue_nums, config.read_queue_nums) == (2, 3)
    assert config.attributes["message.type"] == "FIFO"
    await runner.do("topic-update", **form | {"write": "4", "read": "4", "perm": "read"})
    (config,) = (await runner.admin.topic_config("made")).values()
    assert (config.write_queue_nums, config.perm) == (4, 4)
    assert config.attributes["message.type"] == "FIFO"
    await runner.do("topic-delete", topic="made")

    async def is_gone() -> bool:
        try:
            await runner.admin.route("made")
        except NoRouteError:
            return True
        return False

    await until(is_gone, "the topic has no route")
    assert (await runner.plan("topic-update", **form)).refusals == [
        "topic made is on none of these brokers; create it instead"
    ]


async def test_groups(runner: ActionRunner) -> None:
    await runner.do("group-create", group="MadeGroup", tries="3")
    await runner.do("group-update", group="MadeGroup", tries="5", enabled="")
    (config,) = (await runner.admin.group_config("MadeGroup")).values()
    assert (config.retry_max_times, config.consume_enable) == (5, False)
    await runner.do("group-delete", group="MadeGroup")
    for wrapper in (await runner.admin.groups()).values():
        assert "MadeGroup" not in wrapper.subscription_group_table


async def test_offsets_of_an_offline_group(runner: ActionRunner, cluster: Cluster) -> None:
    await runner.do("topic-create", topic="moved", write="2", read="2")
    await runner.do("group-create", group="Moved")
    await runner.do("group-create", group="Copied")
    async with Producer(cluster.namesrv) as producer:
        for queue in await producer.queues("moved"):
            for _ in range(10):
                await producer.send(Message("moved", b"x"), queue=queue)
    base = {"group": "Moved", "topic": "moved"}
    queue = MessageQueue("moved", next(iter(await runner.admin.masters())), 0)

    async def is_there() -> bool:
        return await runner.watched.reader.max_offset(queue) == 10

    await until(is_there, "the queue has 10 messages")
    for form, wanted in (
        ({"kind": "end"}, [10, 10]),
        ({"kind": "begin"}, [0, 0]),
        ({"kind": "forward", "steps": "3"}, [3, 3]),
        ({"kind": "offset", "queue": "1", "offset": "7"}, [3, 7]),
        ({"kind": "time", "time": "2020-01-01T00:00:00"}, [0, 0]),
        ({"kind": "forward", "steps": "4"}, [4, 4]),
    ):
        await runner.do("offsets-reset", **base, **form)
        assert await at(runner, "Moved", "moved") == wanted
    await runner.do("offsets-clone", source="Moved", target="Copied", topic="moved")
    assert await at(runner, "Copied", "moved") == [4, 4]


async def test_a_message_is_sent_and_consumed_again_by_one_member(
    runner: ActionRunner, cluster: Cluster
) -> None:
    await runner.do("topic-create", topic="sent", write="1", read="1")
    await runner.do("group-create", group="Members")
    (sent,) = await runner.do("message-send", topic="sent", body="hello", keys="k1", tag="t")
    assert sent.remark.startswith("SEND_OK")

    async def is_indexed() -> bool:
        return bool(await runner.admin.query("sent", "k1"))

    await until(is_indexed, "the key is found")
    (record,) = await runner.admin.query("sent", "k1")
    async with (
        Consumer(cluster.namesrv, group="Members", topics=["sent"], start="earliest") as one,
        asyncio.timeout(SECONDS),
    ):
        message = await one.receive()
        assert message is not None
        await message.ack()
        online = await runner.admin.consumer_connection("Members")
        assert online is not None
        form = {
            "group": "Members",
            "topic": "sent",
            "client": online.connection_set[0].client_id or "",
            "id": record.offset_id,
        }
        plan = await runner.plan("message-resend", **form)
        assert plan.refusals == []

        async def take() -> None:
            message = await one.receive()
            assert message is not None
            await message.ack()

        taking = asyncio.create_task(take())
        (outcome,) = await runner.confirm("message-resend", plan, **form)
        assert outcome.state is State.DONE, outcome
        await taking


async def test_a_setting_and_the_write_permission_of_a_broker(runner: ActionRunner) -> None:
    ((name, address),) = (await runner.admin.masters()).items()
    await runner.do("broker-set", setting="fileReservedTime", value="71")
    assert "fileReservedTime=71" in await runner.admin.broker_config(address)
    await runner.do("topic-create", topic="written")

    async def perm() -> int:
        return (await runner.admin.route("written")).queue_datas[0].perm

    await runner.do("broker-wipe", broker=name)
    assert await perm() == 4
    await runner.do("broker-write", broker=name)
    assert await perm() == 6


async def test_a_scheduled_message_is_cancelled(runner: ActionRunner, cluster: Cluster) -> None:
    await runner.do("topic-create", topic="later", write="1", read="1", type="DELAY")
    async with Producer(cluster.namesrv) as producer:
        receipt = await producer.send(Message("later", b"x", delay=3_600.0))
    (broker,) = await runner.admin.masters()
    form = {"topic": "later", "broker": broker, "id": receipt.msg_id}

    async def is_listed() -> bool:
        try:
            await runner.plan("message-cancel", **form)
        except Unfit as wrong:
            return "waits for a time" not in str(wrong)
        return True

    await until(is_listed, "the message waits for a time")
    (address,) = (await runner.admin.masters()).values()
    await runner.admin.update_broker_config(address, {"recallMessageEnable": False})
    plan = await runner.plan("message-cancel", **form)
    assert "recallMessageEnable is false" in plan.refusals[0]
    await runner.do("broker-set", setting="recallMessageEnable", value="true")
    await runner.do("message-cancel", **form)

    async def is_cancelled() -> bool:
        try:
            await runner.plan("message-cancel", **form)
        except Unfit as wrong:
            return "was cancelled already" in str(wrong)
        return False

    await until(is_cancelled, "the message was cancelled")


async def test_dead_letters_go_to_their_group_again_and_each_once(
    runner: ActionRunner, cluster: Cluster
) -> None:
    await runner.do("topic-create", topic="work", write="1", read="1")
    await runner.do("group-create", group="Workers")
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
            plan = await runner.plan("redrive", **form)
        except AerobeeError:
            return False
        return [one.after for one in plan.changes] == ["2 sent"]

    await until(are_dead, "two dead letters")
    for sent, skipped in ((2, 0), (1, 2)):
        run = await begun(runner, **form)
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


async def begun(runner: ActionRunner, **form: str) -> Run:
    """A run of what a rehearsal showed."""
    action = runner.actions["redrive"]
    values = action.read(runner.whole("redrive", form))
    plan = await action.plan(runner.watched, values, {})
    assert plan.refusals == []
    assert action.start is not None
    run: Run = action.start(runner.watched, values, plan)
    return run


async def test_definitions_are_exported_and_imported(runner: ActionRunner) -> None:
    await runner.do("topic-create", topic="defined", write="3", read="3")
    await runner.do("group-create", group="Defined", tries="2")
    text, _ = await export(runner.watched)
    found = json.loads(text)
    assert "defined" in {one["name"] for one in found["topics"]}
    same = await runner.plan("definitions-import", text=text)
    assert same.refusals == ["there is no difference: the cluster has all of this"], [
        (one.place, one.before, one.after, one.note) for one in same.changes
    ]
    for one in found["topics"]:
        if one["name"] == "defined":
            one["write_queues"] = one["read_queues"] = 5
    for one in found["groups"]:
        if one["name"] == "Defined":
            one["retry_max_times"] = 4
    await runner.do("definitions-import", text=json.dumps(found))
    (config,) = (await runner.admin.topic_config("defined")).values()
    assert config.write_queue_nums == 5
    (group,) = (await runner.admin.group_config("Defined")).values()
    assert group.retry_max_times == 4


async def test_figures_are_those_of_mqadmin_and_of_the_ledger(
    cluster: Cluster, mqadmin: Mqadmin
) -> None:
    address, (topic, group) = cluster.namesrv, ("figures", "Counted")
    read, behind = {0: 7, 1: 3}, {0: 2, 1: 1}
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, 2)
        await until(lambda: is_routed(admin, topic), topic)
        queues = {one.queue_id: one for one in await producer.queues(topic)}
        for number, count in read.items():
            for _ in range(count):
                await producer.send(Message(topic, b"x"), queue=queues[number])
        async with Consumer(address, group=group, topics=[topic], start="earliest") as consumer:
            for _ in range(sum(read.values())):
                message = await consumer.receive(SECONDS)
                assert message is not None
                await message.ack()
        for number, count in behind.items():
            for _ in range(count):
                await producer.send(Message(topic, b"x"), queue=queues[number])
    ends = {number: read[number] + behind[number] for number in read}

    def asked(command: str, *words: str) -> list[list[str]]:
        text = mqadmin(command, "-n", address, *words)
        return [line.split() for line in text.splitlines() if BROKER_NAME in line]

    await asyncio.to_thread(mqadmin.wait_for_queued, cluster, topic, sum(ends.values()))
    async with Site({"main": address}, is_sampled=False) as site:

        async def is_told() -> bool:
            topics = (await site.data("topics", q=topic))["list"]["rows"]
            groups = (await site.data("groups", q=group))["list"]["rows"]
            return [one["messages"] for one in topics] == [sum(ends.values())] and [
                (one["lag"], one["members"]) for one in groups
            ] == [(sum(behind.values()), 0)]

        await until(is_told, "the lists have the figures of the ledger", pause=0.2)
        page = await site.data("topic", name=topic)
        assert page["messages"] == sum(ends.values())
        told = sorted(
            [one["broker"], str(one["queue"]), str(one["min"]), str(one["max"]), *local(one)]
            for one in page["queues"]
        )
        assert told == sorted(await asyncio.to_thread(asked, "topicStatus", "-t", topic))
        assert {one["queue"]: one["max"] for one in page["queues"]} == ends
        page = await site.data("group", name=group)
        told = sorted(
            [one["topic"], one["broker"], *(str(one[key]) for key in QUEUE_FIGURES)]
            for one in page["queues"]
        )
        # Behind these columns mqadmin has messages in flight, and a time.
        rows = await asyncio.to_thread(asked, "consumerProgress", "-g", group)
        assert told == sorted(row[: len(told[0])] for row in rows)
        own = [one for one in page["queues"] if one["topic"] == topic]
        assert {one["queue"]: one["lag"] for one in own} == behind
        assert {one["queue"]: one["consumed"] for one in own} == read
        words = re.sub("<[^>]+>", " ", await site.html("group", name=group)).split()
        for row in told:
            assert " ".join(row) in " ".join(words)
        (broker,) = (await site.data("brokers"))["brokers"]
        (row,) = await asyncio.to_thread(asked, "clusterList")
        report = (await site.data("broker", name=BROKER_NAME))["runtime"]
        about = {one["name"]: one["value"] for one in report}
        shown = [broker["cluster"], broker["name"], str(broker["id"]), broker["address"]]
        assert [*shown, about["brokerVersionDesc"]] == row[:5]


async def test_the_settings_that_are_changed_are_those_that_the_broker_was_given(
    both: tuple[Cluster, Cluster],
) -> None:
    for cluster in both:
        async with Site({"main": cluster.namesrv}) as site:
            found = (await site.data("broker", name=BROKER_NAME))["settings"]
        known = {one["name"]: one for one in found if one["differs"] is not None}
        given = {key: str(value) for key, value in cluster.properties.items() if key in known}
        assert {name: one["value"] for name, one in known.items() if one["differs"]} == {
            key: value for key, value in given.items() if value != known[key]["default"]
        }
        assert len(known) > 300


QUEUE_FIGURES = ("queue", "end", "consumed", "lag")


def local(queue: dict[str, Any]) -> list[str]:
    """When the last message of a queue was stored, as mqadmin writes it: a day and a time."""
    ms = queue["last_ms"]
    found = datetime.fromtimestamp(ms // 1000)
    return [found.strftime("%Y-%m-%d"), f"{found:%H:%M:%S},{ms % 1000:03}"]


@pytest.fixture(scope="module")
def guarded(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with access control."""
    folder = tmp_path_factory.mktemp("guarded")
    with started(JavaCluster(folder, guarding(folder), flags=TEST_BROKER_FLAGS)) as found:
        yield found


async def test_users_and_rules(guarded: Cluster, tmp_path: Path) -> None:
    async with ActionRunner(guarded.namesrv, tmp_path / "redrives", security=ROOT) as runner:
        (name,) = await runner.admin.masters()
        await runner.do("user-create", user="ann", password="hush-hush")
        await runner.do("user-update", user="ann", status="disabled")
        (user,) = (await runner.admin.users("ann"))[name]
        assert (user.user_type, user.user_status) == ("Normal", "disable")
        form = {"user": "ann", "resource": "Topic:orders", "actions": "Pub, Get"}
        await runner.do("rule-create", **form)
        await runner.do("rule-update", **form | {"decision": "Deny", "sources": "10.0.0.0/8"})
        plan = await runner.plan("rule-delete", user="ann", resource="Topic:orders")
        assert [one.before for one in plan.changes] == ["Deny Get, Pub from 10.0.0.0/8"]
        await runner.do("rule-delete", user="ann", resource="Topic:orders")
        await runner.do("user-delete", user="ann")
        assert (await runner.admin.users("ann"))[name] == []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_each_action_by_a_user_of_the_cluster_in_a_browser(
    guarded: Cluster, page: Any
) -> None:
    address = guarded.namesrv
    servers: dict[str, str | None] = {"main": address}
    async with (
        Admin(address, security=ROOT) as admin,
        Site(servers, security=ROOT, has_cluster_users=True, is_sampled=False) as site,
    ):
        await log_in(page, site, "root", "root-secret")
        journey = Journey(page, site, address, ROOT)
        await journey.every_page_and_a_live_view()
        await journey.from_sent_to_dead_to_redriven_to_processed()
        await journey.three_dead_letters_are_ticked()
        await journey.a_scheduled_message_is_cancelled()
        await journey.an_offline_group_is_reset()
        await journey.offsets_go_forward_and_to_another_group()
        await journey.a_topic_and_a_group_from_creation_to_deletion()
        await journey.a_user_and_a_rule_from_creation_to_deletion()
        await journey.a_transaction_that_was_given_up_is_checked_again()
        await journey.a_broker_is_changed()
        assert journey.done == site.console.site.registry.actions.keys()
        # Another user sees what its rules allow, and the brokers decide about what it does.
        await admin.create_user("bob", "bob-secret")
        await admin.allow("bob", ["Topic:Seen"], ["Sub", "Get", "Pub"])
        await page.locator("button.who").click()
        await press(page, "Log out")
        await log_in(page, site, "bob", "bob-secret")
        await journey.preview("act/message-send?topic=Seen", body="x")
        await journey.do()
        await journey.is_done()
        assert (await site.log_in_as(site.session, "bob", "bob-secret"))[0] == 303
        for path in ("topic?name=Again", "messages?topic=Again&key=k", "access"):
            assert (await site.get(path))[0] == 403, path
        site.clock += 31 * 60
        await page.goto(f"{site.console.url}overview")
        assert urlsplit(page.url).path == "/login"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_a_broker_with_access_control_is_killed_under_an_open_page(
    guarded: Cluster, page: Any, refreshed: None
) -> None:
    servers: dict[str, str | None] = {"main": guarded.namesrv}
    async with Site(servers, security=ROOT, has_cluster_users=True, is_sampled=False) as site:
        await log_in(page, site, "root", "root-secret")
        journey = Journey(page, site, guarded.namesrv, ROOT)
        await journey.a_broker_is_killed_under_an_open_page(guarded)


async def log_in(page: Any, site: Site, name: str, secret: str) -> None:
    """By the form of the login."""
    await page.goto(f"{site.console.url}login")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(secret)
    await press(page, "Log in")
    assert await page.locator(".visitor").count() == 1
