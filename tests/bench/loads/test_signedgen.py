"""The generator of signed sends and of sends over TLS, against our broker with access control."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aerobee.bench.loads import signedgen
from aerobee.bench.loads.frames import Result
from aerobee.bench.loads.loadgen import Load, LoadFailed
from aerobee.broker.server import Broker

USER, SECRET = "shop", "12345678"
SETTINGS = {
    "authentication_enabled": True,
    "init_authentication_user": f'{{"username":"{USER}","password":"{SECRET}"}}',
}


LOAD = Load("signed", "signed", 50, conns=3, size=64)


async def sent(broker: Broker, load: Load = LOAD, user: str = USER, **more: Any) -> Result:
    """The result of a load."""
    where = (f"127.0.0.1:{broker.port}", "T", load, user)
    secret = more.pop("secret", SECRET)
    return await asyncio.to_thread(signedgen.send, *where, secret, **more)


@pytest.mark.parametrize("in_a_write", [1, 7])
async def test_every_signed_send_is_stored(broker: Broker, in_a_write: int) -> None:
    found = await sent(broker, replace(LOAD, inflight=in_a_write))
    assert found["messages"] == 50
    assert [broker.store.max_offset("T", queue) for queue in range(4)] == [13, 13, 12, 12]


async def test_a_wrong_secret_fails_the_load(broker: Broker) -> None:
    with pytest.raises(LoadFailed, match="check signature failed"):
        await sent(broker, secret="wrong")
    assert broker.store.log_end == 0


async def test_sends_over_tls_are_stored_too(broker: Broker) -> None:
    # The broker makes a certificate for the first client that asks.
    assert (await sent(broker, tls=True))["messages"] == 50


async def test_a_send_without_a_user_is_not_signed(broker: Broker) -> None:
    with pytest.raises(LoadFailed, match="no AccessKey"):
        await sent(broker, user="")
