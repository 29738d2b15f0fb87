"""Controllers that keep their state in a real etcd (Debian's package etcd-server)."""

import asyncio
import datetime
import ipaddress
import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest
from aerobee.controller.config import ControllerConfig
from aerobee.controller.etcd_gateway import EtcdError, EtcdGateway, Same
from aerobee.controller.server import Controller
from aerobee.harness.child import Child
from aerobee.harness.etcd_side import LACK, EtcdProcess, program
from aerobee.protocol import codes
from aerobee.protocol.headers import controller as headers
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ..secret_files import write_secret
from ..waiting import PROCESS, until
from .support import NAME
from .test_server import Member

KEY = b"/aerobee/controller/x"

pytestmark = pytest.mark.skipif(program() is None and not os.environ.get("CI"), reason=LACK)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    found = EtcdProcess(tmp_path / "etcd")
    found.start()
    yield found
    found.stop()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


def config_of(etcd: EtcdProcess, **settings: str) -> ControllerConfig:
    given = {
        "listen_port": 0,
        "controller_type": "etcd",
        "controller_etcd_endpoints": etcd.url,
        "controller_etcd_timeout_mills": 3_000,
    } | settings
    return ControllerConfig(**given)  # type: ignore[arg-type]


async def controller_of(stack: AsyncExitStack, config: ControllerConfig) -> Controller:
    found = Controller(config)
    await found.start()
    stack.push_async_callback(found.stop)
    return found


async def member_of(stack: AsyncExitStack, at: object, broker_id: int = 1) -> Member:
    found = Member(cast(Controller, at), broker_id)
    await found.start()
    stack.push_async_callback(found.stop)
    return found


# --- a cluster ------------------------------------------------------------------------------------


class Process:
    """`aerobee controller` as a process."""

    def __init__(self, folder: Path, etcd: EtcdProcess, number: int) -> None:
        command = [sys.executable, "-m", "aerobee.scripts.cli", "controller", "--listen-port", "0"]
        for key, value in {
            "httpPort": "-1",
            "controllerType": "etcd",
            "controllerEtcdEndpoints": etcd.url,
            "controllerEtcdTimeoutMills": "3000",
            "controllerDLegerSelfId": f"n{number}",
        }.items():
            command += ["--set", f"{key}={value}"]
        environment = {key: "" for key in os.environ if key.startswith("AEROBEE_")}
        self.child = Child(command, folder / f"{number}.stderr", cwd=folder, env=environment)
        ready = self.child.wait_line(lambda line: "ready" in line, PROCESS)
        found = re.search(r"on (127\.0\.0\.1:\d+)", ready)
        assert found is not None, ready
        self.address = found[1]


@pytest.mark.smoke
async def test_a_killed_leader_is_followed_by_the_other_controller(
    etcd: EtcdProcess, tmp_path: Path, stack: AsyncExitStack
) -> None:
    processes = {}
    for number in range(2):
        each = await asyncio.to_thread(Process, tmp_path, etcd, number)
        stack.callback(each.child.kill)
        processes[each.address] = each
    member = await member_of(stack, next(iter(processes.values())))

    async def leader(other_than: str = "") -> Process:
        address: str | None = None

        async def leads() -> bool:
            nonlocal address
            code = codes.CONTROLLER_GET_METADATA_INFO
            found = (await member.ask(code)).header(headers.GetMetadataResponse)
            address = found.controller_leader_address
            if not address or address == other_than:
                return False
            member.controller = cast(Controller, processes[address])
            return found.is_leader

        await until(leads, lambda: f"the leader is {address}", seconds=PROCESS, pause=0.02)
        assert address is not None
        return processes[address]

    first = await leader()
    member.controller = cast(Controller, first)
    await member.join()
    assert (await member.elect()).code == codes.SUCCESS
    (other,) = [one for one in processes.values() if one is not first]
    first.child.process.send_signal(signal.SIGKILL)
    member.controller = cast(Controller, other)
    assert await leader(first.address) is other
    found = await member.ask(codes.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(NAME))
    assert found.fields()["masterBrokerId"] == "1"
    assert found.fields()["masterEpoch"] == "1"


async def test_a_restarted_etcd_has_all_that_was_acknowledged(
    etcd: EtcdProcess, stack: AsyncExitStack
) -> None:
    controller = await controller_of(stack, config_of(etcd))
    await until(lambda: controller.engine.is_leader, seconds=PROCESS)
    member = await member_of(stack, controller)
    await member.join()
    await member.elect()
    groups = controller.groups
    assert groups[NAME].master_epoch == 1
    await asyncio.to_thread(etcd.stop)
    await until(lambda: not controller.engine.is_leader, seconds=PROCESS)
    response = await member.elect()
    assert response.code == codes.CONTROLLER_NOT_LEADER
    await asyncio.to_thread(etcd.start)
    await until(lambda: controller.engine.is_leader, seconds=PROCESS)
    assert controller.groups == groups
    other = await member_of(stack, controller, 2)
    await other.join()


async def test_a_wiped_etcd_stops_elections_for_brokers_that_know_more(
    etcd: EtcdProcess, stack: AsyncExitStack
) -> None:
    controller = await controller_of(stack, config_of(etcd))
    await until(lambda: controller.engine.is_leader, seconds=PROCESS)
    member = await member_of(stack, controller)
    await member.join()
    await member.elect()
    await member.beat(1, 100)
    await asyncio.to_thread(etcd.stop)
    etcd.wipe()
    await asyncio.to_thread(etcd.start)
    await until(lambda: not controller.engine.is_leader or not controller.groups, seconds=PROCESS)
    await until(lambda: controller.engine.is_leader, seconds=PROCESS)
    assert not controller.groups
    await member.join()
    await member.beat(1, 100)
    response = await member.elect()
    assert response.code == codes.CONTROLLER_ELECT_MASTER_FAILED
    assert "the controller's state was lost" in (response.remark or "")


