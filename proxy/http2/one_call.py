"""One call as a client: for tools that check whether a proxy serves."""

import asyncio
import ssl
from typing import Any

from . import library
from .call import PREFIX

ANSWER_BYTES_MAX = 16 << 20
READ_BYTES = 64 << 10


class CallError(Exception):
    """The call has no answer; the reason in one sentence."""


async def one_call(
    address: tuple[str, int],
    path: str,
    request: bytes,
    metadata: dict[str, str],
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = 5.0,
) -> bytes:
    """The answer of an RPC with one, over a connection of its own. `address` is host and port.

    OSError when there is no connection, CallError when there is no answer.
    """
    host, port = address
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                return await _exchange(reader, writer, f"{host}:{port}", path, request, metadata)
            finally:
                writer.close()
    except TimeoutError:
        raise CallError(f"no answer within {seconds:g} s") from None


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    authority: str,
    path: str,
    request: bytes,
    metadata: dict[str, str],
) -> bytes:
    machine = library.new_client()
    machine.initiate_connection()
    stream = machine.get_next_available_stream_id()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    pairs = [(name.encode(), value.encode()) for name, value in (headers | metadata).items()]
    machine.send_headers(stream, pairs)
    machine.send_data(stream, PREFIX.pack(0, len(request)) + request, end_stream=True)
    writer.write(machine.data_to_send())
    body, status, text = bytearray(), b"", b""
    while True:
        data = await reader.read(READ_BYTES)
        if not data:
            raise CallError("the connection was closed before the answer")
        try:
            found = machine.receive_data(data)
        except library.exceptions.ProtocolError as wrong:
            raise CallError(f"the answer is no HTTP/2: {wrong}") from None
        for event in found:
            if isinstance(event, library.events.DataReceived):
                body += event.data
                machine.acknowledge_received_data(event.flow_controlled_length, stream)
            headers_of: Any = getattr(event, "headers", None)
            if headers_of:
                named = dict(headers_of)
                status = named.get(b"grpc-status", status)
                text = named.get(b"grpc-message", text)
            if isinstance(event, (library.events.StreamEnded, library.events.StreamReset)):
                return _answer(bytes(body), status, text)
        if len(body) > ANSWER_BYTES_MAX:
            raise CallError(
                f"the answer has more than {ANSWER_BYTES_MAX} bytes, which is the limit"
            )
        writer.write(machine.data_to_send())


def _answer(body: bytes, status: bytes, text: bytes) -> bytes:
    if status != b"0":
        raise CallError(f"grpc-status is {status.decode()!r}: {text.decode(errors='replace')}")
    if len(body) < PREFIX.size:
        raise CallError(f"the answer has {len(body)} bytes; {PREFIX.size} and more are needed")
    compressed, size = PREFIX.unpack_from(body)
    if compressed or len(body) != PREFIX.size + size:
        raise CallError("the answer is compressed or not one message")
    return body[PREFIX.size :]
