"""Messages: the encoding of their fields, and illegal messages."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aerobee.client.base.message import Message, encode_properties
from aerobee.client.errors import IllegalMessageError
from aerobee.protocol.message import properties as props

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_fields_and_properties_are_sent_under_rocketmqs_names() -> None:
    message = Message(
        "t",
        b"x",
        tags="paid",
        keys=["o-1", "o-2"],
        properties={"shop": "é"},
        delay_level=3,
        wait_store=False,
    )
    assert message.all_properties() == {
        "shop": "é",
        "KEYS": "o-1 o-2",
        "TAGS": "paid",
        "DELAY": "3",
        "WAIT": "false",
    }
    assert Message("t", b"x").all_properties() == {}
    assert Message("t", b"x", keys="one").all_properties() == {"KEYS": "one"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("", b"x"), "topic is blank"),
        (Message("a b", b"x"), "illegal characters"),
        (Message("t" * 128, b"x"), "the limit is 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "belongs to the broker"),
        (Message("t", b""), "empty"),
        (Message("t", b"x" * 11), "11 bytes, the limit is 10"),
        (Message("t", b"x", delay_level=-1), "delay_level is -1"),
        (Message("t", b"x", delay=-1), "delay is -1"),
        (Message("t", b"x", delay=math.inf), "delay is inf"),
        (Message("t", b"x", delay=timedelta(days=-1)), "not negative"),
        (Message("t", b"x", delay_level=1, delay=1), "takes one of them"),
        (Message("t", b"x", delay=1, deliver_at=NOON), "takes one of them"),
    ],
)
def test_a_message_that_no_broker_takes_is_refused_with_the_reason(
    message: Message, reason: str
) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        message.check(body_bytes_max=10)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": None}, "topic is None, a NoneType; give a text"),
        ({"topic": b"t"}, "topic is b't', a bytes; give a text"),
        ({"body": "text"}, r"body is 'text', a str; give bytes \(text.encode\(\)"),
        ({"body": None}, "body is None, a NoneType; give bytes"),
        ({"body": "x" * 10_000}, r"body is 'x{99}…, a str; give bytes"),
        ({"tags": ["a"]}, r"tags is \['a'\], a list; give one tag as a text"),
        ({"keys": 7}, "keys is 7, a int; give a text, or a list of texts"),
        ({"keys": b"k"}, "keys is b'k', a bytes; give a text"),
        ({"keys": ["a", 7]}, "one of keys is 7, a int; give texts"),
        ({"properties": [("a", "b")]}, "properties is .*, a list; give names with texts"),
        ({"flag": "1"}, "flag is '1', a str; give a whole number"),
        ({"flag": True, "tags": "a"}, "flag is True, a bool; give a whole number"),
        ({"delay_level": "3"}, "delay_level is '3', a str; give 1 to 18, or 0"),
        ({"wait_store": "no"}, "wait_store is 'no', a str; give True or False"),
        ({"delay": "5s"}, "delay is '5s', a str; give seconds or a timedelta"),
        ({"deliver_at": "tomorrow"}, "deliver_at is 'tomorrow', a str; give a datetime"),
        ({"deliver_at": 1_700_000_000}, "deliver_at is 1700000000, a int; give a datetime"),
    ],
)
def test_a_field_of_another_type_is_refused_where_the_message_is_made(
    fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        Message(**({"topic": "t", "body": b"x"} | fields))


def test_a_field_that_is_set_later_is_looked_at_before_the_message_is_sent() -> None:
    message = Message("t", b"x")
    message.deliver_at = "tomorrow"  # type: ignore[assignment]
    with pytest.raises(IllegalMessageError, match="deliver_at is 'tomorrow', a str"):
        message.check()


def test_keys_that_can_be_read_only_once_are_looked_at_when_they_are_sent() -> None:
    assert Message("t", b"x", keys=iter(["a", "b"])).all_properties() == {"KEYS": "a b"}
    with pytest.raises(IllegalMessageError, match="one of keys is 7, a int"):
        Message("t", b"x", keys=iter([7])).all_properties()  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [["o 1"], ["a", "o 1"], {"o 1"}, iter(["o 1"])])
def test_a_key_with_a_blank_is_refused_since_it_would_become_two_keys(keys: Any) -> None:
    with pytest.raises(IllegalMessageError, match=r"the key 'o 1' has a blank, .* as a list"):
        Message("t", b"x", keys=keys).all_properties()


def test_a_text_of_keys_has_blanks_between_them_as_in_rocketmq() -> None:
    assert Message("t", b"x", keys="o-1 o-2").all_properties()[props.KEYS] == "o-1 o-2"


def test_a_key_that_is_set_later_is_looked_at_before_the_message_is_sent() -> None:
    message = Message("t", b"x")
    message.keys = ["o" * 200 + " 1"]
    with pytest.raises(IllegalMessageError, match=r"the key 'o{99}… has a blank"):
        message.check()


@pytest.mark.parametrize("name", sorted(props.RESERVED))
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(IllegalMessageError, match="reserved"):
        Message("t", b"x", properties={name: "v"}).all_properties()


@pytest.mark.parametrize(
    ("name", "text"), [("", "v"), ("n", ""), ("n", " "), ("n\x01", "v"), ("n", "v\x02"), ("n", 1)]
)
def test_properties_that_would_be_read_differently_are_refused(name: str, text: str) -> None:
    with pytest.raises(IllegalMessageError, match="property"):
        Message("t", b"x", properties={name: text}).all_properties()


def test_a_separator_in_tags_or_keys_is_refused() -> None:
    with pytest.raises(IllegalMessageError, match="TAGS"):
        Message("t", b"x", tags="a\x02b").all_properties()
    with pytest.raises(IllegalMessageError, match="KEYS"):
        Message("t", b"x", keys=["a\x01b"]).all_properties()


def test_properties_over_the_limit_are_refused_with_the_sizes() -> None:
    room = props.PROPERTIES_BYTES_MAX - len("n\x01\x02")
    assert len(encode_properties({"n": "v" * room})) == props.PROPERTIES_BYTES_MAX
    with pytest.raises(IllegalMessageError, match="32768 bytes together, the limit is 32767"):
        encode_properties({"n": "v" * (room + 1)})


@pytest.mark.parametrize(
    ("message", "pair"),
    [
        (Message("t", b"x", delay=90), ("TIMER_DELAY_MS", "90000")),
        (Message("t", b"x", delay=0.0015), ("TIMER_DELAY_MS", "2")),
        (Message("t", b"x", delay=timedelta(days=30)), ("TIMER_DELAY_MS", "2592000000")),
        (Message("t", b"x", deliver_at=NOON), ("TIMER_DELIVER_MS", "1767268800000")),
        (Message("t", b"x", delay_level=3), ("DELAY", "3")),
    ],
)
def test_each_form_of_delay_has_its_property(message: Message, pair: tuple[str, str]) -> None:
    message.check()
    assert message.is_delayed
    assert message.all_properties() == dict([pair])


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 1, 12)
    pairs = Message("t", b"x", deliver_at=local).all_properties()
    assert pairs["TIMER_DELIVER_MS"] == str(int(local.astimezone(UTC).timestamp() * 1000))