async def test_etcd_refuses_a_change_after_the_lease_is_gone(etcd: EtcdProcess) -> None:
    gateway = EtcdGateway(config_of(etcd))
    lease = await gateway.grant(5)
    done = await gateway.put_if([Same(KEY, "CREATE", 0)], KEY, b"leader", lease)
    mine = [Same(KEY, "CREATE", done.revision), Same(KEY, "LEASE", lease)]
    set_key = b"/aerobee/controller/replicas/a"
    first = await gateway.put_if([*mine, Same(set_key, "MOD", 0)], set_key, b"1")
    assert first.is_done
    old = await gateway.put_if([*mine, Same(set_key, "MOD", 0)], set_key, b"2")
    assert not old.is_done
    assert old.found[set_key].value == b"1"
    await gateway.revoke(lease)
    assert await gateway.keep_alive(lease) == 0
    late = await gateway.put_if([*mine, Same(set_key, "MOD", first.revision)], set_key, b"3")
    assert not late.is_done
    assert KEY not in late.found
    page, _, more = await gateway.page(b"/aerobee/", b"/aerobee0")
    assert [(one.key, one.value) for one in page] == [(set_key, b"1")]
    assert not more
    await gateway.close()


# --- users and TLS --------------------------------------------------------------------------------


def post(etcd: EtcdProcess, path: str, token: str = "", **asked: object) -> dict[str, str]:
    headers = {"Authorization": token} if token else {}
    data = json.dumps(asked).encode()
    request = urllib.request.Request(f"{etcd.url}/v3/{path}", data, headers)
    with urllib.request.urlopen(request, timeout=PROCESS) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def with_users(etcd: EtcdProcess) -> None:
    """root, and a user that may change our keys only."""
    post(etcd, "auth/user/add", name="root", password="root-password")
    post(etcd, "auth/role/add", name="root")
    post(etcd, "auth/user/grant", user="root", role="root")
    post(etcd, "auth/user/add", name="aerobee", password="its-password")
    post(etcd, "auth/role/add", name="controllers")
    prefix, end = "L2Flcm9iZWUv", "L2Flcm9iZWUw"  # /aerobee/, /aerobee0
    perm = {"permType": "READWRITE", "key": prefix, "range_end": end}
    post(etcd, "auth/role/grant", name="controllers", perm=perm)
    post(etcd, "auth/user/grant", user="aerobee", role="controllers")
    post(etcd, "auth/enable")


def end_tokens(etcd: EtcdProcess) -> None:
    """Set the user's password once more, which ends its tokens."""
    root = post(etcd, "auth/authenticate", name="root", password="root-password")["token"]
    post(etcd, "auth/user/changepw", root, name="aerobee", password="its-password")


async def test_a_user_with_a_password_works_beyond_the_life_of_a_token(
    etcd: EtcdProcess, stack: AsyncExitStack
) -> None:
    await asyncio.to_thread(with_users, etcd)
    user = {"controller_etcd_user": "aerobee", "controller_etcd_password": "its-password"}
    controller = await controller_of(stack, config_of(etcd, **user))
    await until(lambda: controller.engine.is_leader, seconds=PROCESS)
    member = await member_of(stack, controller)
    await member.join()
    gateway = EtcdGateway(config_of(etcd, **user))
    await gateway.get(KEY)
    first = gateway._token
    await asyncio.to_thread(end_tokens, etcd)
    await gateway.get(KEY)
    assert gateway._token != first
    with pytest.raises(EtcdError, match="permission denied"):
        await gateway.get(b"/others")
    await gateway.close()
    assert (await member.elect()).code == codes.SUCCESS
    assert controller.groups[NAME].master_id == 1
    nobody = EtcdGateway(config_of(etcd))
    with pytest.raises(EtcdError, match="it wants a user; set controllerEtcdUser"):
        await nobody.get(KEY)
    await nobody.close()


class Authority:
    """An authority and what it signed, as files in PEM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.ca = self._write("ca", self._key, self._signed(self._name, self._key, is_ca=True))

    def make(self, name: str) -> tuple[str, str]:
        """A certificate for 127.0.0.1 and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        cert = self._write(name, key, self._signed(subject, key, is_ca=False))
        return cert, str(self.folder / f"{name}.key")

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([here]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, cert: x509.Certificate) -> str:
        path = self.folder / f"{name}.pem"
        path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        write_secret(
            self.folder / f"{name}.key",
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        return str(path)


async def test_etcd_and_the_controller_prove_themselves_by_certificates(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.make("etcd")
    options = {
        "cert-file": cert,
        "key-file": key,
        "client-cert-auth": "true",
        "trusted-ca-file": authority.ca,
    }
    etcd = EtcdProcess(tmp_path / "etcd", options)
    await asyncio.to_thread(etcd.start)
    stack.callback(etcd.stop)
    cert, key = authority.make("controller")
    trust = {"controller_etcd_ca_path": authority.ca}
    own = {"controller_etcd_cert_path": cert, "controller_etcd_key_path": key}
    controller = await controller_of(stack, config_of(etcd, **trust, **own))
    await until(lambda: controller.engine.is_leader, seconds=PROCESS)
    member = await member_of(stack, controller)
    await member.join()
    for settings in (own, trust):  # etcd not trusted; no certificate of its own
        stranger = EtcdGateway(config_of(etcd, **settings))
        stranger.open()
        with pytest.raises(EtcdError, match="etcd did not answer kv/range"):
            await stranger.get(KEY)
        await stranger.close()
