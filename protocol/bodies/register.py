"""The body of REGISTER_BROKER: the topics of a broker, as JSON or in deflated parts."""

import zlib
from struct import Struct

from msgspec import field

from .body import Body, read
from .data_version import DataVersion
from .topic import TopicConfig, TopicConfigAndMappingSerializeWrapper
from .topic_queue_mapping import TopicQueueMappingInfo

INFLATED_BYTES_MAX = 64 << 20  # of a compressed body; four times that of an uncompressed one
VERSION_WITH_MAPPINGS = 413  # V5_0_0 and later append the static topics

_LENGTH = Struct(">i")


class RegisterBrokerBody(Body):
    """All topics of a broker, or the ones that changed.

    `filter_server_list` None means that nothing is said about filter servers.
    """

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] | None = []

    @classmethod
    def decode_compressed(cls, data: bytes | None, version: int) -> "RegisterBrokerBody":
        """The body that a broker of this MQVersion deflated; ValueError when it can't be read.

        Each part is behind its length. The form knows no sys flag and no order of topics.
        """
        parts = _Parts(_inflated(data or b""))
        wrapper = TopicConfigAndMappingSerializeWrapper()
        wrapper.data_version = DataVersion.decode(parts.part("the data version"))
        for _ in range(parts.number("the number of topics")):
            topic = TopicConfig.from_line(parts.part("a topic").decode())
            assert topic.topic_name is not None
            wrapper.topic_config_table[topic.topic_name] = topic
        filter_servers = read(parts.part("the filter servers"), list[str])
        if version >= VERSION_WITH_MAPPINGS:
            for _ in range(parts.number("the number of static topics")):
                info = TopicQueueMappingInfo.decode(parts.part("a static topic"))
                wrapper.topic_queue_mapping_info_map[info.topic or ""] = info
        return cls(wrapper, filter_servers)


class _Parts:
    """Reads parts behind their lengths, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, what: str) -> int:
        data = self._take(4, what)
        found: int = _LENGTH.unpack(data)[0]
        if found < 0:
            raise ValueError(f"RegisterBrokerBody can't be read: {what} is {found}, below 0")
        return found

    def part(self, what: str) -> bytes:
        return self._take(self.number(f"the length of {what}"), what)

    def _take(self, size: int, what: str) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(
                f"RegisterBrokerBody can't be read: {what} needs {size} bytes at {self._at}, "
                f"there are {len(self._data) - self._at}"
            )
        found = self._data[self._at : end]
        self._at = end
        return found


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error as wrong:
        raise ValueError(f"RegisterBrokerBody can't be inflated: {wrong}") from None
    if inflater.unconsumed_tail:
        raise ValueError(
            f"RegisterBrokerBody inflates to over the limit of {INFLATED_BYTES_MAX} bytes; "
            "register fewer topics at a time"
        )
    return found
