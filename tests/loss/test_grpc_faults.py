"""gRPC clients at work while proxy, workers, broker, name server and connections fail."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ..proxy.relay import Relay
from .grpc_farm import Farm
from .grpc_load import Load

ROUNDS = int(os.environ.get("AEROBEE_GRPC_ROUNDS", "1"))  # of the faults of a test
SENDS = 25  # between two faults
FAILED = 3  # calls while a process is frozen

Fault = Callable[[Farm, Load], Awaitable[None]]


async def kill_the_proxy(farm: Farm, load: Load) -> None:
    await farm.restart("proxy")


async def freeze_the_proxy(farm: Farm, load: Load) -> None:
    workers = farm.workers()
    for pid in (farm.pid("proxy"), *workers):
        farm.freeze(pid)
    try:
        await load.more_failures(FAILED)
    finally:
        for pid in (*workers, farm.pid("proxy")):
            farm.go_on(pid)


async def kill_a_worker(farm: Farm, load: Load) -> None:
    os.kill(min(farm.workers()), signal.SIGKILL)
    await load.more_sends(SENDS)


async def freeze_a_worker(farm: Farm, load: Load) -> None:
    pid = min(farm.workers())  # the older one: clients don't leave it for one that starts
    farm.freeze(pid)
    try:
        await load.more_failures(1)
    finally:
        farm.go_on(pid)


async def kill_the_broker(farm: Farm, load: Load) -> None:
    await farm.kill("broker")
    load.forgive_all()
    await farm.begin("broker")
    load.forgive_all()


async def freeze_the_broker(farm: Farm, load: Load) -> None:
    farm.freeze(farm.pid("broker"))
    await load.more_failures(FAILED)
    farm.go_on(farm.pid("broker"))


async def kill_the_name_server(farm: Farm, load: Load) -> None:
    await farm.restart("namesrv")


async def freeze_the_name_server(farm: Farm, load: Load) -> None:
    farm.freeze(farm.pid("namesrv"))
    await load.more_sends(SENDS)
    farm.go_on(farm.pid("namesrv"))


def cuts(relay_of: Callable[[Farm], Relay]) -> list[Fault]:
    """Requests that don't arrive, answers that don't, and a reset of all connections."""

    async def lose_requests(farm: Farm, load: Load) -> None:
        relay_of(farm).lose("requests")
        await load.more_failures(FAILED)
        relay_of(farm).cut()

    async def lose_answers(farm: Farm, load: Load) -> None:
        relay_of(farm).lose("answers")
        await load.more_failures(FAILED)
        relay_of(farm).cut()

    async def reset(farm: Farm, load: Load) -> None:
        relay_of(farm).cut()

    return [lose_requests, lose_answers, reset]


PROXY = [kill_the_proxy, freeze_the_proxy, kill_a_worker, freeze_a_worker]
OTHERS = [kill_the_broker, freeze_the_broker, kill_the_name_server, freeze_the_name_server]
KILLS = [kill_the_proxy, kill_the_broker, kill_the_name_server]
CUTS = cuts(lambda farm: farm.client_relay) + cuts(lambda farm: farm.broker_relay)


@pytest.mark.parametrize(
    ("faults", "library"),
    [
        pytest.param(KILLS, "jh2", id="kills", marks=pytest.mark.smoke),
        pytest.param(PROXY + OTHERS, "jh2", id="processes"),
        pytest.param(CUTS, "h2", id="connections"),
    ],
)
async def test_nothing_acknowledged_is_lost_or_comes_again(
    faults: list[Fault], library: str, tmp_path: Path
) -> None:
    if library == "jh2":
        pytest.importorskip("jh2")
    farm = Farm(tmp_path, library)
    try:
        await farm.start()
        load = Load(farm.name_server, farm.broker, farm.clients_port)
        await load.prepare()
        async with load.running():
            await load.more_sends(SENDS)
            for fault in faults * ROUNDS:
                with load.failing():
                    await fault(farm, load)
                await load.more_sends(SENDS)
            await load.drained()
        await load.read_all()
        faults_found = load.faults()
        assert not faults_found, "\n".join(faults_found)
        if faults is not KILLS:
            assert load.checked, "no transaction was asked about"
            assert load.read["simple"].again, "nothing was delivered a second time"
    finally:
        await farm.stop()
    for role in ("namesrv", "broker", "proxy"):
        assert "Traceback" not in farm.told(role), farm.told(role)
