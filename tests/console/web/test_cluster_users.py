"""Logins as users of a cluster with access control, and what their rules let them see."""

from collections.abc import AsyncIterator, Iterator

import pytest
from aerobee.client import Admin, Message, Producer
from aerobee.client.base.security import Security
from aerobee.testing import LocalCluster

from .site import Site

ROOT, SHOP, BOSS = "root-secret", "shop-secret", "boss-secret"
SECURITY = Security("root", ROOT)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    with LocalCluster(
        brokers=2,
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=f'{{"username":"root","password":"{ROOT}"}}',
        inner_client_authentication_credentials=f'{{"accessKey":"root","secretKey":"{ROOT}"}}',
    ) as cluster:
        yield cluster


@pytest.fixture
async def site(guarded: LocalCluster) -> AsyncIterator[Site]:
    address = guarded.name_server
    async with Admin(address, security=SECURITY) as admin:
        for name in ("orders", "hidden"):
            await admin.create_topic(name, queues=1)
        if "shop" not in {one.username for one in (await admin.users())["broker-a"]}:
            await admin.create_user("shop", SHOP)
            await admin.create_user("boss", BOSS, is_super=True)
            await admin.allow("shop", ["Topic:orders", "Group:TOOLS_CONSUMER"], ["Sub", "Get"])
    async with Producer(address, group="till", security=SECURITY) as producer:
        await producer.send(Message("orders", b"x", keys=["k1"]))
        await producer.send(Message("hidden", b"x", keys=["k1"]))
    async with Site({"main": address}, security=SECURITY, has_cluster_users=True) as site:
        yield site


async def test_a_user_sees_what_its_rules_allow(site: Site) -> None:
    assert (await site.log_in_as(site.session, "shop", SHOP))[0] == 303
    names = [row["name"] for row in (await site.data("topics"))["list"]["rows"]]
    assert names == ["orders"]
    found = await site.data("messages", topic="orders", key="k1")
    assert found["found"]
    assert (await site.get("topic", name="hidden"))[0] == 403
    assert (await site.get("messages", topic="hidden", key="k1"))[0] == 403
    # What only the broker knows is refused by the broker, as the request is the user's.
    status, text, _ = await site.get("api/broker", name="broker-a")
    assert status == 200
    assert "has no permission" in text
    assert "root" not in text
    assert (await site.get("access"))[0] == 403


async def test_a_super_user_sees_all(site: Site) -> None:
    assert (await site.log_in_as(site.session, "boss", BOSS))[0] == 303
    names = {row["name"] for row in (await site.data("topics"))["list"]["rows"]}
    assert {"orders", "hidden"} <= names
    for path in ("access", "findings", "definitions"):  # about all of the cluster
        assert (await site.get(path))[0] == 200, path
    text = await site.html("overview")
    assert "boss, may administer" in text
    assert BOSS not in text


async def test_a_wrong_secret_and_an_unknown_user_are_told_the_same(site: Site) -> None:
    texts = set()
    for name, secret in (("shop", "x"), ("nobody", SHOP), ("shop", ""), ("", SHOP), ("shop", ROOT)):
        status, text, headers = await site.log_in_as(site.session, name, secret)
        assert (status, "Set-Cookie" in headers) == (401, False)
        texts.add(text)
    assert len(texts) == 1


async def test_a_user_that_is_deleted_or_changed_has_its_session_no_longer(
    site: Site, guarded: LocalCluster
) -> None:
    async with Admin(guarded.name_server, security=SECURITY) as admin:
        await admin.create_user("temp", SHOP)
        assert (await site.log_in_as(site.session, "temp", SHOP))[0] == 303
        assert (await site.data("topics"))["list"]["rows"] == []
        await admin.allow("temp", ["Topic:orders"], ["Get"])
        assert (await site.data("topics"))["list"]["rows"] == []
        site.clock += 61
        assert [row["name"] for row in (await site.data("topics"))["list"]["rows"]] == ["orders"]
        await admin.delete_user("temp")
        site.clock += 61
        assert (await site.get("overview"))[0] == 303
    assert len(site.access.sessions) == 0


async def test_a_cluster_that_checks_nobody_refuses_such_logins(
    aerobee_cluster: LocalCluster,
) -> None:
    servers: dict[str, str | None] = {"main": aerobee_cluster.name_server}
    async with Site(servers, has_cluster_users=True) as site:
        status, text, headers = await site.log_in_as(site.session, "root", ROOT)
        assert (status, "Set-Cookie" in headers) == (403, False)
        assert "takes a wrong secret, so it checks nobody" in text
        assert "authenticationEnabled=true" in text


async def test_a_login_fails_while_no_broker_answers() -> None:
    async with Site({"main": "127.0.0.1:1"}, has_cluster_users=True) as site:
        status, text, _ = await site.log_in_as(site.session, "root", ROOT)
        assert status == 502
        assert ROOT not in text
