"""Frames: where one command ends and the next begins.

    offset 0  int32  length of everything that follows
    offset 4  uint8  header codec, uint24 length of the header
    offset 8  header, then body

`FrameDecoder` is a function of bytes: the same bytes give the same commands, however they are cut
into chunks. Bytes that are no frame set `fault`; nothing after them is read.
"""

from collections.abc import Iterable
from struct import Struct

from .. import codes
from ..command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    LANGUAGE,
    RESPONSE_LANGUAGE,
    VERSION,
    Command,
    Response,
)
from ..errors import Malformed, Refusal
from . import header_binary, header_json

FRAME_BYTES_MAX = 16 << 20  # the whole frame with its length field, as in RocketMQ
HEAD = Struct(
    ">"
    "i"  # length of what follows
    "I"
)  # codec in the top byte, header length below
HEAD_BYTES = HEAD.size
assert HEAD_BYTES == 8
LENGTH_BYTES = 4
HEADER_BYTES_MASK = 0xFFFFFF
_HTTP_STARTS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PRI ", b"HTTP"))
_TLS_START = b"\x16\x03"  # a handshake record of any version

HEADS_KEPT = 4_096


class _Heads(dict[int, bytes]):
    """The eight bytes before a JSON header, by the header's size; for frames without a body."""

    def __missing__(self, size: int) -> bytes:
        found = HEAD.pack(LENGTH_BYTES + size, size)
        if len(self) < HEADS_KEPT:
            self[size] = found
        return found


# For the hot path: a size that was used before costs no call.
HEADS = _Heads()

CODECS = (header_json, header_binary)
_DECODERS = tuple(codec.decode for codec in CODECS)
_unpack_head = HEAD.unpack_from
_decode_json = header_json.decode
START_BYTES = header_json.START_BYTES


class FrameDecoder:
    """Collects bytes and returns whole commands.

    `fault` is None until bytes arrive that are no frame; the connection then closes. `rest` is the
    start of an incomplete frame, so the decoder never holds more than one frame
    (`FRAME_BYTES_MAX`) plus the bytes of one read. `begun` counts the frames that did not arrive in
    one read; `rest` has the last of them. `expected` has the decoders of whole JSON headers, by the
    start of the header.
    """

    __slots__ = ("_expected", "_need", "begun", "fault", "rest")

    def __init__(self, expected: header_json.Expected = header_json.NOTHING_EXPECTED) -> None:
        self._expected = expected
        self.rest = bytearray()
        self._need = HEAD_BYTES
        self.begun = 0
        self.fault: Malformed | None = None

    @property
    def missing(self) -> int:
        """The least number of bytes that the incomplete frame lacks; 0 between two frames."""
        return max(0, self._need - len(self.rest)) if self.rest else 0

    def feed(self, data: bytes) -> list[Command]:
        """All commands that are complete now, in order."""
        if self.rest:
            self.rest += data
            if len(self.rest) < self._need:
                return []
            data = bytes(self.rest)
            self.rest.clear()
        commands: list[Command] = []
        if self.fault is not None:
            return commands
        at, size = 0, len(data)
        need = HEAD_BYTES
        expected = self._expected
        try:
            while size - at >= HEAD_BYTES:
                length, mixed = _unpack_head(data, at)
                end = at + LENGTH_BYTES + length
                header_end = at + HEAD_BYTES + (mixed & HEADER_BYTES_MASK)
                if header_end > end or length > FRAME_BYTES_MAX - LENGTH_BYTES:
                    raise Malformed(_explain(length, mixed))
                if end > size:
                    need = end - at
                    break
                body = data[header_end:end] if header_end < end else None
                codec = mixed >> 24
                if codec == 0:
                    header = data[at + HEAD_BYTES : header_end]
                    decode_whole = expected.get(header[:START_BYTES])
                    if decode_whole is None:
                        command = _decode_json(header, body)
                    else:
                        try:
                            command = decode_whole(header)
                            command.body = body
                            command.codec = 0
                        except (ValueError, RecursionError):
                            command = _decode_json(header, body)
                    commands.append(command)
                elif codec < len(_DECODERS):
                    header = data[at + HEAD_BYTES : header_end]
                    commands.append(_DECODERS[codec](header, body))
                else:
                    raise Malformed(f"header codec {codec} is unknown; 0 and 1 are known")
                at = end
        except Malformed as fault:
            self.fault = fault
            return commands
        if at < size:
            self.begun += 1
            self.rest += data[at:]
            self._need = need
            if size - at < HEAD_BYTES:
                self._check_length(size - at)
        return commands

    def _check_length(self, here: int) -> None:
        """Check the length in an incomplete head: an illegal one is a fault, whatever follows."""
        if here < LENGTH_BYTES:
            self._need = LENGTH_BYTES
            return
        length = int.from_bytes(self.rest[:LENGTH_BYTES], "big", signed=True)
        if not LENGTH_BYTES <= length <= FRAME_BYTES_MAX - LENGTH_BYTES:
            self.fault = Malformed(_explain(length, 0))


