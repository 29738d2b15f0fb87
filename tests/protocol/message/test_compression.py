"""Compressed bodies as the real classes made them, and bodies that mean harm."""

import builtins
import json
import zlib
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.message.compression import KINDS, CompressionMissing, compress, decompress
from aerobee.protocol.message.record import (
    COMPRESSED,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

GOLDEN = [
    vector
    for vector in json.loads((Path(__file__).parents[2] / "golden" / "records.json").read_text())
    if "stored_body_hex" in vector
]


def flag_of(vector: dict[str, Any]) -> int:
    found: int = vector["sysFlag_on_wire" if "sysFlag_on_wire" in vector else "sysFlag"]
    return found


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: v["name"])
def test_a_compressed_body_of_java_is_unpacked(vector: dict[str, Any]) -> None:
    body = bytes.fromhex(vector["stored_body_hex"])
    assert decompress(body, flag_of(vector)).decode() == vector["body_text"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_body_back_and_makes_it_smaller(kind: str) -> None:
    body = b"the same again and again " * 1_000
    packed = compress(body, kind=KINDS[kind])
    assert len(packed) < len(body) // 10
    assert decompress(packed, COMPRESSED | KINDS[kind]) == body


@pytest.mark.parametrize("kind", ["lz4", "zstd"])
def test_every_kind_stops_at_the_limit(kind: str) -> None:
    packed = compress(bytes(1 << 20), kind=KINDS[kind])
    with pytest.raises(Malformed, match="more than the limit of 1000"):
        decompress(packed, COMPRESSED | KINDS[kind], 1000)


@pytest.mark.parametrize(("kind", "level"), [("zlib", 10), ("lz4", -1), ("zstd", 0), ("zstd", 23)])
def test_a_level_that_a_kind_does_not_have_is_refused(kind: str, level: int) -> None:
    with pytest.raises(ValueError, match=f"not {level}"):
        compress(b"x", level, KINDS[kind])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *_: object) -> NoReturn:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(CompressionMissing, match="takes the package zstandard"):
        decompress(b"x", COMPRESSED | COMPRESSION_ZSTD)
    assert builtins.__import__ is real


def test_a_plain_body_is_left_alone() -> None:
    assert decompress(b"plain", COMPRESSION_ZLIB) == b"plain"


def test_what_is_compressed_unpacks_to_the_same() -> None:
    body = b"again " * 1000
    assert decompress(compress(body), COMPRESSED | COMPRESSION_ZLIB) == body


def test_a_body_that_unpacks_to_too_much_is_malformed() -> None:
    bomb = zlib.compress(bytes(1 << 20))
    assert len(decompress(bomb, COMPRESSED, bytes_max=1 << 20)) == 1 << 20
    with pytest.raises(Malformed, match="1048575"):
        decompress(bomb, COMPRESSED, bytes_max=(1 << 20) - 1)


@pytest.mark.parametrize("body", [b"", b"garbage", zlib.compress(b"cut off" * 9)[:-6]])
def test_a_body_that_is_broken_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        decompress(body, COMPRESSED)


def test_an_unknown_kind_is_malformed() -> None:
    with pytest.raises(Malformed, match="kind 5"):
        decompress(b"x", COMPRESSED | 0x500)
