"""The bloom filter of RocketMQ's property filters: which bits a group of consumers has.

Java's broker can note for each message which expressions it matches, as bits, and a file of filters
whose bits are not those of its own settings it throws away as a whole. So the bits are worked out
here as there, by MurmurHash3; nothing here reads or writes bits of messages.
"""

import math
from struct import Struct

from ...protocol.bodies.filters import BloomFilterData

BLOCK = Struct("<QQ")
MASK_64 = (1 << 64) - 1
# The constants of MurmurHash3 x64, 128 bits.
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
ADD1, ADD2 = 0x52DCE729, 0x38495AB5
MIX1, MIX2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


class BloomFilter:
    """Bits for `consumers` groups with a share of false hits of `error_rate` percent."""

    def __init__(self, error_rate: int, consumers: int) -> None:
        rate = error_rate / 100
        self.hashes = math.ceil(math.log(rate) / math.log(0.5))
        least = math.ceil(consumers * _log2(1 / rate) * _log2(math.e))
        self.bits = 8 * math.ceil(least / 8)

    def generate(self, text: str) -> BloomFilterData:
        """The bits of a text."""
        found = murmur3(text.encode(errors="replace"))
        first, second = found & 0xFFFFFFFF, found >> 32
        positions = []
        for number in range(1, self.hashes + 1):
            combined = (first + number * second) & 0xFFFFFFFF
            if combined >> 31:  # negative in Java, which then turns all bits over
                combined ^= 0xFFFFFFFF
            positions.append(combined % self.bits)
        return BloomFilterData(self.bits, positions)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Whether these bits can come from this filter."""
        return data is not None and data.bit_num == self.bits and len(data.bit_pos) == self.hashes


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, as a number without a sign."""
    h1 = h2 = 0
    whole = len(data) // BLOCK.size * BLOCK.size
    for k1, k2 in BLOCK.iter_unpack(data[:whole]):
        h1 = (_rotated(h1 ^ _first(k1), 27) + h2) * 5 + ADD1 & MASK_64
        h2 = (_rotated(h2 ^ _second(k2), 31) + h1) * 5 + ADD2 & MASK_64
    k1, k2 = BLOCK.unpack(data[whole:].ljust(BLOCK.size, b"\0"))
    h1 ^= _first(k1) ^ len(data)
    h2 ^= _second(k2) ^ len(data)
    h1 = h1 + h2 & MASK_64
    h2 = h2 + h1 & MASK_64
    return _mixed(h1) + _mixed(h2) & MASK_64


def _log2(value: float) -> float:
    return math.log(value) / math.log(2)  # as Java computes it, to the last bit


def _first(block: int) -> int:
    return _rotated(block * C1 & MASK_64, 31) * C2 & MASK_64


def _second(block: int) -> int:
    return _rotated(block * C2 & MASK_64, 33) * C1 & MASK_64


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & MASK_64


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * MIX1 & MASK_64
    value = (value ^ value >> 33) * MIX2 & MASK_64
    return value ^ value >> 33
