"""Requests about the broker as a whole: settings (26), what it is doing (28), cleaning (316)."""

import logging

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.cluster import KVTable
from ...protocol.bodies.data_version import DataVersion
from ...protocol.command import OK, Command, Reply
from ...protocol.headers.groups import ConfigVersion
from ...protocol.names import is_system_topic
from ...store.store import MessageStore
from ..config import BrokerConfig, to_text
from ..runtime_info import RuntimeInfo
from ..topics import Topics

log = logging.getLogger(__name__)


class AdminBrokerHandlers:
    """Answers about this broker. `started_ms` is when it was started."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        runtime_info: RuntimeInfo,
        *,
        started_ms: int,
    ) -> None:
        self.config = config
        self.store = store
        self.topics = topics
        self.runtime_info = runtime_info
        self.config_version = DataVersion(0, started_ms, 0)  # a change would count it up

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_BROKER_CONFIG, None, self.on_config),
            Row(codes.GET_BROKER_RUNTIME_INFO, None, self.on_runtime_info),
            Row(codes.CLEAN_UNUSED_TOPIC, None, self.on_clean_unused),
        ]

    def on_config(self, header: None, command: Command, connection: Connection) -> Reply:
        version = ConfigVersion(self.config_version.encode().decode())
        return Reply(codes.SUCCESS, version.to_fields(), body=to_text(self.config).encode())

    def on_runtime_info(self, header: None, command: Command, connection: Connection) -> Reply:
        return Reply(codes.SUCCESS, body=KVTable(self.runtime_info.table()).encode())

    def on_clean_unused(self, header: None, command: Command, connection: Connection) -> Reply:
        """Delete the queues of topics that don't exist any more."""
        known = self.topics.all()
        for name in self.store.topics():
            if name not in known and not is_system_topic(name):
                log.info("deleting the queues of topic %s, which does not exist", name)
                self.store.delete_topic(name)
        return OK