def encode_request(
    code: int,
    opaque: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    oneway: bool = False,
    codec: int = 0,
    version: int = VERSION,
    language: str = LANGUAGE,
) -> bytes:
    """The frame of a request."""
    flag = FLAG_ONEWAY if oneway else 0
    header = CODECS[codec].encode(code, flag, opaque, version, language, fields, None)
    return frame(header, codec, body)


def too_large(size: int) -> Refusal:
    """The refusal instead of a response of at least `size` bytes, which is over the limit.

    The reader of such a frame would close the connection.
    """
    return Refusal(
        codes.SYSTEM_ERROR,
        f"the answer has {size} bytes or more, the limit of a frame is {FRAME_BYTES_MAX} bytes; "
        "ask for less at a time",
    )


def encode_response(request: Command, reply: Response) -> list[bytes]:
    """The frame of a response to `request`, in its codec, as buffers to write in order.

    A response that is larger than a frame may be is replaced by a refusal that says so.
    """
    codec = request.codec
    header = CODECS[codec].encode(
        reply.code,
        FLAG_RESPONSE,
        request.opaque,
        VERSION,
        RESPONSE_LANGUAGE,
        reply.fields,
        reply.remark,
    )
    body = reply.body
    if isinstance(body, list):
        size = sum(map(len, body))
        if size + len(header) > FRAME_BYTES_MAX - HEAD_BYTES:
            return encode_response(request, _refused(size + len(header)))
        head = HEAD.pack(LENGTH_BYTES + len(header) + size, codec << 24 | len(header))
        return [head, header, *body]
    if body and len(body) + len(header) > FRAME_BYTES_MAX - HEAD_BYTES:
        return encode_response(request, _refused(len(body) + len(header)))
    return [frame(header, codec, body or b"")]


def _refused(size: int) -> Response:
    refusal = too_large(size)
    return Response(refusal.code, remark=refusal.remark)


def frame(header: bytes, codec: int = 0, body: bytes = b"") -> bytes:
    """A frame around an encoded header and a body."""
    size = len(header)
    return b"".join((HEAD.pack(LENGTH_BYTES + size + len(body), codec << 24 | size), header, body))


def decode_all(data: bytes) -> Iterable[Command]:
    """The commands in `data`, a sequence of whole frames; Malformed for a frame that is illegal."""
    decoder = FrameDecoder()
    commands = decoder.feed(data)
    if decoder.fault is not None:
        raise decoder.fault
    return commands


def _explain(length: int, mixed: int) -> str:
    header = mixed & HEADER_BYTES_MASK
    if length > FRAME_BYTES_MAX - LENGTH_BYTES:
        size = f"a frame of {length + LENGTH_BYTES} bytes is over the limit of {FRAME_BYTES_MAX}"
        return f"{size}{_other_protocol(length)}"
    return f"a frame of {length} bytes can't hold a header of {header} bytes"


def _other_protocol(length: int) -> str:
    """A hint if the first four bytes are of a protocol that often reaches the wrong port."""
    start = length.to_bytes(4, "big", signed=True)
    if start in _HTTP_STARTS:
        return f"; it begins with {start!r}, which is HTTP: one of the two has the wrong port"
    if start.startswith(_TLS_START):
        return "; it begins as TLS does (22, 3), which is not spoken here: see tlsServerMode"
    return ""
