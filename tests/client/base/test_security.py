"""Signed requests, which every kind of consumer sends; TLS by settings, files and variables."""

import ssl
import time
from pathlib import Path

import pytest
from aerobee.client import Consumer, LitePullConsumer, PullConsumer, Security, SimpleConsumer
from aerobee.client.blocking import Admin
from aerobee.client.errors import ClientError, UnreachableError
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server
from aerobee.protocol.aio.tls import Tls
from aerobee.protocol.security import self_signed
from aerobee.protocol.security.self_signed import Authority
from aerobee.testing.cluster import LocalCluster

from ...secret_files import write_secret
from ..fakes import FakeCluster, until


@pytest.mark.parametrize("kind", ["consumer", "lite", "pull", "simple"])
async def test_every_kind_of_consumer_signs_what_it_asks(fake: FakeCluster, kind: str) -> None:
    security = Security("key", "secret")
    consumer: Consumer | LitePullConsumer | PullConsumer | SimpleConsumer
    if kind == "consumer":
        consumer = Consumer(fake.address, group="g", topics=["orders"], security=security)
    elif kind == "lite":
        consumer = LitePullConsumer(fake.address, group="g", security=security)
        await consumer.subscribe("orders")
    elif kind == "pull":
        consumer = PullConsumer(fake.address, group="g", topics=["orders"], security=security)
    else:
        consumer = SimpleConsumer(fake.address, group="g", topics=["orders"], security=security)
    async with consumer:
        await until(lambda: bool(fake.broker.requests[codes.HEART_BEAT]))
    asked = [*fake.requests[codes.GET_ROUTEINFO_BY_TOPIC], *fake.broker.requests[codes.HEART_BEAT]]
    assert {command.fields().get("AccessKey") for command in asked} == {"key"}


# --- TLS ------------------------------------------------------------------------------------------

VARIABLES = ("ACCESS_KEY", "SECRET_KEY", "TLS", "TLS_CA", "TLS_INSECURE")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any of the variables."""
    for name in VARIABLES:
        monkeypatch.delenv(f"AEROBEE_{name}", raising=False)
    return monkeypatch


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate that names no address in one file."""
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    write_secret(path, self_signed.make(time.time()))
    return path


def test_tls_checks_certificate_and_name_unless_it_is_told_not_to(pem: Path) -> None:
    assert Security().context is None
    for security in (Security(tls=True), Security(tls_ca=pem), Security(tls_ca=str(pem))):
        context = security.context
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    context = Security(tls_insecure=True).context
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    own = ssl.create_default_context()
    assert Security(tls=own).context is own


def test_what_contradicts_itself_or_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="tls_ca is 'a' and tls_insecure is true"):
        Security(tls_ca="a", tls_insecure=True)
    with pytest.raises(ClientError, match="leave tls_ca and tls_insecure out"):
        Security(tls=ssl.create_default_context(), tls_ca="a")
    with pytest.raises(ClientError, match=r"can't be used: .*No such file.*; name a file with"):
        _ = Security(tls_ca=str(tmp_path / "none.pem")).context
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(ClientError, match=r"can't be used: .+; name a file with the certificates"):
        _ = Security(tls_ca=str(empty)).context


def test_the_environment_says_whether_tls_is_spoken(environment: pytest.MonkeyPatch) -> None:
    assert Security.from_environment() == Security()
    environment.setenv("AEROBEE_TLS", "true")
    assert Security.from_environment() == Security(tls=True)
    environment.setenv("AEROBEE_TLS", "false")
    environment.setenv("AEROBEE_TLS_CA", "a.pem")
    assert Security.from_environment() == Security(tls_ca="a.pem")
    assert Security.from_environment(tls_insecure=True) == Security(tls_insecure=True)
    assert Security.from_environment(tls_ca="b.pem") == Security(tls_ca="b.pem")
    environment.setenv("AEROBEE_TLS_INSECURE", "TRUE")
    with pytest.raises(ClientError, match="give one of them"):
        Security.from_environment()
    environment.setenv("AEROBEE_TLS_INSECURE", "yes")
    with pytest.raises(ClientError, match="AEROBEE_TLS_INSECURE is 'yes'; set it to true or false"):
        Security.from_environment()


def test_a_client_speaks_tls_and_says_what_is_wrong_when_it_can_not(pem: Path) -> None:
    with LocalCluster(tls_server_mode="enforcing", tls_server_cert_path=str(pem)) as cluster:
        with Admin(cluster.name_server, security=Security(tls_insecure=True)) as admin:
            admin.create_topic("orders", 1)
        with (
            Admin(cluster.name_server) as plain,
            pytest.raises(UnreachableError, match="before it answered anything; does it want TLS"),
        ):
            plain.broker_runtime(cluster.brokers[0].address)
        security = Security(tls_ca=pem)
        with (
            Admin(cluster.name_server, security=security) as admin,
            pytest.raises(UnreachableError, match=r"certificate verify failed: .*; name the file"),
        ):
            admin.broker_runtime(cluster.brokers[0].address)


def test_a_connection_that_is_signed_needs_both_keys(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AEROBEE_ACCESS_KEY", "shop")
    with pytest.raises(ClientError, match="only one of AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY"):
        Security.from_environment()


@pytest.mark.parametrize(
    ("made_days_ago", "is_trusted", "said"),
    [
        (0, True, None),
        (0, False, "unable to get local issuer certificate"),
        (900, True, "certificate has expired"),
    ],
    ids=["good", "foreign", "expired"],
)
async def test_a_foreign_or_expired_certificate_is_refused_with_the_reason(
    tmp_path: Path, made_days_ago: int, said: str | None, *, is_trusted: bool
) -> None:
    authority = Authority(time.time() - made_days_ago * 86_400)
    made = authority.issue(["127.0.0.1"])
    trusted = authority if is_trusted else Authority(time.time())
    files = {"ca.pem": trusted.own.certificate, "cert.pem": made.certificate, "key.pem": made.key}
    for name, data in files.items():
        write_secret(tmp_path / name, data)
    server = Server(tls=Tls("enforcing", str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")))
    port = await server.listen("127.0.0.1", 0, {})
    peers = Peers(tls=Security(tls_ca=tmp_path / "ca.pem").context)
    try:
        if said is None:
            assert await peers.connect(f"127.0.0.1:{port}")
        else:
            with pytest.raises(ConnectionError, match=said):
                await peers.connect(f"127.0.0.1:{port}")
    finally:
        await peers.close()
        await server.stop()
