"""What an expression may ask of a message."""

import json
import zlib

import pytest
from aerobee.console.messages.fields import Fields
from aerobee.protocol.filters.sql92 import predicate
from aerobee.protocol.message.record import COMPRESSED, Record, decode_record

from ...client.fakes import record

BODY = {"order": {"total": 7.5, "items": [3, {"sku": "a"}]}, "open": True, "none": None}


def stored(body: bytes, sys_flag: int = 0) -> Record:
    raw = b"TAGS\x01paid\x02KEYS\x01k1 k2\x02shop\x01x\x02UNIQ_KEY\x01ID\x02"
    return decode_record(record(3, body, raw_properties=raw, sys_flag=sys_flag))


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("tag = 'paid' AND key CONTAINS 'k2' AND shop = 'x'", True),
        ("id = 'ID' AND topic = 'orders' AND queue = 0 AND offset BETWEEN 3 AND 3", True),
        ("stored = 2 AND born < 2 AND retries = 0", True),
        ("body.order.total > 7", True),
        ("body.order.items.0 = 3 AND body.order.items.1.sku = 'a'", True),
        ("body.order.items.2 IS NULL AND body.order IS NULL AND body.none IS NULL", True),
        ("body.open", True),
        ("body CONTAINS 'total'", True),
        ("body.order.total = 'x'", False),
        ("body.open.x.y IS NOT NULL", False),
    ],
)
def test_fields_are_the_message_s_own_its_properties_and_those_of_its_body(
    text: str, fits: bool
) -> None:
    body = json.dumps(BODY).encode()
    matches = predicate(text, fields=True)
    assert matches(Fields(stored(body))) is fits
    assert matches(Fields(stored(zlib.compress(body), COMPRESSED))) is fits


@pytest.mark.parametrize("body", [b"", b"text", b"\xff\xfe", b"[" * 100_000, b'{"a":', b"{}"])
def test_a_body_without_fields_has_none(body: bytes) -> None:
    fields = Fields(stored(body))
    assert fields.get("body.a") is None
    assert predicate("body.a = 1 OR body.a <> 1", fields=True)(fields) is False


def test_a_body_that_can_not_be_unpacked_matches_nothing() -> None:
    fields = Fields(stored(b"no zlib", COMPRESSED))
    assert (fields.get("body"), fields.get("body.a"), fields.get("tag")) == (None, None, "paid")
