"""Compressed bodies: zlib always, LZ4 and ZSTD where their packages are installed.

The kind stands in three bits of the system flag. No body may unpack to more than a limit, so that a
few kilobytes can't fill the memory of a reader.
"""

import importlib
import zlib
from typing import Any

from ..errors import Malformed
from .record import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    Data,
)

UNPACKED_BYTES_MAX = 64 << 20
LEVEL = 5  # of RocketMQ's producers, for each kind in its own scale
KINDS = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}

_PACKAGES = {COMPRESSION_LZ4: ("LZ4", "lz4.frame"), COMPRESSION_ZSTD: ("ZSTD", "zstandard")}


class CompressionMissing(Exception):
    """The package for this kind of compression is not installed."""


def compress(body: Data, level: int = LEVEL, kind: int = COMPRESSION_ZLIB) -> bytes:
    """The body compressed; set COMPRESSED and `kind` (one of `KINDS`) in the system flag.

    CompressionMissing when it takes a package that is not there; ValueError for a level that the
    kind doesn't have.
    """
    if kind == COMPRESSION_ZLIB:
        if not 0 <= level <= 9:
            raise ValueError(f"zlib has levels 0 to 9, not {level}")
        return zlib.compress(body, level)
    package = _package(kind)
    if kind == COMPRESSION_LZ4:
        if not 0 <= level <= 16:
            raise ValueError(f"lz4 has levels 0 to 16, not {level}")
        packed: bytes = package.compress(bytes(body), compression_level=level)
        return packed
    if not 1 <= level <= 22:
        raise ValueError(f"zstd has levels 1 to 22, not {level}")
    packed = package.ZstdCompressor(level).compress(body)
    return packed


def decompress(body: bytes, sys_flag: int, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """The body as its sender had it; the same when the system flag has no COMPRESSED bit.

    Malformed when it can't be unpacked or is larger than `bytes_max`; CompressionMissing when it
    takes a package that is not there.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK
    try:
        if kind in (0, COMPRESSION_ZLIB):  # 0: clients from before there was a choice
            unpacked = _unpack(zlib.decompressobj(), body, bytes_max)
        elif kind == COMPRESSION_LZ4:
            unpacked = _unpack(_package(kind).LZ4FrameDecompressor(), body, bytes_max)
        elif kind == COMPRESSION_ZSTD:
            reader = _package(kind).ZstdDecompressor().stream_reader(body)
            unpacked = reader.read(bytes_max + 1)
        else:
            raise Malformed(f"compression kind {kind >> 8} is unknown; 0 to 3 are in use")
    except (Malformed, CompressionMissing):
        raise
    except Exception as wrong:  # each package has an error class of its own
        raise Malformed(
            f"a compressed body of {len(body)} bytes can't be unpacked: {wrong}"
        ) from None
    if len(unpacked) > bytes_max:
        raise Malformed(
            f"a compressed body of {len(body)} bytes unpacks to more than the limit of {bytes_max}"
        )
    return unpacked


def _unpack(unpacker: Any, body: bytes, bytes_max: int) -> bytes:
    unpacked: bytes = unpacker.decompress(body, bytes_max + 1)
    if not unpacker.eof and len(unpacked) <= bytes_max:
        raise Malformed(f"a compressed body of {len(body)} bytes is cut off")
    return unpacked


def _package(kind: int) -> Any:
    name, module = _PACKAGES[kind]
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise CompressionMissing(
            f"{name} takes the package {package}, which is not installed; install "
            "aerobee[compression]"
        ) from None
