"""Clients of aerobee 0.1: they change to headers of msgpack once a response names PYTHON."""

from aerobee.protocol import codes
from aerobee.protocol.command import Command

from ..clocks import Clock
from .conftest import Config, Run
from .popping import Popper

ON_BOTH_ENGINES = True


async def test_no_response_makes_an_older_client_change_its_headers(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    popper = Popper(broker, caller, clock)
    responses: dict[str, Command] = {
        "send": await caller.send("T"),
        "send with a delay": await caller.send("T", DELAY="1"),
        "refused send": await caller.send("", queue_id=99),
        "pull": await caller.pull("T"),
        "empty pull": await caller.pull("T", 99),
        "pop": await popper.ask(),
        "empty pop": await popper.ask(),
        "settings": await caller.ask(codes.GET_BROKER_CONFIG),
    }
    assert {what: answer.language for what, answer in responses.items()} == dict.fromkeys(
        responses, "JAVA"
    )
    assert responses["pop"].body
    assert responses["pull"].body
