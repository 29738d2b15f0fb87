"""Subscription groups: what a broker allows and does for a consumer group."""

from msgspec import field

from ..wire import Int32, Int64
from .body import Body
from .data_version import DataVersion


class ExponentialRetryPolicy(Body):
    """Waits that grow: `initial` ms, each `multiplier` times the one before, up to `max` ms."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body):
    """Waits one by one, in ms."""

    next: list[Int64] = []


class GroupRetryPolicy(Body):
    """Which of the two rules; the delay levels when that one is None."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body):
    """The last known subscription of a group."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """One consumer group on one broker."""

    group_name: str | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupWrapper(Body):
    """All groups of a broker and the version of that table (201).

    `forbidden_table` is by group and topic, with one bit per thing that is forbidden.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int32]] | None = None
    data_version: DataVersion = field(default_factory=DataVersion)


class SubscriptionGroupList(Body):
    """Groups to be made in one go (225)."""

    group_config_list: list[SubscriptionGroupConfig] = []


class GroupForbidden(Body):
    """The right of a group to read a topic (353)."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None
