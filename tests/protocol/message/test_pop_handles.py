"""The receipt handles and other texts of pop, compared with texts made by the Java classes."""

import json
from pathlib import Path

import pytest
from aerobee.protocol.message.pop_handles import (
    Handle,
    handle,
    msg_offset_info,
    normal_topic,
    order_count_info,
    parse_handle,
    real_topic,
    retry_flag,
    retry_topic,
    start_offset_info,
)

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "ids.json").read_text("utf-8"))
BY_NAME = {vector["name"]: vector for vector in VECTORS if "name" in vector}
TEXT = "10 1700000000123 60000 3 0 broker-a 2 12"


def test_a_handle_equals_javas() -> None:
    vector = BY_NAME["pop extra info (topic normal)"]
    made = handle(
        vector["ckQueueOffset"], vector["popTime"], vector["invisibleTime"], vector["reviveQid"],
        retry_flag(vector["topic"]), vector["broker"], vector["queueId"], vector["msgQueueOffset"],
    )  # fmt: skip
    assert made == vector["text"]
    assert parse_handle(made) == Handle(10, 1_700_000_000_123, 60_000, 3, "0", "broker-a", 2, 12)


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_a_handle_says_which_retry_topic_its_message_is_in(form: str) -> None:
    vector = BY_NAME[f"pop extra info (retry {form} topic)"]
    topic = retry_topic("TopicA", "CG", v2=form == "v2")
    assert topic == vector["retryTopic"]
    found = parse_handle(vector["text"])
    assert found.retry == retry_flag(topic)
    assert real_topic("TopicA", "CG", found.retry) == topic
    assert normal_topic(topic, "CG") == "TopicA"


def test_a_handle_of_a_queue_has_no_offset_and_an_ordered_one_no_revive_queue() -> None:
    found = parse_handle("10 1700000000123 60000 999 0 broker-a 2")
    assert (found.offset, found.is_order) == (-1, True)
    assert not parse_handle(TEXT).is_order


def test_the_fields_of_a_pop_response_equal_javas() -> None:
    vector = BY_NAME["pop response header infos"]
    starts = [start_offset_info("0", 2, 10), start_offset_info("1", 0, 5)]
    assert ";".join(starts) == vector["startOffsetInfo"]
    offsets = [msg_offset_info("0", 2, [10, 11, 13]), msg_offset_info("1", 0, [5])]
    assert ";".join(offsets) == vector["msgOffsetInfo"]


def test_the_count_of_a_queue_is_the_minimum_of_its_messages() -> None:
    assert order_count_info("0", 2, [11, 12], {}) == "0 2 0"
    assert order_count_info("0", 2, [11, 12], {11: 3}) == "0 qo2%11 3;0 2 0"
    assert order_count_info("0", 2, [11, 12], {11: 3, 12: 1}) == "0 qo2%11 3;0 qo2%12 1;0 2 1"


def test_a_topic_of_its_own_stands_for_itself() -> None:
    assert retry_flag("TopicA") == "0"
    assert real_topic("TopicA", "CG", "0") == normal_topic("TopicA", "CG") == "TopicA"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has 1 words"),
        ("10 1700000000123 60000 3 0 broker-a", "it has 6 words"),
        (TEXT.replace("60000", "soon"), "its invisible time is 'soon'"),
        (TEXT.replace("1700000000123", "-1"), "its pop time is '-1'"),
        (TEXT.replace(" 3 0 ", " 3 7 "), "its retry flag is '7'"),
        (TEXT.replace(" 12", " 9223372036854775808"), "over 2^63 - 1"),
        (TEXT.replace(" 12", " " + "1" * 5_000), "its queue offset is '1{20}'"),
        (TEXT.replace(" 2 ", " \u0662 "), "its queue id is"),
    ],
)
def test_a_text_that_is_not_a_handle_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("^", r"\^")):
        parse_handle(text)


def test_text_that_a_proxy_appends_is_ignored() -> None:
    assert parse_handle(TEXT + " 4711") == parse_handle(TEXT)


def test_an_unknown_retry_flag_has_no_topic() -> None:
    with pytest.raises(ValueError, match="it must be 0, 1 or 2"):
        real_topic("TopicA", "CG", "3")
