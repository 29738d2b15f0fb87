"""Topics: how many queues they have, what may be done with them, and lists of them."""

from msgspec import field

from ..codec import fastjson
from ..wire import Int32
from .body import Body
from .data_version import DataVersion
from .topic_queue_mapping import TopicQueueMappingDetail, TopicQueueMappingInfo

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

SYS_FLAG_UNIT = 1
SYS_FLAG_UNIT_SUB = 2


class TopicConfig(Body):
    """One topic on one broker. `perm` is made of the PERM bits."""

    topic_name: str | None = None
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}

    def to_line(self) -> str:
        """The form in a compressed registration, which has neither sys flag nor order."""
        attributes = fastjson.dump(self.attributes).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm}"
            f" {self.topic_filter_type} {attributes}"
        )

    @classmethod
    def from_line(cls, line: str) -> "TopicConfig":
        """The topic that `to_line` wrote; ValueError naming the field that is wrong."""
        parts = line.split(" ")
        if len(parts) < 5 or not parts[0]:
            raise ValueError(
                f"TopicConfig {line[:80]!r} can't be read: it has {len(parts)} of at least 5 parts"
            )
        found = cls(
            parts[0],
            _number(parts[1], "readQueueNums"),
            _number(parts[2], "writeQueueNums"),
            _number(parts[3], "perm"),
            parts[4],
        )
        if len(parts) > 5:
            try:
                attributes = fastjson.parse(parts[5])
            except ValueError:
                attributes = None  # cut at a blank inside: Java drops them as well
            if isinstance(attributes, dict):
                found.attributes = {str(key): str(value) for key, value in attributes.items()}
        return found


class TopicConfigAndQueueMapping(TopicConfig):
    """A topic and, where it is static and that was asked for, its logical queues (351)."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker and the version of that table (21, and 103 of ancient brokers)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = field(default_factory=DataVersion)


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """The same with static topics."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = {}
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


class TopicList(Body):
    """Names of topics, in order; `broker_addr` is the address of some broker."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class CreateTopicListRequestBody(Body):
    """Topics to be made in one go (18)."""

    topic_config_list: list[TopicConfig] = []


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"TopicConfig can't be read: {name} is {text!r}, not a number") from None
