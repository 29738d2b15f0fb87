"""The way in which groups read topics, by pull or by pop: messageRequestMode.json."""

from pathlib import Path

from ...protocol import codes
from ...protocol.bodies.assignment import (
    MessageRequestModeWrapper,
    SetMessageRequestModeRequestBody,
)
from ...protocol.errors import Refusal
from ...store.files import json_file

PULL, POP = "PULL", "POP"
MODES_MAX = 100_000  # topic and group pairs


class RequestModes:
    """The modes that were set, by topic and group; written at every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self._count = 0

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self._path, MessageRequestModeWrapper.decode)
        if found is not None:
            self._modes = found.message_request_mode_map
            self._count = sum(map(len, self._modes.values()))

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """The mode set for a group and a topic, None when none was."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set it and write the file. Refusal over the limit."""
        is_new = self.get(mode.topic, mode.consumer_group) is None
        if is_new and self._count >= MODES_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"modes of {self._count} topic and group pairs are set, the limit is {MODES_MAX}; "
                "delete groups that are not used any more",
            )
        self._count += is_new
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        json_file.save(self._path, self.to_body().encode(standard=True))

    def follow(self, modes: dict[str, dict[str, SetMessageRequestModeRequestBody]]) -> bool:
        """Have a master's modes and no others, and write the file when they differ."""
        if modes == self._modes:
            return False
        count = sum(map(len, modes.values()))
        if count > MODES_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"the master has modes of {count} topic and group pairs, the limit is {MODES_MAX}; "
                "delete groups that are not used any more there",
            )
        self._modes, self._count = modes, count
        json_file.save(self._path, self.to_body().encode(standard=True))
        return True

    def to_body(self) -> MessageRequestModeWrapper:
        """The table as messageRequestMode.json and request 402 have it."""
        return MessageRequestModeWrapper(self._modes)
