"""Requests about users and access lists (3001 to 3010), with RocketMQ's codes and texts."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.security.signature import signed
from aerobee.store.base.errors import StoreError

from ..conftest import Caller, Config, Start

ON: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"admin","password":"admin-secret"}',
}
SUPER_CREATE = "The super user can only be create by super user"
SUPER_UPDATE = "The super user can only be update by super user"


class Admin(Caller):
    """A caller that signs its requests and encodes its bodies as JSON."""

    def __init__(self, broker: Broker, name: str, password: str) -> None:
        super().__init__(broker)
        self.peers = Peers(sign=lambda fields, body: signed(fields, body, name, password))

    async def say(self, code: int, body: object = None, /, **fields: str) -> Command:
        text = b"" if body is None else json.dumps(body).encode()
        return await self.ask(code, fields, text)

    async def said(self, code: int, body: object = None, /, **fields: str) -> tuple[int, str]:
        answer = await self.say(code, body, **fields)
        return answer.code, answer.remark or ""


@pytest.fixture
async def broker(start: Start, config: Config) -> Broker:
    broker: Broker = await start(config(**ON))
    return broker


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    admin = Admin(broker, "admin", "admin-secret")
    yield admin
    await admin.peers.close()


@pytest.fixture
async def helper(broker: Broker, admin: Admin) -> AsyncIterator[Admin]:
    """A normal user with all permissions on the cluster."""
    await admin.say(codes.AUTH_CREATE_USER, {"password": "p"}, username="helper")
    entry = {"resource": "Cluster:*", "actions": ["All"], "decision": "Allow"}
    body = {"policies": [{"entries": [entry]}]}
    await admin.say(codes.AUTH_CREATE_ACL, body, subject="User:helper")
    helper = Admin(broker, "helper", "p")
    yield helper
    await helper.peers.close()


def acl(*resources: str, subject: str | None = None, **more: Any) -> dict[str, Any]:
    entries = [
        {"resource": one, "actions": ["Pub"], "decision": "Allow"} | more for one in resources
    ]
    body: dict[str, Any] = {"policies": [{"entries": entries}]}
    return body | ({"subject": subject} if subject else {})


# --- users ----------------------------------------------------------------------------------------


async def test_a_user_is_created_updated_shown_and_deleted(admin: Admin) -> None:
    made = await admin.say(codes.AUTH_CREATE_USER, {"password": "p"}, username="a")
    assert (made.code, made.remark, made.body) == (codes.SUCCESS, None, None)
    found = await admin.say(codes.AUTH_GET_USER, username="a")
    # The bytes that a Java broker writes, including the password.
    assert found.body == (
        b'{"password":"p","userStatus":"enable","userType":"Normal","username":"a"}'
    )
    body = {"password": "q", "userType": "super", "userStatus": "disable"}
    assert await admin.said(codes.AUTH_UPDATE_USER, body, username="a") == (0, "")
    found = await admin.say(codes.AUTH_GET_USER, username="a")
    assert found.body == (
        b'{"password":"q","userStatus":"disable","userType":"Super","username":"a"}'
    )
    assert await admin.said(codes.AUTH_DELETE_USER, username="a") == (0, "")
    found = await admin.say(codes.AUTH_GET_USER, username="a")
    assert (found.code, found.body) == (codes.SUCCESS, None)
    assert await admin.said(codes.AUTH_DELETE_USER, username="a") == (0, "")


async def test_users_are_listed(admin: Admin) -> None:
    for name in ("bob", "ann"):
        await admin.say(codes.AUTH_CREATE_USER, {"password": "p"}, username=name)
    found = await admin.say(codes.AUTH_LIST_USER)
    assert [user["username"] for user in json.loads(found.body or b"")] == ["admin", "ann", "bob"]
    found = await admin.say(codes.AUTH_LIST_USER, filter="bo")
    assert [user["username"] for user in json.loads(found.body or b"")] == ["bob"]
    found = await admin.say(codes.AUTH_LIST_USER, filter="nobody")
    assert (found.code, found.body) == (codes.SUCCESS, None)


async def test_the_user_name_comes_from_the_header(admin: Admin, broker: Broker) -> None:
    body = {"username": "other", "password": "p"}
    await admin.say(codes.AUTH_CREATE_USER, body, username="a")
    assert broker.access is not None
    assert broker.access.users.get("other") is None
    assert broker.access.users.get("a") is not None


@pytest.mark.parametrize(
    ("code", "body", "fields", "wanted"),
    [
        (codes.AUTH_CREATE_USER, {"password": "p"}, {}, (29, "The username is blank")),
        (codes.AUTH_CREATE_USER, {}, {"username": "a"}, (16, "password can not be blank")),
        (
            codes.AUTH_CREATE_USER,
            {"password": "p"},
            {"username": "admin"},
            (16, "The user is existed"),
        ),
        (
            codes.AUTH_CREATE_USER,
            {"password": "p", "userType": "root"},
            {"username": "a"},
            (29, "userType is 'root', but must be Super or Normal"),
        ),
        (codes.AUTH_UPDATE_USER, {}, {"username": "a"}, (16, "The user is not exist")),
        (codes.AUTH_UPDATE_USER, {}, {"username": " "}, (29, "The username is blank")),
        (codes.AUTH_DELETE_USER, None, {}, (29, "The username is blank")),
        (codes.AUTH_GET_USER, None, {"username": ""}, (29, "The username is blank")),
    ],
)
async def test_bad_input_about_users_is_refused(
    admin: Admin, code: int, body: object, fields: dict[str, str], wanted: tuple[int, str]
) -> None:
    assert await admin.said(code, body, **fields) == wanted


@pytest.mark.parametrize("body", [b"", b"{", b'{"password":["secret"]}', b"[]"])
async def test_a_malformed_user_is_refused_without_repeating_its_body(
    admin: Admin, body: bytes
) -> None:
    answer = await admin.ask(codes.AUTH_CREATE_USER, {"username": "a"}, body)
    assert (answer.code, answer.remark) == (
        codes.SYSTEM_ERROR,
        "the body is not the JSON of a user",
    )


async def test_only_a_super_user_creates_updates_and_deletes_super_users(
    helper: Admin, broker: Broker
) -> None:
    body = {"password": "p", "userType": "Super"}
    create, update, delete = (
        codes.AUTH_CREATE_USER,
        codes.AUTH_UPDATE_USER,
        codes.AUTH_DELETE_USER,
    )
    assert await helper.said(create, {"password": "p"}, username="a") == (0, "")
    assert await helper.said(create, body, username="b") == (1, SUPER_CREATE)
    assert await helper.said(update, body, username="a") == (1, SUPER_UPDATE)
    assert await helper.said(update, {"password": "p"}, username="admin") == (16, SUPER_UPDATE)
    assert await helper.said(delete, username="admin") == (16, SUPER_UPDATE)
    assert await helper.said(delete, username="a") == (0, "")
    assert broker.access is not None
    user = broker.access.users.get("admin")
    assert user is not None
    assert user.password == "admin-secret"


async def test_a_recreated_user_does_not_inherit_the_permissions_of_the_deleted_one(
    admin: Admin,
) -> None:
    await admin.say(codes.AUTH_CREATE_USER, {"password": "p"}, username="a")
    await admin.say(codes.AUTH_CREATE_ACL, acl("*"), subject="User:a")
    await admin.say(codes.AUTH_DELETE_USER, username="a")
    await admin.say(codes.AUTH_CREATE_USER, {"password": "p"}, username="a")
    found = await admin.say(codes.AUTH_GET_ACL, subject="User:a")
    assert (found.code, found.body) == (codes.SUCCESS, None)


# --- access lists -------------------------------------------------------------------------------


async def test_an_access_list_is_created_updated_shown_and_deleted(admin: Admin) -> None:
    await admin.say(codes.AUTH_CREATE_USER, {"password": "p"}, username="a")
    create, update = codes.AUTH_CREATE_ACL, codes.AUTH_UPDATE_ACL
    body = acl("Topic:t", "Group:*", sourceIps=["10.0.0.0/8"])
    assert await admin.said(create, body, subject="User:a") == (0, "")
    changed = acl("Topic:t", actions=["sub", "Get"], decision="deny")
    assert await admin.said(update, changed, subject="User:a") == (0, "")
    found = await admin.say(codes.AUTH_GET_ACL, subject="User:a")
    # The bytes that a Java broker writes.
    assert found.body == (
        b'{"policies":[{"entries":[{"actions":["Sub","Get"],"decision":"Deny",'
        b'"resource":"Topic:t"},{"actions":["Pub"],"decision":"Allow","resource":"Group:*",'
        b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:a"}'
    )
    found = await admin.say(codes.AUTH_LIST_ACL, subjectFilter="a", resourceFilter="Group")
    (listed,) = json.loads(found.body or b"")
    assert [entry["resource"] for entry in listed["policies"][0]["entries"]] == ["Group:*"]
    gone = {"subject": "User:a", "resource": "Group:*"}
    assert await admin.said(codes.AUTH_DELETE_ACL, **gone) == (0, "")
    found = await admin.say(codes.AUTH_LIST_ACL)
    assert (found.body or b"").count(b'"resource"') == 1
    assert await admin.said(codes.AUTH_DELETE_ACL, subject="User:a") == (0, "")
    found = await admin.say(codes.AUTH_LIST_ACL)
    assert (found.code, found.body) == (codes.SUCCESS, None)
    wanted = (codes.NO_PERMISSION, "The acl is not exist.")
    assert await admin.said(codes.AUTH_DELETE_ACL, subject="User:a") == wanted


@pytest.mark.parametrize(
    ("code", "body", "fields", "wanted"),
    [
        (
            codes.AUTH_CREATE_ACL,
            acl("Topic:t"),
            {"subject": "User:nobody"},
            (16, "The subject of User:nobody is not exist."),
        ),
        (
            codes.AUTH_CREATE_ACL,
            acl("Topic:t"),
            {"subject": "Role:admin"},
            (29, "the subject 'Role:admin' is none; give User:NAME"),
        ),
        (codes.AUTH_CREATE_ACL, acl("Topic:t"), {}, (29, "the subject '' is none; give User:NAME")),
        (
            codes.AUTH_CREATE_ACL,
            {},
            {"subject": "User:admin"},
            (16, "The policies is empty: give entries to at least one"),
        ),
        (codes.AUTH_GET_ACL, None, {"subject": "User:nobody"}, (16, "The subject is not exist.")),
        (
            codes.AUTH_DELETE_ACL,
            None,
            {"subject": "User:nobody"},
            (16, "The subject is not exist."),
        ),
    ],
)
async def test_bad_input_about_lists_is_refused(
    admin: Admin, code: int, body: object, fields: dict[str, str], wanted: tuple[int, str]
) -> None:
    assert await admin.said(code, body, **fields) == wanted


async def test_a_malformed_resource_does_not_delete_the_whole_list(
    admin: Admin, broker: Broker
) -> None:
    await admin.say(codes.AUTH_CREATE_ACL, acl("Topic:t"), subject="User:admin")
    code, remark = await admin.said(codes.AUTH_DELETE_ACL, subject="User:admin", resource="Topic")
    assert (code, remark.partition(";")[0]) == (16, "the resource 'Topic' is none")
    assert broker.access is not None
    assert broker.access.lists.get("admin") is not None


async def test_a_body_that_is_not_json_is_refused(admin: Admin) -> None:
    answer = await admin.ask(codes.AUTH_CREATE_ACL, {"subject": "User:admin"}, b"{no json")
    assert answer.code == codes.SYSTEM_ERROR
    assert "AclInfo can't be read" in (answer.remark or "")


async def test_the_response_reports_a_full_disk(
    admin: Admin, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("can't write users.json: No space left on device")

    monkeypatch.setattr("aerobee.store.files.json_file.save", full)
    wanted = (codes.SYSTEM_ERROR, "can't write users.json: No space left on device")
    assert await admin.said(codes.AUTH_CREATE_USER, {"password": "p"}, username="a") == wanted
    assert broker.access is not None
    assert broker.access.users.get("a") is None


# --- secrets ------------------------------------------------------------------------------------


async def test_passwords_appear_neither_in_the_log_nor_in_the_settings(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await admin.say(codes.AUTH_CREATE_USER, {"password": "hidden-one"}, username="a")
        await admin.say(codes.AUTH_UPDATE_USER, {"password": "hidden-two"}, username="a")
        await admin.say(codes.AUTH_UPDATE_USER, {"password": "hidden-two"}, username="nobody")
        await admin.ask(codes.AUTH_CREATE_USER, {"username": "b"}, b'{"password":"hidden-3"')
        answer = await admin.say(codes.GET_BROKER_CONFIG)
    assert "hidden" not in caplog.text
    text = (answer.body or b"").decode()
    assert "admin-secret" not in text + caplog.text
    assert "initAuthenticationUser=******" in text
    assert "authenticationEnabled=true" in text


PROVIDERS = "org.apache.rocketmq.auth"
KEPT: dict[str, Any] = {
    "authentication_metadata_provider": (
        f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorization_metadata_provider": (
        f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


async def test_users_and_lists_can_be_created_before_access_control_is_enabled(
    start: Start, config: Config
) -> None:
    broker: Broker = await start(config(**KEPT))
    caller = Caller(broker)
    for name, kind in (("boss", "Super"), ("app", "Normal")):
        body = json.dumps({"password": f"{name}-secret", "userType": kind}).encode()
        answer = await caller.ask(codes.AUTH_CREATE_USER, {"username": name}, body)
        assert answer.code == codes.SUCCESS, answer.remark
    text = json.dumps(acl("Topic:T")).encode()
    assert (await caller.ask(codes.AUTH_CREATE_ACL, {"subject": "User:app"}, text)).code == 0
    assert (await caller.send("T")).code == codes.SUCCESS  # no signature is required yet
    await caller.peers.close()
    await broker.stop()

    broker = await start(config(authentication_enabled=True, authorization_enabled=True))
    nobody, app, boss = (
        Caller(broker),
        Admin(broker, "app", "app-secret"),
        Admin(broker, "boss", "boss-secret"),
    )
    assert (await nobody.send("T")).code == codes.NO_PERMISSION
    assert (await app.send("T")).code == codes.SUCCESS
    assert (await app.send("U")).code == codes.NO_PERMISSION
    assert (await boss.say(codes.AUTH_GET_ACL, subject="User:app")).code == codes.SUCCESS
    for one in (nobody, app, boss):
        await one.peers.close()


async def test_without_a_provider_for_lists_the_broker_stores_only_users(
    start: Start, config: Config
) -> None:
    key = "authentication_metadata_provider"
    caller = Caller(await start(config(**{key: KEPT[key]})))
    body = b'{"password":"p"}'
    assert (await caller.ask(codes.AUTH_CREATE_USER, {"username": "app"}, body)).code == 0
    text = json.dumps(acl("Topic:T")).encode()
    answer = await caller.ask(codes.AUTH_CREATE_ACL, {"subject": "User:app"}, text)
    assert answer.code == codes.SYSTEM_ERROR
    assert "authorizationMetadataProvider is not configured" in (answer.remark or "")
    await caller.peers.close()


async def test_a_normal_user_changes_no_super_user_while_signatures_are_optional(
    start: Start, config: Config
) -> None:
    broker: Broker = await start(config(**KEPT))
    caller, app = Caller(broker), Admin(broker, "app", "p")
    for name, kind in (("boss", "Super"), ("app", "Normal")):
        body = json.dumps({"password": "p", "userType": kind}).encode()
        await caller.ask(codes.AUTH_CREATE_USER, {"username": name}, body)
    assert await app.said(
        codes.AUTH_CREATE_USER, {"password": "p", "userType": "Super"}, username="x"
    ) == (
        codes.SYSTEM_ERROR,
        SUPER_CREATE,
    )
    assert await app.said(codes.AUTH_DELETE_USER, username="boss") == (
        codes.NO_PERMISSION,
        SUPER_UPDATE,
    )
    for one in (caller, app):
        await one.peers.close()
