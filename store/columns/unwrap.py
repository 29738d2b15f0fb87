"""Turns compressed records and batches stored as one record into single uncompressed records.

Decoding reads single uncompressed records only. This slow path is for compressed records and
batches: each is written again as the broker would have stored it without compression or batching.
Other records are copied unchanged.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol.errors import Malformed
from ...protocol.message.batch import unwrap
from ...protocol.message.compression import decompress
from ...protocol.message.record import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZSTD,
    INNER_BATCH,
    NEED_UNWRAP,
    Record,
    decode_record,
    encode_record,
)
from ..log.records import Records

BATCH = NEED_UNWRAP | INNER_BATCH

# Brokers take 4 MiB by default. A small body that unpacks to more than this is an attack.
UNPACKED_BODY_BYTES_MAX = 64 << 20

# Arrow has these codecs, so a worker needs no further package. Its lz4 is the frame format, as is
# RocketMQ's.
_ARROW_CODECS = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}


def needs_unwrap(sys_flags: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which records with these sysFlags are compressed, or batches in one record."""
    needs: NDArray[np.bool_] = ((sys_flags & COMPRESSED) != 0) | ((sys_flags & BATCH) == BATCH)
    return needs


def unwrapped(records: Records) -> bytes:
    """The same messages as single uncompressed records, one after the other.

    A message inside a batch has its own flag, body and properties. Its queue offset is the batch's
    plus its index in the batch; everything else is the batch's. Malformed, with the queue offset,
    when a body can't be unpacked.
    """
    out: list[bytes] = []
    ends = [*records.starts[1:].tolist(), len(records.data)]
    packed = needs_unwrap(records.sys_flags).tolist()
    for start, end, is_packed in zip(records.starts.tolist(), ends, packed, strict=True):
        if not is_packed:
            out.append(records.data[start:end])
            continue
        record = decode_record(records.data, start)
        try:
            record.body = _unpacked(record)
            record.sys_flag &= ~COMPRESSED  # as Java's decoder: the kind stays
            out += [encode_record(inner) for inner in unwrap(record)]
        except (Malformed, OSError, pa.ArrowException) as wrong:
            raise Malformed(
                f"the body at queue offset {record.queue_offset} of topic {record.topic} "
                f"does not unpack: {wrong}"
            ) from None
    return b"".join(out)


def _unpacked(record: Record) -> bytes:
    codec = _ARROW_CODECS.get(record.sys_flag & COMPRESSION_MASK)
    if codec is None or not record.sys_flag & COMPRESSED:
        return decompress(record.body, record.sys_flag, UNPACKED_BODY_BYTES_MAX)
    stream = pa.CompressedInputStream(pa.BufferReader(record.body), codec)
    body: bytes = stream.read(UNPACKED_BODY_BYTES_MAX + 1)
    if len(body) > UNPACKED_BODY_BYTES_MAX:
        raise Malformed(
            f"{len(record.body)} bytes unpack to more than the limit of {UNPACKED_BODY_BYTES_MAX}"
        )
    return body
