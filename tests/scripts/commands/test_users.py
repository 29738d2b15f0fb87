"""`aerobee users` against a broker with access control."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aerobee.client.base.security import Security
from aerobee.client.blocking import Message, Producer
from aerobee.client.errors import BrokerError
from aerobee.testing.cluster import LocalCluster

from ..command import Inside


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    with LocalCluster(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user='{"username":"root","password":"root-secret"}',
    ) as cluster:
        yield cluster


@pytest.fixture
def where(
    guarded: LocalCluster,
    inside: Inside,  # which clears the environment first
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[str, str]:
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "root")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "root-secret")
    return ("-n", guarded.name_server)


def test_a_user_is_made_may_send_may_not_any_more_and_is_deleted(
    guarded: LocalCluster, where: tuple[str, str], inside: Inside
) -> None:
    assert inside("topics", "create", "orders", *where)[0] == 0
    out = inside.output("users", "create", "shop", *where, data="shop-secret\n")
    assert out == "created user shop, who may do nothing yet: see `users allow`\n"
    _, out, _ = inside("users", "allow", "shop", "Topic:orders", "Group:shop*", *where)
    assert out == "user shop may Pub, Sub on Topic:orders, Group:shop*\n"
    shop = Security("shop", "shop-secret")
    with Producer(guarded.name_server, security=shop, tries=1) as producer:
        producer.send(Message("orders", b"x"))
        rules = inside.objects("users", "show", "shop", *where)
        assert [(one["resource"], one["decision"], one["actions"]) for one in rules] == [
            ("Group:shop*", "Allow", "Pub,Sub"),
            ("Topic:orders", "Allow", "Pub,Sub"),
        ]
        _, out, _ = inside("users", "disallow", "shop", "Topic:orders", *where)
        assert out == "user shop has no rule about Topic:orders any more\n"
        with pytest.raises(BrokerError, match="has no permission to access Topic:orders"):
            producer.send(Message("orders", b"x"))
    users = {row["user"]: row for row in inside.objects("users", *where)}
    assert users["shop"] == {
        "user": "shop",
        "type": "Normal",
        "status": "enable",
        "brokers": "broker-a",
    }
    _, out, _ = inside("users", *where)
    assert "secret" not in out
    assert inside("users", "delete", "shop", *where)[1].startswith("deleted user shop")
    assert [row["user"] for row in inside.objects("users", *where)] == ["root"]


def test_rules_may_forbid_and_name_networks_and_a_super_user_is_said_to_be_one(
    where: tuple[str, str], inside: Inside
) -> None:
    out = inside.output("users", "create", "boss", "--super", *where, data="pw")
    assert out == "created user boss, who may do everything\n"
    words = ("--actions", "Pub", "--deny", "--source-ip", "10.0.0.0/8")
    _, out, error = inside("users", "allow", "boss", "Topic:t", *words, *where)
    assert (out, error) == ("user boss may not Pub on Topic:t from 10.0.0.0/8\n", "")
    _, out, _ = inside("users", "show", "boss", *where)
    assert out.splitlines()[1].split() == ["Topic:t", "Deny", "Pub", "10.0.0.0/8", "broker-a"]
    inside("users", "delete", "boss", *where)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create",), "which user? write: aerobee users create NAME"),
        (("create", "empty"), "the password of empty is empty; write it on standard input"),
        (("allow", "root"), "which resources? write: aerobee users allow root Topic:orders"),
        (("delete", "nobody"), "there is no user nobody; `aerobee users` lists those there are"),
        (("show", "root", "Topic:t"), "resources are for allow and disallow; write: aerobee"),
    ],
)
def test_what_is_missing_is_said(
    where: tuple[str, str], inside: Inside, words: tuple[str, ...], says: str
) -> None:
    assert inside.refused("users", *words, *where).startswith(f"aerobee users: {says}")
