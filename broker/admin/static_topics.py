"""UPDATE_AND_CREATE_STATIC_TOPIC (513): a topic with logical queues, as `mqadmin updateStaticTopic`
and `remappingStaticTopic` make and move them. What moves where, they work out themselves."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.request import body_of
from ...protocol.bodies.topic import TopicConfig
from ...protocol.bodies.topic_queue_mapping import TopicQueueMappingDetail
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.topics import UpdateTopic
from ...store.base.errors import StoreError
from ..access import gates, needs
from ..topics.topics import Topics
from .topics import AdminTopicHandlers


@dataclass(slots=True, eq=False)
class AdminStaticTopicHandlers:
    """Creates and changes static topics; `topic_handlers` has the checks for topics of any kind."""

    topics: Topics
    topic_handlers: AdminTopicHandlers

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.UPDATE_AND_CREATE_STATIC_TOPIC,
                UpdateTopic,
                self.on_update,
                needs.STATIC_TOPIC_CREATE,
                gates.CHANGE,
            )
        ]

    def on_update(
        self, header: UpdateTopic, command: Command, connection: Connection
    ) -> Response | Coroutine[Any, Any, Response]:
        detail = body_of(command, TopicQueueMappingDetail)
        self.topic_handlers.check_name(header.topic)
        if detail.topic != header.topic:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"the header names topic {header.topic}, the mapping {detail.topic}; name the same",
            )
        config = self.topic_handlers.checked(
            TopicConfig(
                header.topic,
                header.read_queues,
                header.write_queues,
                header.perm,
                header.filter_type,
                header.sys_flag or 0,
            )
        )
        self.topics.static.check(detail, force=bool(header.force))
        try:
            # In this order, and both in any case: name servers take a mapping over when the version
            # of the topics has changed.
            self.topics.put(config)
            self.topics.static.put(detail)
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return self.topic_handlers.done()
