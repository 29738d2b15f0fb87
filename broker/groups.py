"""The consumer groups that this broker knows: subscriptionGroup.json."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ..protocol import codes
from ..protocol.bodies.data_version import DataVersion
from ..protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from ..protocol.errors import Refusal
from ..protocol.names import SYSTEM_GROUPS, check_group, is_system_group
from ..store import json_file
from ..store.errors import StoreError
from .entry_texts import EntryTexts

GROUPS_MAX = 100_000
FORBIDDEN_TOPICS_MAX = 10_000  # of one group
FORBIDDEN_READ = 4  # the bit of a topic's permission that is taken away


class Groups:
    """Group configurations by name. With `auto_create` the first use of a group makes it."""

    def __init__(self, path: Path, now_ms: Callable[[], int], *, auto_create: bool) -> None:
        self._path = path
        self._now_ms = now_ms
        self.auto_create = auto_create
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion()
        self._texts = EntryTexts()

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self._path, SubscriptionGroupWrapper.decode)
        if found is not None:
            self.version = found.data_version
            self._groups = found.subscription_group_table
            self.forbidden = found.forbidden_table or {}
        for name in SYSTEM_GROUPS:
            self._groups.setdefault(name, SubscriptionGroupConfig(group_name=name))

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(name)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made now if it may be; None when it may not.

        Refusal (SUBSCRIPTION_GROUP_NOT_EXIST, as in RocketMQ) when its name forbids it, or with
        the disk's reason when it can't be written down.
        """
        found = self._groups.get(name)
        if found is not None:
            return found
        try:
            found = self._new(name)
        except Refusal as wrong:
            raise Refusal(codes.SUBSCRIPTION_GROUP_NOT_EXIST, wrong.remark) from None
        if found is None:
            return None
        try:
            self.put(found)
        except StoreError as wrong:
            del self._groups[name]
            raise Refusal(codes.SERVICE_NOT_AVAILABLE, str(wrong)) from None
        return found

    def make(self, names: Iterable[str]) -> None:
        """Make those of the groups that aren't there and may be, with one write of the file.

        Refusal over the limit.
        """
        missing = {}
        for name in names:
            if name not in self._groups:
                try:
                    found = self._new(name)
                except Refusal:
                    continue  # it will be told when it pulls
                if found is not None:
                    missing[name] = found
        if missing:
            self.put_all(list(missing.values()))

    def find_quietly(self, name: str) -> SubscriptionGroupConfig | None:
        """As `find`, but an illegal name is None too."""
        try:
            return self.find(name)
        except Refusal:
            return None

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        return dict(self._groups)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group and write the file."""
        self.put_all([config])

    def put_all(self, configs: list[SubscriptionGroupConfig]) -> None:
        """Add or replace groups, all or none, and write the file once. Refusal over the limit."""
        wanted = {config.group_name or "": config for config in configs}
        self._check_number(len(self._groups.keys() | wanted.keys()))
        self._groups |= wanted
        self._save()

    def delete(self, name: str) -> bool:
        """Remove a group; False when it wasn't there."""
        self.forbidden.pop(name, None)
        if self._groups.pop(name, None) is None:
            return False
        self._save()
        return True

    def follow(self, master: SubscriptionGroupWrapper) -> bool:
        """Have a master's groups and no others, under its version, and write the file.

        False when this is its version already. Refusal over the limit: nothing has changed then.
        """
        if master.data_version == self.version:
            return False
        self._check_number(len(master.subscription_group_table))
        kept = self._groups  # an entry that is the same keeps its text
        self._groups = {
            name: kept[name] if kept.get(name) == one else one
            for name, one in master.subscription_group_table.items()
        }
        self.forbidden = master.forbidden_table or {}
        self.version = master.data_version
        self._write()
        return True

    def forbids(self, group: str, topic: str) -> bool:
        """Whether reading the topic is switched off for the group."""
        masks = self.forbidden.get(group)
        return masks is not None and masks.get(topic, 0) & FORBIDDEN_READ != 0

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Switch a group's reading of a topic on or off and write the file."""
        masks = self.forbidden.setdefault(group, {})
        if topic not in masks and len(masks) >= FORBIDDEN_TOPICS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"group {group} has settings for {len(masks)} topics, the limit is "
                f"{FORBIDDEN_TOPICS_MAX}; allow it some again",
            )
        mask = masks.get(topic, 0)
        masks[topic] = mask & ~FORBIDDEN_READ if readable else mask | FORBIDDEN_READ
        self._save()

    def to_body(self) -> SubscriptionGroupWrapper:
        """The table as subscriptionGroup.json and request 201 have it."""
        return SubscriptionGroupWrapper(dict(self._groups), self.forbidden, self.version)

    def _new(self, name: str) -> SubscriptionGroupConfig | None:
        """What the first use of a group makes; None when it may not. Refusal for its name."""
        if not self.auto_create and not is_system_group(name):
            return None
        check_group(name)
        return SubscriptionGroupConfig(group_name=name)

    def _check_number(self, number: int) -> None:
        if number > GROUPS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"there are {len(self._groups)} groups, the limit is {GROUPS_MAX}; delete some",
            )

    def _save(self) -> None:
        self.version = self.version.following(self._now_ms())
        self._write()

    def _write(self) -> None:
        body = SubscriptionGroupWrapper({}, self.forbidden, self.version)
        text = self._texts.put_into(body, "subscriptionGroupTable", self._groups)
        json_file.save(self._path, text)
