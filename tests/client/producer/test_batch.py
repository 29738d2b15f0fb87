"""Batches: splitting by size and count, order, and message ids."""

from itertools import count

import pytest
from aerobee.client.base.message import Message
from aerobee.client.base.receipts import SendReceipt, SendStatus
from aerobee.client.errors import IllegalMessageError
from aerobee.client.producer.batch import Part, send_parts, split
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.batch import split_batch


def cut(messages: list[Message], **limits: int) -> list[Part]:
    numbers = count()
    return list(split(messages, lambda: f"ID{next(numbers)}", 1000, **limits))


def test_a_small_batch_is_one_part_that_decodes_to_its_messages() -> None:
    messages = [Message("t", b"a", tags="x", flag=7), Message("t", b"b", keys="k")]
    (part,) = cut(messages)
    first, second = split_batch(part.body)
    assert (first.body, first.flag, second.body) == (b"a", 7, b"b")
    assert props.decode(first.raw_properties) == {"TAGS": "x", "UNIQ_KEY": "ID0"}
    assert props.decode(second.raw_properties) == {"KEYS": "k", "UNIQ_KEY": "ID1"}
    assert part.ids == ["ID0", "ID1"]
    assert part.size == len(part.body)


def test_parts_keep_the_order_and_stay_below_the_size() -> None:
    messages = [Message("t", b"%03d" % number * 10) for number in range(100)]
    parts = cut(messages, bytes_max=300)
    assert len(parts) > 10
    assert all(len(part.body) <= 300 for part in parts)
    assert [message for part in parts for message in part.messages] == messages
    assert [each for part in parts for each in part.ids] == [f"ID{at}" for at in range(100)]


def test_parts_stay_below_the_count() -> None:
    parts = cut([Message("t", b"x")] * 10, messages_max=4)
    assert [len(part.messages) for part in parts] == [4, 4, 2]


def test_a_message_larger_than_a_part_goes_alone() -> None:
    sizes = [10, 500, 10]
    parts = cut([Message("t", b"x" * size) for size in sizes], bytes_max=100)
    assert [[len(each.body) for each in part.messages] for part in parts] == [[10], [500], [10]]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ([Message("t", b"x"), Message("u", b"x")], "topics t and u"),
        ([Message("t", b"x"), Message("t", b"x", wait_store=False)], "wait_store"),
        ([Message("t", b"x", delay_level=2)], "message with a delay"),
        ([Message("t", b"x", delay=2)], "message with a delay"),
        ([Message("%RETRY%g", b"x")], "takes no batches"),
        ([Message("t", b"x" * 1001)], "the limit is 1000"),
    ],
)
def test_what_no_broker_takes_as_a_batch_is_refused(messages: list[Message], reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        cut(messages)


async def test_a_batch_that_a_defect_cut_short_is_never_said_to_be_sent() -> None:
    async def send(part: Part) -> SendReceipt:
        if part.messages[0].body == b"2":
            raise ZeroDivisionError("a defect")
        return SendReceipt(part.ids[0], "", MessageQueue("t", "b", 0), 0, SendStatus.OK)

    parts = cut([Message("t", b"%d" % number) for number in range(4)], messages_max=1)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        await send_parts(parts, send, 2)
