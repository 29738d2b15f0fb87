"""The bloom filter of RocketMQ's property filters: the bits of a consumer group.

A Java broker can note for each message which expressions it matches, as bits. It rejects a whole
file of filters whose bits don't fit its own settings. So the bits are computed here in the same
way, by MurmurHash3. The bits of messages are neither read nor written here.
"""

import math

import mmh3

from ...protocol.bodies.subscription import BloomFilterData


class BloomFilter:
    """Bits for `consumers` groups with `error_rate` percent of false positives."""

    def __init__(self, error_rate: int, consumers: int) -> None:
        rate = error_rate / 100
        self.hashes = math.ceil(math.log(rate) / math.log(0.5))
        least = math.ceil(consumers * _log2(1 / rate) * _log2(math.e))
        self.bits = 8 * math.ceil(least / 8)

    def generate(self, text: str) -> BloomFilterData:
        """The bits of a text."""
        low, _ = mmh3.hash64(text.encode(errors="replace"), signed=False)
        first, second = low & 0xFFFFFFFF, low >> 32
        positions = []
        for number in range(1, self.hashes + 1):
            combined = (first + number * second) & 0xFFFFFFFF
            if combined >> 31:  # negative in Java, where ~ then inverts all bits
                combined ^= 0xFFFFFFFF
            positions.append(combined % self.bits)
        return BloomFilterData(self.bits, positions)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """True if these bits can come from this filter."""
        return data is not None and data.bit_num == self.bits and len(data.bit_pos) == self.hashes


def _log2(value: float) -> float:
    return math.log(value) / math.log(2)  # as Java computes it, to the last bit
