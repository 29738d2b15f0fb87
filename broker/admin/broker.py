"""Requests about the broker as a whole: settings (25, 26), its state (28), cleaning (306, 316,
329), and where pop keeps its records (200056).

306 and 329 let old files of the store go: of queues and index, of the log. They begin it and come
back at once, as in RocketMQ: a round can take minutes.
"""

import logging
from collections.abc import Generator
from dataclasses import dataclass

from ...conf.version import own_version
from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices
from ...protocol.bodies.cluster import KVTable
from ...protocol.codec import java_properties
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.admin import RuntimeInfoResponse
from ...protocol.headers.groups import ConfigVersion
from ...protocol.names import LMQ_PREFIX, is_system_topic
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..runtime.cleaner import Cleaner
from ..settings.config import BrokerConfig, to_text
from ..settings.dynamic import DynamicSettings
from ..topics.topics import Topics
from .runtime_info import RuntimeInfo

log = logging.getLogger(__name__)

CONFIG_BYTES_MAX = 1 << 20  # of a request that changes settings


@dataclass(slots=True, eq=False)
class AdminBrokerHandlers:
    """Answers about this broker, and changes its settings."""

    config: BrokerConfig
    store: MessageStore
    topics: Topics
    runtime_info: RuntimeInfo
    dynamic_settings: DynamicSettings
    slices: Slices
    cleaner: Cleaner

    def rows(self) -> list[Row]:
        return [
            Row(codes.UPDATE_BROKER_CONFIG, None, self.on_update_config, needs.OUR_CLUSTER_UPDATE),
            Row(codes.GET_BROKER_CONFIG, None, self.on_config, needs.OUR_CLUSTER_GET),
            Row(codes.GET_BROKER_RUNTIME_INFO, None, self.on_runtime_info, needs.ANY_USER),
            Row(
                codes.CLEAN_UNUSED_TOPIC,
                None,
                self.on_clean_unused,
                needs.OUR_CLUSTER_UPDATE,
                gates.CHANGE,
            ),
            Row(
                codes.CLEAN_EXPIRED_CONSUMEQUEUE,
                None,
                self.on_clean_queues,
                needs.OUR_CLUSTER_UPDATE,
            ),
            Row(
                codes.DELETE_EXPIRED_COMMITLOG,
                None,
                self.on_delete_expired,
                needs.OUR_CLUSTER_UPDATE,
            ),
            Row(codes.POP_ROLLBACK, None, self.on_pop_rollback, needs.OUR_CLUSTER_UPDATE),
        ]

    def on_update_config(self, header: None, command: Command, connection: Connection) -> Response:
        """Change the settings in the body, all of them or none."""
        text = command.body or b""
        if len(text) > CONFIG_BYTES_MAX:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"{len(text)} bytes of settings, the limit is {CONFIG_BYTES_MAX}; send several "
                "requests",
            )
        try:
            wanted = java_properties.parse(text.decode())
        except ValueError as wrong:  # bytes that are no UTF-8 as well
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"the settings can't be read: {wrong}; send key=value lines",
            ) from None
        changed = self.dynamic_settings.update(
            {key: value.strip() for key, value in wanted.items()}
        )
        if changed:
            log.info("%s changed %s", connection.address, ", ".join(changed))
        return OK

    def on_config(self, header: None, command: Command, connection: Connection) -> Response:
        version = ConfigVersion(self.dynamic_settings.version.encode().decode())
        return Response(
            codes.SUCCESS,
            version.to_fields(),
            body=to_text(self.config, self.dynamic_settings.later).encode(),
        )

    def on_runtime_info(
        self, header: None, command: Command, connection: Connection
    ) -> LongResponse:
        return self.slices.respond(self._runtime_info())

    def on_clean_unused(
        self, header: None, command: Command, connection: Connection
    ) -> LongResponse:
        return self.slices.respond(self._clean_unused())

    def on_pop_rollback(self, header: None, command: Command, connection: Connection) -> Response:
        """Do nothing: RocketMQ moves pop's data from a key-value store into files; ours is in
        files."""
        return OK

    def on_clean_queues(self, header: None, command: Command, connection: Connection) -> Response:
        """Delete the files that lead to nothing in the log.

        Java deletes a whole queue whose last message is gone, so that it counts from 0 again: a
        group with a larger offset would then skip the next messages. Here its last file stays.
        """
        self.cleaner.clean_queues()
        return OK

    def on_delete_expired(self, header: None, command: Command, connection: Connection) -> Response:
        """Let files of the log go that are past fileReservedTime, whatever deleteWhen says."""
        self.cleaner.delete_expired()
        return OK

    # --- inside ---------------------------------------------------------------------------------

    def _runtime_info(self) -> Generator[object, None, Response]:
        table = yield from self.runtime_info.table_in_parts()
        # In the header, since mqadmin prints every key of the table.
        fields = RuntimeInfoResponse(own_version()).to_fields()
        return Response(codes.SUCCESS, fields, body=KVTable(table).encode())

    def _clean_unused(self) -> Generator[object, None, Response]:
        """Delete the queues of topics that don't exist any more."""
        gone: set[str] = set()
        for name, _ in self.store.queue_keys():
            if name in gone or self.topics.get(name) is not None:
                continue
            if not is_system_topic(name) and not name.startswith(LMQ_PREFIX):
                gone.add(name)
                log.info("deleting the queues of topic %s, which does not exist", name)
                self.store.delete_topic(name)
            yield None
        return OK
