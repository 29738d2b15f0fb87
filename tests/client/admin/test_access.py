"""Users and access lists through `Admin`, against a broker with access control."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.client import Admin, Consumer, Message, Producer, Security
from aerobee.client.errors import BrokerError, ClientError
from aerobee.namesrv.server import NameServer
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

from ..conftest import broker_config

ROOT = Security("root", "root-secret")
SHOP = Security("shop", "shop-secret")


@pytest.fixture
async def guarded(namesrv: NameServer, tmp_path: Path) -> AsyncIterator[str]:
    """The name server of a broker that serves no client without a user's signature."""
    config = broker_config(
        namesrv,
        tmp_path,
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user='{"username":"root","password":"root-secret"}',
    )
    broker = Broker(config)
    await broker.start()
    yield f"127.0.0.1:{namesrv.port}"
    await broker.stop()


async def test_a_user_is_made_is_given_a_topic_and_works_with_it(guarded: str) -> None:
    async with Admin(guarded, security=ROOT) as admin:
        await admin.create_topic("orders", 1)
        await admin.create_topic("secret", 1)
        await admin.create_user("shop", "shop-secret")
        await admin.allow("shop", ["Topic:orders", "Group:shop*"], ["Pub", "Sub"])
    consumer = Consumer(guarded, group="shop-1", topics=["orders"], start="earliest", security=SHOP)
    async with Producer(guarded, security=SHOP, tries=1) as producer, consumer:
        await producer.send(Message("orders", b"hello"))
        message = await anext(aiter(consumer))
        assert message.body == b"hello"
        await message.ack()
        with pytest.raises(BrokerError, match="has no permission to access Topic:secret"):
            await producer.send(Message("secret", b"hello"))


async def test_users_and_lists_are_shown_changed_and_deleted(guarded: str) -> None:
    async with Admin(guarded, security=ROOT) as admin:
        await admin.create_user("a", "secret", is_super=True)
        await admin.update_user("a", password="new", is_super=False, enabled=False)
        assert await admin.users("a") == {"broker-a": [UserInfo("a", "new", "Normal", "disable")]}
        assert await admin.users("nobody") == {"broker-a": []}
        await admin.update_user("a", enabled=True)
        await admin.allow("a", ["*"], ["All"], source_ips=["10.0.0.0/8"], deny=True)
        await admin.allow("a", "Topic:t", "Pub")
        entries = [
            PolicyEntryInfo("*", ["All"], ["10.0.0.0/8"], "Deny"),
            PolicyEntryInfo("Topic:t", ["Pub"], None, "Allow"),
        ]
        wanted = [AclInfo("User:a", [PolicyInfo("Custom", entries)])]
        assert await admin.permissions() == {"broker-a": wanted}
        await admin.disallow("a", "*")
        wanted = [AclInfo("User:a", [PolicyInfo("Custom", entries[1:])])]
        assert await admin.permissions("a", "Topic") == {"broker-a": wanted}
        await admin.disallow("a")
        assert await admin.permissions() == {"broker-a": []}
        await admin.delete_user("a")
        names = [user.username for user in (await admin.users())["broker-a"]]
        assert names == ["root"]


async def test_a_permission_that_is_taken_back_counts_no_more(guarded: str) -> None:
    async with Admin(guarded, security=ROOT) as admin:
        for topic in ("orders", "bills", "other"):
            await admin.create_topic(topic, 1)
        await admin.create_user("shop", "shop-secret")
        await admin.allow("shop", ["Topic:orders", "Topic:bills", "Topic:other"], "Pub")
        async with Producer(guarded, security=SHOP, tries=1) as producer:
            await producer.send(Message("orders", b"x"))
            await admin.disallow("shop", ["Topic:orders", "Topic:bills"])
            for topic in ("orders", "bills"):
                with pytest.raises(BrokerError, match="has no permission to access Topic:"):
                    await producer.send(Message(topic, b"x"))
            await producer.send(Message("other", b"x"))
        [found] = (await admin.permissions("shop"))["broker-a"]
        entries = [entry for policy in found.policies or [] for entry in policy.entries or []]
        assert [entry.resource for entry in entries] == ["Topic:other"]


async def test_what_is_not_allowed_is_told(guarded: str) -> None:
    async with Admin(guarded, security=ROOT) as admin:
        await admin.create_user("shop", "shop-secret")
        with pytest.raises(BrokerError, match="The user is existed"):
            await admin.create_user("shop", "other")
        with pytest.raises(BrokerError, match="the resource 'Topic:' is none"):
            await admin.allow("shop", ["Topic:"], ["Pub"])
    async with Admin(guarded, security=SHOP) as admin:
        with pytest.raises(BrokerError, match="no permission to access Cluster:DefaultCluster"):
            await admin.users()


async def test_a_broker_without_access_control_says_so(address: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(BrokerError, match="access control is not configured"):
            await admin.users()


def test_a_command_signs_as_its_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AEROBEE_ACCESS_KEY", "AEROBEE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert Security.from_environment() == Security()
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "shop")
    with pytest.raises(ClientError, match="only one of AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY"):
        Security.from_environment()
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "hush")
    assert Security.from_environment() == Security("shop", "hush")
    assert "hush" not in repr(Security.from_environment())
