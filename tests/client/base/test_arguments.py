"""Arguments are checked by the call that takes them; errors name the value and the remedy."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aerobee.client import (
    Consumer,
    ConsumeSettings,
    Limits,
    Message,
    PopSettings,
    Producer,
    PullSettings,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from aerobee.client.cluster.name_servers import read_addresses
from aerobee.client.errors import ClientError


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group": 5}, "group is 5, a int; give its name"),
        ({"tries": "3"}, "tries is '3', a str; give 1 or more"),
        ({"tries": True}, "tries is True, a bool; give 1 or more"),
        ({"tries": 0}, "tries is 0; give 1 or more"),
        ({"under_way_max": 0}, "under_way_max is 0; give 1 or more"),  # nothing would ever be sent
        ({"compress_bytes_min": "4k"}, "compress_bytes_min is '4k', a str; give 0 or more"),
        ({"message_bytes_max": None}, "message_bytes_max is None, a NoneType; give 1 or more"),
        ({"batch_bytes_max": 0}, "batch_bytes_max is 0; give 1 or more"),
        ({"security": "secret"}, r"security is 'secret', a str; give client.Security\("),
    ],
)
def test_an_odd_option_of_a_producer_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        Producer("127.0.0.1:1", **options)


@pytest.mark.parametrize("kind", [Consumer, SimpleConsumer])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group": b"g"}, "group is b'g', a bytes; give its name"),
        ({"topics": "orders"}, "topics is the text 'orders'; give a list of names"),
        ({"topics": None}, "topics is None, a NoneType; give a list of names or a mapping"),
        ({"topics": ["a", 5]}, "one of topics is 5, a int; give names"),
        ({"topics": {5: "*"}}, "one of topics is 5, a int; give names"),
        ({"topics": {"a": None}}, "the expression for topic a is None; give tags"),
        ({"start": None}, "start is None, a NoneType; give 'latest', 'earliest'"),
        ({"start": True}, "start is True, a bool; give 'latest', 'earliest'"),
        ({"start": "yesterday"}, "start is 'yesterday'; give 'latest', 'earliest'"),
    ],
)
def test_an_odd_option_of_a_consumer_is_refused(
    kind: type, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ClientError, match=reason):
        kind("127.0.0.1:1", **({"group": "g", "topics": ["orders"]} | options))


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (Limits, {"messages_max": -1}, "messages_max is -1; give 0 or more"),
        (Limits, {"topic_bytes_max": "1M"}, "topic_bytes_max is '1M', a str; give 0 or more"),
        (PullSettings, {"batch": "32"}, "batch is '32', a str; give 1 to 1024"),
        (PullSettings, {"suspend_ms": 0.5}, "suspend_ms is 0.5, a float; give whole ms"),
        (ConsumeSettings, {"timeout_s": "60"}, "timeout_s is '60', a str; give seconds"),
        (ConsumeSettings, {"max_reconsume_times": "3"}, "max_reconsume_times is '3', a str"),
        (PopSettings, {"batch": 33}, "batch is 33; give 1 to 32"),
        (PopSettings, {"invisible_s": None}, "invisible_s is None, a NoneType; give seconds"),
    ],
)
def test_an_odd_setting_is_refused(kind: type, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        kind(**options)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (9876, 'name_server is 9876, a int; give "host:port"'),
        (["a:1", 5], 'a name server is 5, a int; give "host:port"'),
    ],
)
def test_an_odd_name_server_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        read_addresses(given)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (({"topic": "orders"},), "message is {'topic': 'orders'}, a dict; give a client.Message"),
        ((None,), "message is None, a NoneType; give a client.Message"),
        ((Message("orders", b"x"), "3"), "timeout is '3', a str; give seconds above 0"),
        ((Message("orders", b"x"), None), "timeout is None, a NoneType; give seconds above 0"),
        ((Message("orders", b"x"), 0), "timeout is 0; give seconds above 0"),
        ((Message("orders", b"x"), float("nan")), "timeout is nan; give seconds above 0"),
    ],
)
async def test_odd_arguments_of_a_send_are_refused(arguments: tuple[Any, ...], reason: str) -> None:
    async with (
        Producer("127.0.0.1:1") as producer,
        TransactionProducer(
            "127.0.0.1:1", group="g", check=lambda _: TransactionState.COMMIT
        ) as half,
    ):
        message, *seconds = arguments
        options = {"timeout": seconds[0]} if seconds else {}
        sends: list[Callable[..., Awaitable[object]]] = [
            producer.send,
            producer.send_soon,
            producer.request,
            half.begin,
        ]
        for send in sends:
            with pytest.raises(ClientError, match=reason):
                await send(message, **options)
        with pytest.raises(ClientError, match=reason):
            await producer.send_batch([message], **options)
