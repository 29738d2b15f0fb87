"""A gRPC message as a send request: properties, flags, and each limit with its code."""

from typing import Any

import pytest
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.record import COMPRESSED, TRANSACTION_PREPARED
from aerobee.proxy.messages.sending import FORBIDDEN, Outgoing, outgoing
from aerobee.proxy.messages.status import Code, StatusError
from aerobee.proxy.settings.config import ProxyConfig

from ..support import TYPES, message

NOW = 1_700_000_000_000
PEER = "192.0.2.7:5000"


def made(body: str | bytes = "x", topic: str = "T", **system: Any) -> Outgoing:
    return outgoing(message(topic, body, **system), ProxyConfig(), PEER, NOW)


def refusal(*args: Any, **system: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        made(*args, **system)
    return caught.value


def test_every_field_becomes_its_property() -> None:
    found = made(
        message_id="ID",
        tag="t",
        keys=["a", "b"],
        message_group="g",
        trace_context="ctx",
        born_timestamp={"seconds": 5, "nanos": 7_000_000},
        delivery_attempt=0,
        user_properties={"color": "red"},
    )
    assert props.decode(found.properties) == {
        "color": "red",
        "TAGS": "t",
        "KEYS": "a b",
        "UNIQ_KEY": "ID",
        "RECONSUME_TIME": "0",
        "PGROUP": "T",
        "__SHARDINGKEY": "g",
        "TRACE_CONTEXT": "ctx",
        "__BORNHOST": PEER,
        "BORN_TIMESTAMP": "5007",
    }
    assert (found.kind, found.group, found.born_ms, found.sys_flag) == ("FIFO", "g", 5_007, 0)


def test_a_host_that_is_given_is_kept() -> None:
    assert props.decode(made(born_host="h").properties)["__BORNHOST"] == "h"


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ({}, "NORMAL"),
        ({"message_group": "g"}, "FIFO"),
        ({"message_type": TYPES["NORMAL"], "delivery_timestamp": {"seconds": 1}}, "DELAY"),
        ({"message_type": TYPES["TRANSACTION"], "message_group": "g"}, "TRANSACTION"),
        ({"message_type": TYPES["FIFO"]}, "NORMAL"),
    ],
)
def test_the_kind_follows_from_the_properties(system: dict[str, Any], kind: str) -> None:
    assert made(**system).kind == kind


def test_a_transaction_is_prepared_and_says_when_it_may_be_checked() -> None:
    found = made(
        message_type=TYPES["TRANSACTION"], orphaned_transaction_recovery_duration={"seconds": 30}
    )
    pairs = props.decode(found.properties)
    assert found.sys_flag == TRANSACTION_PREPARED
    assert (pairs["TRAN_MSG"], pairs["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")


def test_a_gzip_body_is_marked_and_left_alone() -> None:
    found = made(b"\x1f\x8bodd", body_encoding=2)
    assert (found.body, found.sys_flag) == (b"\x1f\x8bodd", COMPRESSED)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"body": ""}, Code.MESSAGE_BODY_EMPTY),
        ({"body": "x" * ((4 << 20) + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"user_properties": {str(n): "v" for n in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"user_properties": {"a": "v" * 16_384}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"user_properties": {"KEYS": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user_properties": {"a\n": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"user_properties": {"a": "v\x01"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"keys": ["a", "\t"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "a\x02"}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
        ({"topic": "TBW102"}, Code.ILLEGAL_TOPIC),
        ({"delivery_timestamp": {"seconds": 10**15}}, Code.ILLEGAL_DELIVERY_TIME),
        ({"born_timestamp": {"nanos": -(10**9)}}, Code.BAD_REQUEST),
        (
            {
                "message_type": TYPES["TRANSACTION"],
                "orphaned_transaction_recovery_duration": {"seconds": 3_601},
            },
            Code.BAD_REQUEST,
        ),
    ],
)
def test_each_limit_has_its_code(fields: dict[str, Any], code: Code) -> None:
    fields = dict(fields)
    wrong = refusal(fields.pop("body", "x"), fields.pop("topic", "T"), **fields)
    assert wrong.code == code
    assert wrong.message


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_no_user_sets_what_brokers_act_on(name: str) -> None:
    assert refusal(user_properties={name: "v"}).message == f"property is used by system: {name}"
