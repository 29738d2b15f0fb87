"""What a client tells each broker every 30 seconds: its groups and their subscriptions."""

import msgspec

from ..tags import string_hash
from ..wire import Int32
from .body import Body
from .subscription import SubscriptionData


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str = ""


class ConsumerData(Body):
    """One consumer group of a client.

    `consume_type` is CONSUME_ACTIVELY (pull), CONSUME_PASSIVELY (push) or CONSUME_POP,
    `message_model` BROADCASTING or CLUSTERING, `consume_from_where` a ConsumeFromWhere name.
    """

    group_name: str = ""
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


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


class CheckClientRequestBody(Body):
    """A subscription that a broker is asked to judge (46)."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
