"""Compressed bodies as the real classes made them, and bodies that mean harm."""

import builtins
import importlib.util
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.compression import CompressionMissing, compress, decompress
from aerobee.protocol.errors import Malformed
from aerobee.protocol.record import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

GOLDEN = [
    vector
    for vector in json.loads((Path(__file__).parents[1] / "golden" / "records.json").read_text())
    if "stored_body_hex" in vector
]
PACKAGES = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstandard"}


def flag_of(vector: dict) -> int:
    return vector.get("sysFlag_on_wire", vector.get("sysFlag"))


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: v["name"])
def test_a_compressed_body_of_java_is_unpacked_or_names_the_missing_package(vector: dict) -> None:
    flag = flag_of(vector)
    body = bytes.fromhex(vector["stored_body_hex"])
    package = PACKAGES.get(flag & COMPRESSION_MASK)
    if package is not None and importlib.util.find_spec(package) is None:
        with pytest.raises(CompressionMissing, match=package):
            decompress(body, flag)
        return
    assert decompress(body, flag).decode() == vector["body_text"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(CompressionMissing, match="install the package zstandard"):
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
