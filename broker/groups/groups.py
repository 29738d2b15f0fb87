"""The consumer groups that this broker knows: subscriptionGroup.json."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...protocol import codes
from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from ...protocol.bodies.topic import PERM_READ
from ...protocol.errors import Refusal
from ...protocol.names import LMQ_PREFIX, SYSTEM_GROUPS, check_group, is_system_group
from ...protocol.wire import Int32
from ...store.base.errors import StoreError
from ...store.files import json_file
from ..runtime.table_file import Change, TableFile
from ..settings.config import BrokerConfig

GROUPS_MAX = 100_000
FORBIDDEN_TOPICS_MAX = 10_000  # of one group


class GroupsChange(Change):
    """A line of the journal of subscriptionGroup.json. Of `forbidden_table` it has the groups whose
    topics have changed."""

    put: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int32]] = {}


class Groups:
    """Group configurations by name. autoCreateSubscriptionGroup: the first use creates a group."""

    def __init__(self, path: Path, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        self.file: TableFile[SubscriptionGroupConfig, GroupsChange] = TableFile(
            path, "subscriptionGroupTable", GroupsChange, now_ms
        )
        self._config = config
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.file.path, SubscriptionGroupWrapper.decode)
        if found is not None:
            self._groups = found.subscription_group_table
            self.forbidden = found.forbidden_table or {}
        for change in self.file.load(None if found is None else found.data_version):
            for name in change.gone:
                self._groups.pop(name, None)
                self.forbidden.pop(name, None)
            self._groups |= change.put
            self.forbidden |= change.forbidden_table
        for name in SYSTEM_GROUPS:
            self._groups.setdefault(name, SubscriptionGroupConfig(group_name=name))

    @property
    def version(self) -> DataVersion:
        """The version of the table; another one after each change."""
        return self.file.version

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        found = self._groups.get(name)
        if found is None and self._is_light(name):
            return SubscriptionGroupConfig(group_name=name)
        return found

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, created now if that is allowed; else None.

        Refusal (SUBSCRIPTION_GROUP_NOT_EXIST, as in RocketMQ) for an illegal name, or with the
        disk's reason when it can't be written down.
        """
        found = self.get(name)
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
        """Create the missing groups that may be created, with one write.

        Refusal over the limit.
        """
        missing = {}
        for name in names:
            if self.get(name) is None:
                try:
                    found = self._new(name)
                except Refusal:
                    continue  # its pull is refused with the reason
                if found is not None:
                    missing[name] = found
        if missing:
            self.put_all(list(missing.values()))

    def find_quietly(self, name: str) -> SubscriptionGroupConfig | None:
        """The result of `find`, but None also for an illegal name."""
        try:
            return self.find(name)
        except Refusal:
            return None

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        return dict(self._groups)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group and write it down."""
        self.put_all([config])

    def put_all(self, configs: list[SubscriptionGroupConfig]) -> None:
        """Add or replace groups, all or none, with one write. Refusal over the limit.

        The groups of light queues stay as they are.
        """
        configs = [config for config in configs if not self._is_light(config.group_name or "")]
        wanted = {config.group_name or "": config for config in configs}
        self._check_number(len(self._groups.keys() | wanted.keys()))
        self._groups |= wanted
        self.file.changed(wanted)

    def _is_light(self, name: str) -> bool:
        """True for a group of light queues: each such group exists and is in no table."""
        return name.startswith(LMQ_PREFIX) and self._config.lmq_enable

    def delete(self, name: str) -> bool:
        """Remove a group; False when it wasn't there."""
        self.forbidden.pop(name, None)
        if self._groups.pop(name, None) is None:
            return False
        self.file.changed({}, [name])
        return True

    def follow(self, master: SubscriptionGroupWrapper) -> bool:
        """Have a master's groups and no others, under its version, and write them down.

        False when this is its version already. Refusal over the limit: nothing has changed then.
        """
        if master.data_version == self.version:
            return False
        table = master.subscription_group_table
        self._check_number(len(table))
        kept, forbids = self._groups, self.forbidden  # an entry that is the same keeps its text
        self._groups = {
            name: kept[name] if kept.get(name) == one else one for name, one in table.items()
        }
        self.forbidden = master.forbidden_table or {}
        self.file.changed(
            {name: one for name, one in self._groups.items() if kept.get(name) is not one},
            kept.keys() - table.keys(),
            master.data_version,
            forbiddenTable={
                name: self.forbidden.get(name, {})
                for name in forbids.keys() | self.forbidden.keys()
                if forbids.get(name) != self.forbidden.get(name)
            },
        )
        return True

    def forbids(self, group: str, topic: str) -> bool:
        """True if reading the topic is switched off for the group."""
        masks = self.forbidden.get(group)
        return masks is not None and masks.get(topic, 0) & PERM_READ != 0

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Switch a group's reading of a topic on or off and write that down."""
        masks = self.forbidden.setdefault(group, {})
        if topic not in masks and len(masks) >= FORBIDDEN_TOPICS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"group {group} has settings for {len(masks)} topics, the limit is "
                f"{FORBIDDEN_TOPICS_MAX}; allow it some again",
            )
        mask = masks.get(topic, 0)
        masks[topic] = mask & ~PERM_READ if readable else mask | PERM_READ
        self.file.changed({}, forbiddenTable={group: masks})

    def pieces(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as request 201 has it, or subscriptionGroup.json (`standard`), in pieces
        between which others may work."""
        body = SubscriptionGroupWrapper({}, self.forbidden, self.version)
        return self.file.pieces(body, self._groups, standard=standard)

    def save(self) -> None:
        """Write the file, if its journal has something. StoreError when it can't be written."""
        self.file.save(self.pieces(standard=True))

    def _new(self, name: str) -> SubscriptionGroupConfig | None:
        """The configuration that the first use of a group creates; None if not allowed. Refusal for
        its name."""
        if not self._config.auto_create_subscription_group and not is_system_group(name):
            return None
        check_group(name)
        return SubscriptionGroupConfig(group_name=name)

    def _check_number(self, number: int) -> None:
        if number > GROUPS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"there are {len(self._groups)} groups, the limit is {GROUPS_MAX}; delete some",
            )
