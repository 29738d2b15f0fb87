"""What a client tells each broker every 30 seconds: its groups and their subscriptions."""

from typing import TYPE_CHECKING

import msgspec

from ..message.tags import string_hash
from ..wire import Int32
from .body import Body
from .subscription import SubscriptionData

# Ordinals of Java's enums: the C++ client sends these instead of the names, and Java reads both.
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
if TYPE_CHECKING:
    EnumName = str | None
else:
    EnumName = str | int | None  # a name, once it was read


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str = ""


class ConsumerData(Body):
    """One consumer group of a client.

    `consume_type` is CONSUME_ACTIVELY (pull), CONSUME_PASSIVELY (push) or CONSUME_POP,
    `message_model` BROADCASTING or CLUSTERING, `consume_from_where` a ConsumeFromWhere name.
    """

    group_name: str = ""
    consume_type: EnumName = None
    message_model: EnumName = None
    consume_from_where: EnumName = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        self.consume_type = _name(self.consume_type, CONSUME_TYPES)
        self.message_model = _name(self.message_model, MESSAGE_MODELS)
        self.consume_from_where = _name(self.consume_from_where, FROM_WHERE)


class HeartbeatData(Body):
    """The body of HEART_BEAT (34).

    With `without_sub` the subscriptions are left out: `heartbeat_fingerprint` says that they are
    the ones that the broker has.
    """

    client_id: str = msgspec.field(name="clientID", default="")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False

    def fingerprint(self) -> int:
        """A hash of the groups and subscriptions, without the versions of the latter."""
        consumers = [
            msgspec.structs.replace(
                consumer,
                subscription_data_set=[
                    msgspec.structs.replace(sub, sub_version=0)
                    for sub in consumer.subscription_data_set
                ],
            )
            for consumer in self.consumer_data_set
        ]
        bare = HeartbeatData("", self.producer_data_set, consumers)
        return string_hash(bare.encode().decode())


def _name(found: "str | int | None", names: tuple[str, ...]) -> str | None:
    if not isinstance(found, int):
        return found
    if not 0 <= found < len(names):
        raise ValueError(f"{found} is none of {', '.join(names)}, counted from 0")
    return names[found]


class CheckClientRequestBody(Body):
    """A subscription that a broker is asked to judge (46)."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
