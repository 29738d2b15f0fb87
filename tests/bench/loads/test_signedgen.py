"""The generator of signed sends and of sends over TLS, against our broker with access control."""

from __future__ import annotations

import argparse
import asyncio

import pytest
from aerobee.bench.loads import signedgen
from aerobee.bench.loads.loadgen import LoadFailed
from aerobee.broker.server import Broker

USER, SECRET = "shop", "12345678"
SETTINGS = {
    "authentication_enabled": True,
    "init_authentication_user": f'{{"username":"{USER}","password":"{SECRET}"}}',
}


def options(broker: Broker) -> argparse.Namespace:
    return argparse.Namespace(
        host="127.0.0.1",
        port=broker.port,
        topic="T",
        user=USER,
        conns=3,
        count=50,
        size=64,
        tls=False,
        inflight=1,
    )


async def test_every_signed_send_is_stored(broker: Broker) -> None:
    found = await asyncio.to_thread(signedgen.run, options(broker), SECRET)
    assert found["messages"] == 50
    assert [broker.store.max_offset("T", queue) for queue in range(4)] == [13, 13, 12, 12]


async def test_several_sends_leave_in_one_write(broker: Broker) -> None:
    asked = options(broker)
    asked.inflight = 7
    found = await asyncio.to_thread(signedgen.run, asked, SECRET)
    assert found["messages"] == 50
    assert [broker.store.max_offset("T", queue) for queue in range(4)] == [13, 13, 12, 12]


async def test_a_wrong_secret_fails_the_load(broker: Broker) -> None:
    with pytest.raises(LoadFailed, match="check signature failed"):
        await asyncio.to_thread(signedgen.run, options(broker), "wrong")
    assert broker.store.log_end == 0


async def test_sends_over_tls_are_stored_too(broker: Broker) -> None:
    asked = options(broker)
    asked.tls = True  # the broker makes a certificate for the first client that asks
    found = await asyncio.to_thread(signedgen.run, asked, SECRET)
    assert found["messages"] == 50


async def test_a_send_without_a_user_is_not_signed(broker: Broker) -> None:
    asked = options(broker)
    asked.user = ""
    with pytest.raises(LoadFailed, match="no AccessKey"):
        await asyncio.to_thread(signedgen.run, asked, "")
