"""Signatures as the real classes made them."""

import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.security.signature import (
    signature,
    signed,
    signed_content,
    signing_key,
)

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "acl.json").read_text()
)
OURS = {"AccessKey", "SecurityToken", "Signature"}
REQUESTS = [vector for vector in VECTORS if "extFields" in vector]


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if "data_utf8" in v], ids=lambda v: v["name"]
)
def test_a_text_has_javas_signature(vector: dict[str, Any]) -> None:
    assert signature(vector["secret"], vector["data_utf8"].encode()) == vector["signature"]


@pytest.mark.parametrize("vector", REQUESTS, ids=lambda v: v["name"])
def test_a_request_is_signed_as_java_signs_it(vector: dict[str, Any]) -> None:
    fields = dict(vector["extFields"])
    body = vector.get("body", "").encode()
    plain = {name: text for name, text in fields.items() if name not in OURS}
    # The last vector names no keys; they are those of the others.
    secret = vector.get("secretKey", REQUESTS[0]["secretKey"])
    token = fields.get("SecurityToken")
    assert signed(plain, body, fields["AccessKey"], secret, token) == fields
    del fields["Signature"]
    assert signed_content(fields, body).hex() == vector["signed_content_hex"]


def test_the_vectors_are_there() -> None:
    assert len(REQUESTS) >= 1
    assert len(VECTORS) > len(REQUESTS)


def test_a_security_token_is_signed_too() -> None:
    without = signed({"a": "1"}, b"", "key", "secret")
    found = signed({"a": "1"}, b"", "key", "secret", "token")
    assert found["SecurityToken"] == "token"
    assert found["Signature"] != without["Signature"]


def test_names_are_in_the_order_of_javas_strings() -> None:
    # U+1F600 is two UTF-16 units below U+FF00, though it is a larger code point.
    fields = {"\uff00": "last", "\U0001f600": "middle", "B": "first"}
    assert signed_content(fields, b"!") == b"firstmiddlelast!"


def test_an_old_signature_is_replaced() -> None:
    once = signed({"a": "1"}, b"x", "key", "secret")
    assert signed(once, b"x", "key", "secret") == once


def test_without_a_header_there_is_one_afterwards() -> None:
    assert set(signed(None, b"", "key", "secret")) == {"AccessKey", "Signature"}


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1_000])
def test_a_key_of_any_length_gives_the_hmac_again_and_again(length: int) -> None:
    secret = bytes(number % 251 for number in range(length))
    for content in (b"", b"abc", bytes(1_000)):
        assert signing_key(secret).digest(content) == hmac.digest(secret, content, "sha1")
