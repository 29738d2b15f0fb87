"""Access control of a name server: signatures of brokers and administrators, rules, and files."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.conf.sources import ConfigError
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.security.signature import signed

from ..documented_access import ACTIONS, documented
from .conftest import Answer, Asker, Connect, Start
from .test_server import register

ADMIN, SHOP = ("admin", "the-admins-password"), ("shop", "the-shops-password")
INIT = json.dumps({"username": ADMIN[0], "password": ADMIN[1]})
ON: dict[str, Any] = {"authentication_enabled": True, "init_authentication_user": INIT}
KV = {"namespace": "n", "key": "k", "value": "v"}
REFUSED = codes.NO_PERMISSION
# Requests that name the cluster of a broker.
OF_BROKERS = (
    codes.REGISTER_BROKER,
    codes.UNREGISTER_BROKER,
    codes.QUERY_DATA_VERSION,
    codes.BROKER_HEARTBEAT,
)


class Signer(Asker):
    """Asks through another asker, with the signature of a user."""

    def __init__(self, asker: Asker, user: tuple[str, str]) -> None:
        self._asker = asker
        self._user = user

    async def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        version: int = 479,
        codec: int = 0,
    ) -> Answer:
        return await self._asker.ask(code, signed(ext, body, *self._user), body, version, codec)


def write(folder: Path, *, status: str = "enable", mode: int = 0o600, **actions: list[str]) -> Path:
    """users.json and acls.json with the user shop, which may do these actions by resource."""
    user = {"username": SHOP[0], "password": SHOP[1], "userType": "Normal", "userStatus": status}
    entries = [
        {"resource": name.replace("_", ":"), "actions": each, "decision": "Allow"}
        for name, each in actions.items()
    ]
    rules = {"subject": "User:shop", "policies": [{"policyType": "Custom", "entries": entries}]}
    for name, content in (
        ("users.json", {"users": {"shop": user}}),
        ("acls.json", {"acls": {"User:shop": rules}}),
    ):
        path = folder / name
        path.write_text(json.dumps(content))
        path.chmod(mode)
    return folder


async def refusal_of(asker: Asker, code: int, ext: dict[str, str] | None = None) -> str:
    answer = await asker.ask(code, ext)
    assert answer.code == REFUSED, answer
    return answer.remark or ""


async def test_brokers_and_administrators_must_sign_and_clients_get_routes(
    start: Start, connect: Connect
) -> None:
    server = await start(**ON)
    plain = await connect(server)
    admin = Signer(await connect(server), ADMIN)
    for row in server._handlers.rows():
        answer = await plain.ask(row.code, {"topic": "T"})
        assert (answer.code == REFUSED) is (not row.access.is_open), row.code
    assert "no AccessKey" in await refusal_of(plain, codes.REGISTER_BROKER)
    await register(admin, "T", "U")
    assert (await admin.ask(codes.PUT_KV_CONFIG, KV)).code == codes.SUCCESS
    route = await plain.ask(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert TopicRouteData.decode(route.body).broker_datas


async def test_everybody_signs_where_that_is_required(start: Start, connect: Connect) -> None:
    server = await start(**ON, namesrv_authentication_required=True)
    plain = await connect(server)
    admin = Signer(await connect(server), ADMIN)
    await register(admin, "T", "U")
    for row in server._handlers.rows():
        await refusal_of(plain, row.code, {"topic": "T"})
    assert (await admin.ask(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == codes.SUCCESS


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ((ADMIN[0], "another password"), "check signature failed"),
        (("nobody\x1b", ADMIN[1]), r"User:nobody\\x1b is not found"),
    ],
)
async def test_a_wrong_signature_is_refused(
    start: Start, connect: Connect, user: tuple[str, str], why: str
) -> None:
    server = await start(**ON)
    remark = await refusal_of(Signer(await connect(server), user), codes.PUT_KV_CONFIG, KV)
    assert why.replace("\\\\", "\\") in remark
    assert server.access is not None
    assert server.access.guard.refusals.count == 1
    assert server.settings.get("n", "k") is None


async def test_a_changed_request_is_refused(start: Start, connect: Connect) -> None:
    asker = await connect(await start(**ON))
    fields = signed(KV, b"", *ADMIN) | {"value": "another"}
    assert "check signature failed" in await refusal_of(asker, codes.PUT_KV_CONFIG, fields)


async def test_rules_decide_what_a_normal_user_may_do(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    folder = write(tmp_path, Cluster_CX=["Update"], Topic_T=["Create"])
    server = await start(**ON, authorization_enabled=True, auth_users_path=str(folder))
    shop = Signer(await connect(server), SHOP)
    await register(shop, "T", "U")
    topic = {"topic": "T"}
    assert "Topic:T" in await refusal_of(shop, codes.DELETE_TOPIC_IN_NAMESRV, topic)
    assert "Cluster:NameServer" in await refusal_of(shop, codes.PUT_KV_CONFIG, KV)
    assert "Cluster:NameServer" in await refusal_of(shop, codes.GET_NAMESRV_CONFIG)
    assert "Cluster:CY" in await refusal_of(shop, codes.BROKER_HEARTBEAT, {"clusterName": "CY"})
    admin = Signer(await connect(server), ADMIN)
    assert (await admin.ask(codes.DELETE_TOPIC_IN_NAMESRV, topic)).code == codes.SUCCESS


async def test_a_user_of_one_cluster_changes_no_broker_of_another(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    folder = write(tmp_path, Cluster_CX=["Update"])
    server = await start(**ON, authorization_enabled=True, auth_users_path=str(folder))
    admin = Signer(await connect(server), ADMIN)
    assert (
        await register(admin, "T", "U", clusterName="CY", brokerName="by")
    ).code == codes.SUCCESS
    shop = Signer(await connect(server), SHOP)
    there = {"clusterName": "CX", "brokerName": "by", "brokerId": "0", "brokerAddr": "10.0.0.9:1"}
    for code in (codes.REGISTER_BROKER, codes.UNREGISTER_BROKER):
        assert "Cluster:CY" in await refusal_of(shop, code, there)
    route = await shop.ask(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    (broker,) = TopicRouteData.decode(route.body).broker_datas
    assert broker.broker_addrs[0] != "10.0.0.9:1"


async def test_changed_files_count_at_the_next_scan_and_damaged_ones_do_not(
    start: Start, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path)
    server = await start(**ON, auth_users_path=str(folder))
    shop = Signer(await connect(server), SHOP)
    assert (await shop.ask(codes.PUT_KV_CONFIG, KV)).code == codes.SUCCESS
    assert server.access is not None
    (folder / "users.json").write_text("{broken")
    server.access.refresh()
    assert "stay as they were" in caplog.text
    assert (await shop.ask(codes.PUT_KV_CONFIG, KV)).code == codes.SUCCESS
    write(folder, status="disable")
    server.access.refresh()
    assert "is disabled" in await refusal_of(shop, codes.PUT_KV_CONFIG, KV)


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("users.json", SHOP[1], "", "lacks its name"),
        ("users.json", '"enable"', '"DISABLE"', "lacks its name"),
        ("acls.json", '"Custom"', '"CUSTOM"', "neither Custom nor Default"),
    ],
)
def test_users_and_rules_that_a_broker_refuses_are_refused(
    name: str, old: str, new: str, why: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, Cluster_CX=["Update"])
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=why):
        NameServer(NamesrvConfig(**ON, auth_users_path=str(folder)))


def test_files_that_others_can_read_are_refused(tmp_path: Path) -> None:
    config = NamesrvConfig(**ON, auth_users_path=str(write(tmp_path, mode=0o644)))
    with pytest.raises(ConfigError, match=r"users\.json has mode 0644"):
        NameServer(config)


async def test_the_password_is_neither_shown_nor_stored(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    stored = tmp_path / "namesrv.properties"
    server = await start(**ON, config_store_path=str(stored))
    admin = Signer(await connect(server), ADMIN)
    shown = (await admin.ask(codes.GET_NAMESRV_CONFIG)).body.decode()
    assert "authenticationEnabled" not in shown
    change = b"enableTopicList=false"
    assert (await admin.ask(codes.UPDATE_NAMESRV_CONFIG, None, change)).code == codes.SUCCESS
    assert "enableTopicList=false" in stored.read_text()
    assert ADMIN[1] not in stored.read_text() + shown
    off = await admin.ask(codes.UPDATE_NAMESRV_CONFIG, None, b"authenticationEnabled=false")
    assert off.code == codes.NO_PERMISSION


@pytest.mark.parametrize("key", ["authorization_enabled", "namesrv_authentication_required"])
def test_settings_that_mean_nothing_without_signatures_are_refused(key: str) -> None:
    settings: dict[str, Any] = {key: True}
    with pytest.raises(ConfigError, match="authenticationEnabled is not"):
        NamesrvConfig(**settings)


@pytest.mark.parametrize("text", ["no JSON", "{}", '{"username":"a"}'])
def test_a_first_user_must_have_name_and_password(text: str) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser is not JSON like"):
        NamesrvConfig(init_authentication_user=text)


async def test_each_request_needs_what_its_document_says_and_no_more(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    write(tmp_path)
    server = await start(**ON, authorization_enabled=True, auth_users_path=str(tmp_path))
    assert server.access is not None
    plain, admin = await connect(server), Signer(await connect(server), ADMIN)
    shop = Signer(await connect(server), SHOP)
    await register(admin, "T")
    fields = {"topic": "T", "clusterName": "c", "brokerName": "none"}

    async def is_refused(code: int, **actions: list[str]) -> bool:
        assert server.access is not None
        write(tmp_path, status="enable", mode=0o600, **actions)
        server.access.refresh()
        answer = await shop.ask(code, fields)
        return "has no permission to access" in (answer.remark or "")

    wrong: list[tuple[str, str]] = []
    requests = documented("name server")
    for code, clauses in requests.items():
        name = codes.REQUEST_NAMES[code]
        if ((await plain.ask(code, fields)).code == REFUSED) is (clauses is None):
            wrong.append((name, "nobody"))
        if await is_refused(code) is not bool(clauses):
            wrong.append((name, "a user without a rule"))
        for kind, (action,) in clauses or ():
            cluster = "c" if code in OF_BROKERS else "NameServer"
            resource = "Topic_T" if kind == "Topic" else f"Cluster_{cluster}"
            others = [one for one in ACTIONS if one != action]
            if not await is_refused(code, **{resource: others, "Topic_other": ["All"]}):
                wrong.append((name, f"served without {kind} {action}"))
            if await is_refused(code, **{resource: [action]}):
                wrong.append((name, f"refused with {kind} {action}"))
    assert wrong == []
    assert len(requests) > 20
