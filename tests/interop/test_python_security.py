"""Our client where the real broker wants a signature, and over TLS on its usual port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

import pytest
from aerobee.client import Admin, Consumer, Message, Producer, Security
from aerobee.client.errors import BrokerError, UnreachableError
from aerobee.harness.clusters import TEST_BROKER_FLAGS, JavaCluster

from .programs import SECONDS

USER, SECRET = "shop", "12345678"
PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"


@pytest.fixture(scope="module")
def guarded(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """The real broker with authentication switched on, and one user."""
    folder = tmp_path_factory.mktemp("guarded")
    settings: dict[str, str | int] = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{PROVIDERS}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": f'{{"username":"{USER}","password":"{SECRET}"}}',
        "innerClientAuthenticationCredentials": (
            f'{{"accessKey":"{USER}","secretKey":"{SECRET}"}}'
        ),
    }
    cluster = JavaCluster(folder, settings, flags=TEST_BROKER_FLAGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def unchecked() -> ssl.SSLContext:
    """TLS without a look at the certificate, which the real servers sign themselves."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def there_and_back(cluster: JavaCluster, security: Security, topic: str) -> bytes:
    """Makes a topic, sends a message and receives it."""
    address = cluster.namesrv
    async with Admin(address, security=security) as admin:
        await admin.create_topic(topic, 2)
    consumer = Consumer(
        address, group=f"{topic}-readers", topics=[topic], start="earliest", security=security
    )
    async with Producer(address, security=security) as producer, consumer:
        await producer.send(Message(topic, b"there and back"), timeout=20)
        async with asyncio.timeout(SECONDS):
            message = await anext(aiter(consumer))
        await message.ack()
        return message.body


async def test_a_signed_request_is_taken(guarded: JavaCluster) -> None:
    assert await there_and_back(guarded, Security(USER, SECRET), "signed") == b"there and back"


@pytest.mark.parametrize("security", [Security(), Security(USER, "wrong"), Security("who", SECRET)])
async def test_a_request_without_the_right_signature_is_refused(
    guarded: JavaCluster, security: Security
) -> None:
    async with Producer(guarded.namesrv, security=security, tries=1) as producer:
        with pytest.raises(BrokerError, match="NO_PERMISSION"):
            await producer.send(Message("TopicTest", b"x"), timeout=20)


async def test_the_client_speaks_tls(guarded: JavaCluster) -> None:
    security = Security(USER, SECRET, tls=unchecked())
    assert await there_and_back(guarded, security, "over-tls") == b"there and back"


async def test_a_certificate_that_nobody_has_signed_is_not_trusted(guarded: JavaCluster) -> None:
    security = Security(USER, SECRET, tls=True)
    async with Producer(guarded.namesrv, security=security) as producer:
        with pytest.raises(UnreachableError, match=r"(?i)certificate"):
            await producer.send(Message("TopicTest", b"x"), timeout=20)
