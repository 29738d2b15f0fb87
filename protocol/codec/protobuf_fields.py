"""Fields of protobuf messages, for the requests of OpenTelemetry; numbers up to 15."""


def text_field(number: int, text: str) -> bytes:
    """A field with a text."""
    return bytes_field(number, text.encode("utf-8", "replace"))


def bytes_field(number: int, data: bytes) -> bytes:
    """A field with bytes, or with a message of its own."""
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    """A field with a whole number from 0 on."""
    return bytes([number << 3]) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
