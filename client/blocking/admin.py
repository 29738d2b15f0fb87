"""Administration for callers without an event loop; safe to use from several threads."""

from collections.abc import Iterable
from typing import Any

from ..admin.admin import Admin as _Admin
from ..base.security import Security
from .sync_wrapper import Blocking, awaited


class Admin(Blocking[_Admin]):
    """Asks and changes a cluster.

        with Admin("127.0.0.1:9876") as admin:
            admin.create_topic("orders", queues=8)
            print(admin.topics())

    The arguments and the methods are those of `client.Admin`.
    """

    def __init__(self, name_server: str | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__("aerobee-admin", lambda: _Admin(name_server, **options))

    @property
    def security(self) -> Security:
        """The credentials and the TLS settings of this client."""
        return self._client.security

    cluster_info = awaited(_Admin.cluster_info)
    masters = awaited(_Admin.masters)
    route = awaited(_Admin.route)

    topics = awaited(_Admin.topics)
    create_topic = awaited(_Admin.create_topic)
    delete_topic = awaited(_Admin.delete_topic)
    shrink_topic = awaited(_Admin.shrink_topic)
    topic_stats = awaited(_Admin.topic_stats)
    offsets_at = awaited(_Admin.offsets_at)
    topics_of_cluster = awaited(_Admin.topics_of_cluster)
    topic_configs = awaited(_Admin.topic_configs)
    topic_config = awaited(_Admin.topic_config)
    groups_of_topic = awaited(_Admin.groups_of_topic)
    time_span = awaited(_Admin.time_span)
    queue_entries = awaited(_Admin.queue_entries)
    clean_unused_topics = awaited(_Admin.clean_unused_topics)
    topic_summaries = awaited(_Admin.topic_summaries)
    group_summaries = awaited(_Admin.group_summaries)
    left_to_read = awaited(_Admin.left_to_read)

    groups = awaited(_Admin.groups)
    update_group = awaited(_Admin.update_group)
    delete_group = awaited(_Admin.delete_group)
    consume_stats = awaited(_Admin.consume_stats)
    consumer_connection = awaited(_Admin.consumer_connection)
    producer_connection = awaited(_Admin.producer_connection)
    producers = awaited(_Admin.producers)
    group_config = awaited(_Admin.group_config)
    topics_of_group = awaited(_Admin.topics_of_group)
    subscription = awaited(_Admin.subscription)
    running_info = awaited(_Admin.running_info)
    consume_directly = awaited(_Admin.consume_directly)
    reset_offsets = awaited(_Admin.reset_offsets)
    skip_accumulated = awaited(_Admin.skip_accumulated)
    set_offset = awaited(_Admin.set_offset)
    clone_offsets = awaited(_Admin.clone_offsets)
    all_offsets = awaited(_Admin.all_offsets)
    member_offsets = awaited(_Admin.member_offsets)
    set_request_mode = awaited(_Admin.set_request_mode)

    users = awaited(_Admin.users)
    create_user = awaited(_Admin.create_user)
    update_user = awaited(_Admin.update_user)
    delete_user = awaited(_Admin.delete_user)
    permissions = awaited(_Admin.permissions)
    allow = awaited(_Admin.allow)
    disallow = awaited(_Admin.disallow)

    message = awaited(_Admin.message)
    query = awaited(_Admin.query)
    resend = awaited(_Admin.resend)
    resume_transaction = awaited(_Admin.resume_transaction)

    broker_runtime = awaited(_Admin.broker_runtime)
    broker_config = awaited(_Admin.broker_config)
    update_broker_config = awaited(_Admin.update_broker_config)
    ha_status = awaited(_Admin.ha_status)
    broker_stats = awaited(_Admin.broker_stats)
    broker_consume_stats = awaited(_Admin.broker_consume_stats)
    clean_expired_queues = awaited(_Admin.clean_expired_queues)
    delete_expired_log = awaited(_Admin.delete_expired_log)
    wipe_write_permission = awaited(_Admin.wipe_write_permission)
    add_write_permission = awaited(_Admin.add_write_permission)
    put_kv = awaited(_Admin.put_kv)
    get_kv = awaited(_Admin.get_kv)
    delete_kv = awaited(_Admin.delete_kv)
    list_kv = awaited(_Admin.list_kv)
    namesrv_addresses = awaited(_Admin.namesrv_addresses)
    namesrv_config = awaited(_Admin.namesrv_config)
    update_namesrv_config = awaited(_Admin.update_namesrv_config)
