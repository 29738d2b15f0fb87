"""etcd's JSON gateway as a controller asks it: endpoints, users, and answers that can't be used."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aerobee.controller import etcd_gateway
from aerobee.controller.etcd_gateway import EtcdError, EtcdGateway, Same
from aerobee.controller.etcd_settings import EtcdSettings
from aerobee.protocol.security import self_signed
from aerobee.store.base.errors import StoreError
from aiohttp import web

from ..clocks import Clock
from ..secret_files import write_secret
from .etcd_stand_in import EtcdStandIn

USER = ("aerobee", "right-password")


@pytest.fixture
async def stand_in() -> AsyncIterator[EtcdStandIn]:
    found = EtcdStandIn(Clock())
    await found.start()
    yield found
    await found.stop()


def gateway(stand_in: EtcdStandIn, **settings: object) -> EtcdGateway:
    given = {
        "controller_etcd_endpoints": ";".join(stand_in.urls),
        "controller_etcd_timeout_mills": 3_000,
    } | settings
    return EtcdGateway(EtcdSettings(**given))  # type: ignore[arg-type]


async def test_keys_come_back_as_they_were_put(stand_in: EtcdStandIn) -> None:
    etcd = gateway(stand_in)
    lease = await etcd.grant(5)
    key = "näme".encode()
    done = await etcd.put_if([Same(key, "CREATE", 0)], key, b"\0\xff", lease)
    assert done.is_done
    found = await etcd.get(key)
    assert found == (key, b"\0\xff", done.revision, done.revision, lease)
    again = await etcd.put_if([Same(key, "CREATE", 0)], key, b"other")
    assert not again.is_done
    assert again.found == {key: found}
    assert (await etcd.delete_if([Same(key, "MOD", done.revision)], key)).is_done
    assert await etcd.get(key) is None
    assert await etcd.keep_alive(lease) == 5
    await etcd.revoke(lease)
    assert await etcd.keep_alive(lease) == 0
    await etcd.close()


async def test_an_endpoint_that_is_silent_or_gone_is_passed_over(stand_in: EtcdStandIn) -> None:
    stand_in.silent.add(0)
    etcd = gateway(stand_in, controller_etcd_timeout_mills=500)
    assert await etcd.get(b"a") is None  # by the second one
    stand_in.silent = {1}
    assert await etcd.get(b"a") is None  # by the first one again
    urls = ["http://127.0.0.1:1", *stand_in.urls]
    other = gateway(stand_in, controller_etcd_endpoints=";".join(urls))
    done = await other.put_if([Same(b"a", "CREATE", 0)], b"a", b"1")  # no client got it before
    assert done.is_done
    await etcd.close()
    await other.close()


async def test_a_transaction_without_an_answer_is_not_sent_to_another_endpoint(
    stand_in: EtcdStandIn,
) -> None:
    stand_in.silent.add(0)
    etcd = gateway(stand_in, controller_etcd_timeout_mills=500)
    with pytest.raises(EtcdError, match=r"no answer within 0\.5 s; see that most of etcd's"):
        await etcd.put_if([Same(b"a", "CREATE", 0)], b"a", b"1")
    assert not [path for path, _ in stand_in.asked if path == "kv/txn"]
    assert (await etcd.put_if([Same(b"a", "CREATE", 0)], b"a", b"1")).is_done  # at the other one
    await etcd.close()


async def test_an_old_token_is_renewed(stand_in: EtcdStandIn) -> None:
    stand_in.user = USER
    settings = {"controller_etcd_user": USER[0], "controller_etcd_password": USER[1]}
    etcd = gateway(stand_in, **settings)
    assert await etcd.get(b"a") is None
    assert await etcd.get(b"a") is None
    assert stand_in.logins == 1
    stand_in.token = "another"
    assert (await etcd.put_if([Same(b"a", "CREATE", 0)], b"a", b"1")).is_done
    assert stand_in.logins == 2
    await etcd.close()


@pytest.mark.parametrize(
    ("there", "password", "reason"),
    [
        (USER, "wrong-password", "authentication failed, invalid user ID or password"),
        (USER, "", "it wants a user; set controllerEtcdUser and controllerEtcdPassword"),
        (None, "a-password", "authentication is not enabled"),
    ],
)
async def test_a_refused_user_is_told_without_the_password(
    stand_in: EtcdStandIn, there: tuple[str, str] | None, password: str, reason: str
) -> None:
    stand_in.user = there
    settings = {"controller_etcd_user": password and "u", "controller_etcd_password": password}
    etcd = gateway(stand_in, **settings)
    with pytest.raises(EtcdError, match=reason) as raised:
        await etcd.get(b"a")
    assert not password or password not in str(raised.value)
    await etcd.close()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"<html>", 200, "answers '<html>', which is no answer of etcd's JSON gateway"),
        (b"[]", 200, "which is no answer of etcd's"),
        (b'{"kvs":[{"key":"?"}]}', 200, "a key or a value that is no base64"),
        (b'{"kvs":[{"key":"YQ==","lease":"x"}]}', 200, "'x' in the place of a number"),
        (b"nothing here\n", 404, "it answered 404 nothing here"),
        (b'{"message":"etcdserver: no leader"}', 503, "it answered 503 etcdserver: no leader"),
    ],
)
async def test_an_answer_that_is_not_etcds_is_shown(
    stand_in: EtcdStandIn, body: bytes, status: int, reason: str
) -> None:
    stand_in.raw = web.Response(body=body, status=status)
    etcd = gateway(stand_in)
    with pytest.raises(EtcdError, match=reason):
        await etcd.get(b"a")
    await etcd.close()


async def test_an_answer_that_is_too_large_is_refused(
    stand_in: EtcdStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_gateway, "ANSWER_BYTES_MAX", 1_000)
    etcd = gateway(stand_in)
    stand_in.put("a", b"x" * 1_000)
    with pytest.raises(EtcdError, match="more than 1000 bytes, which is the limit; see what other"):
        await etcd.get(b"a")
    await etcd.close()


@pytest.mark.parametrize("key", ["controllerEtcdCaPath", "controllerEtcdCertPath"])
def test_a_certificate_that_can_not_be_read_stops_the_start(tmp_path: Path, key: str) -> None:
    path = tmp_path / "x.pem"
    path.write_text("nothing")
    given = {"controllerEtcdEndpoints": "https://127.0.0.1:1", key: str(path)}
    settings = msgspec.convert(given, EtcdSettings)
    with pytest.raises(StoreError, match="can't be used for TLS with etcd") as raised:
        EtcdGateway(settings).open()
    assert str(path) in str(raised.value)


def test_a_key_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "own.pem"
    write_secret(path, self_signed.make(time.time()))
    given = {"controllerEtcdEndpoints": "https://127.0.0.1:1"}
    for key in ("controllerEtcdCertPath", "controllerEtcdKeyPath"):
        given[key] = str(path)
    settings = msgspec.convert(given, EtcdSettings)
    EtcdGateway(settings).open()
    path.chmod(0o644)
    with pytest.raises(StoreError, match=r"controllerEtcdKeyPath: .*mode 0644.*chmod 600"):
        EtcdGateway(settings).open()


async def test_requests_at_the_same_time_get_their_own_answers(stand_in: EtcdStandIn) -> None:
    etcd = gateway(stand_in)
    for name in "abc":
        stand_in.put(name, name.encode())
    found = await asyncio.gather(*(etcd.get(name.encode()) for name in "abc"))
    assert [one.value for one in found if one is not None] == [b"a", b"b", b"c"]
    await etcd.close()
