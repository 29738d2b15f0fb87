"""Access control: signatures of users that the broker knows, and what their lists allow."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.client import Admin, Security
from aerobee.protocol.aio.audit import AuditLog
from aerobee.proxy.access.access import credential_of
from aerobee.proxy.access.needs import _NEEDS
from aerobee.proxy.calls import table
from aerobee.proxy.messages.status import Code, StatusError
from aerobee.testing import LocalCluster

from ..support import Client, Setup, code_of, resource, setup

ROOT, WORD = "root", "password-of-root"
TIME = "20260101T000000Z"


def sign(client: Client, user: str, password: str, *, upper: bool = False) -> None:
    """Sign the next calls of a client."""
    digest = hmac.digest(password.encode(), TIME.encode(), hashlib.sha1).hex()
    client.metadata["x-mq-date-time"] = TIME
    client.metadata["authorization"] = (
        f"MQv2-HMAC-SHA1 Credential={user}//Rocketmq, SignedHeaders=x-mq-date-time, "
        f"Signature={digest.upper() if upper else digest}"
    )


@pytest.fixture
async def guarded() -> AsyncIterator[Setup]:
    """A cluster with access control, a proxy that has a user of its own there, and user "shop"."""
    credentials = f'{{"accessKey":"{ROOT}","secretKey":"{WORD}"}}'
    with LocalCluster(
        authenticationEnabled=True,
        authorizationEnabled=True,
        initAuthenticationUser=f'{{"username":"{ROOT}","password":"{WORD}"}}',
        innerClientAuthenticationCredentials=credentials,
    ) as cluster:
        async with Admin(cluster.name_server, security=Security(ROOT, WORD)) as admin:
            await admin.create_user("shop", "password-of-shop")
            await admin.allow("shop", "Topic:Orders", ["Pub", "Sub"])
            await admin.allow("shop", "Group:readers", ["Sub"])
            for topic in ("Orders", "Secrets"):
                await admin.create_topic(topic, 1)
        async with setup(
            cluster,
            authentication_enabled=True,
            authorization_enabled=True,
            inner_client_authentication_credentials=credentials,
        ) as proxied:
            yield proxied


async def test_a_signed_call_of_a_known_user_is_served(guarded: Setup) -> None:
    client = guarded.client()
    for upper in (False, True):
        sign(client, "shop", "password-of-shop", upper=upper)
        assert code_of(await client.call("QueryRoute", topic=resource("Orders"))) == "OK"
    assert code_of(await client.send("Orders", "x")) == "OK"
    status, _ = await client.receive("Orders", "readers", long_polling_timeout={"seconds": 0})
    assert status.code in (Code.OK, Code.MESSAGE_NOT_FOUND)


async def test_what_a_list_does_not_allow_is_refused(guarded: Setup) -> None:
    client = guarded.client()
    sign(client, "shop", "password-of-shop")
    answer = await client.send("Secrets", "x")
    assert code_of(answer) == "UNAUTHORIZED"
    assert "User:shop has no permission to access Topic:Secrets" in answer.status.message
    status, _ = await client.receive("Orders", "others")
    assert (status.code, "Group:others" in status.message) == (Code.UNAUTHORIZED, True)
    sign(client, ROOT, WORD)
    assert code_of(await client.send("Secrets", "x")) == "OK"


async def test_a_call_that_proves_nothing_is_refused(guarded: Setup) -> None:
    client = guarded.client()

    async def said() -> str:
        answer = await client.call("QueryRoute", topic=resource("Orders"))
        assert code_of(answer) == "UNAUTHORIZED"
        text: str = answer.status.message
        return text

    assert await said() == "datetime is null."
    client.metadata["x-mq-date-time"] = TIME
    assert await said() == "authentication header is incorrect."
    sign(client, "shop", "wrong")
    assert "check signature failed" in await said()
    sign(client, "nobody", "x")
    assert await said() == "User:nobody is not found."
    assert guarded.proxy.service.access.refused == 4


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("MQv2", "authentication header is incorrect."),
        ("MQv2 odd", "authentication keyValues length is incorrect."),
        ("MQv2 Credential=/x, Signature=1", "username cannot be null."),
    ],
)
def test_an_odd_header_is_refused(header: str, said: str) -> None:
    with pytest.raises(StatusError, match=said):
        credential_of(header)


async def test_every_rpc_has_its_needs(proxied: Setup) -> None:
    paths = table.methods(proxied.proxy.service)
    assert {path.rpartition(b"/")[2].decode() for path in paths} == set(_NEEDS)


async def test_a_refused_call_is_in_the_audit_log(guarded: Setup, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = AuditLog(file, "proxy")
    guarded.proxy.service.access.audit = audit
    client = guarded.client()
    sign(client, "shop", "a wrong password")
    assert code_of(await client.call("QueryRoute", topic=resource("Orders"))) == "UNAUTHORIZED"
    sign(client, "shop", "password-of-shop")
    assert code_of(await client.call("QueryRoute", topic=resource("Orders"))) == "OK"
    await audit.close()
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["user"], line["request"], line["result"]) == ("shop", "QueryRoute", "refused")
    assert line["from"].startswith("127.0.0.1:")
    assert "check signature failed" in line["remark"]
