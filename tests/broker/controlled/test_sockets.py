"""What a member does on real sockets only: TLS, and the HTTP endpoint of its broker."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.security import self_signed
from aerobee.scripts.broker_endpoint import broker_endpoint

from ...secret_files import write_secret
from ...waiting import until
from .brokers import Brokers


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path) as found:
        yield found


async def test_a_member_has_the_endpoint_of_its_broker(real: Brokers) -> None:
    (one,) = await real.start(1)
    endpoint = broker_endpoint(one.config, lambda: one.broker)
    await endpoint.start()
    assert endpoint.url is not None
    await endpoint.stop()


async def test_a_role_change_with_unusable_certificates_goes_on_with_the_ones_before(
    real: Brokers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = tmp_path / "own.pem", tmp_path / "trust.pem"
    made = self_signed.make(time.time())
    for file in files:
        write_secret(file, made)
    real.settings |= {
        "tls_server_cert_path": str(files[0]),
        "ha_tls": True,
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": str(files[1]),
    }
    one, two = await real.start(2)
    await real.in_set(1, 2)
    for file in files:
        file.write_text("half a file")
    await real.elect(2)
    await until(
        lambda: two.election.is_master and one.election.epoch == 2 and one.broker is not None
    )
    await real.in_set(1, 2)  # the old master follows the new one, by TLS
    assert (await real.send(two, b"after")).code == codes.SUCCESS
    assert "the changed certificate is not used" in caplog.text
    assert "stay trusted" in caplog.text
