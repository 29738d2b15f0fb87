"""The settings that may be changed while the broker runs, UPDATE_BROKER_CONFIG (25).

Only what is on the list below: never a path, a name, an address or a size of files. A change is
taken whole or not at all, holds at once, and is kept in config/hotKeys.json with the value that it
replaced. At the next start it holds again, unless the configuration says something else for that
key than it did then: who changed it last wins, as in RocketMQ, which writes into the configuration
file itself.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import force_setattr

from ..conf.load import text_of
from ..conf.sources import ConfigError, Setting
from ..protocol import codes
from ..protocol.bodies.body import Body
from ..protocol.bodies.data_version import DataVersion
from ..protocol.errors import Refusal
from ..store import json_file
from .config import KEYS, BrokerConfig

log = logging.getLogger(__name__)

# What the store goes by; it has settings of its own, which are made anew.
STORE_LIMITS = frozenset(
    {
        "maxMessageSize",
        "maxTransferCountOnMessageInMemory",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferBytesOnMessageInDisk",
        "maxFilterMessageSize",
        "cleanFileForciblyEnable",
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "destroyMapedFileIntervalForcibly",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "redeleteHangedFileInterval",
    }
)
HOT = STORE_LIMITS | {
    "allowRecallWhenBrokerNotWriteable",
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerPermission",
    "channelExpiredTimeout",
    "clientMemoryBytesMax",
    "defaultPopShareQueueNum",
    "defaultQueryMaxNum",
    "enableMixedMessageType",
    "enablePopBufferMerge",
    "enablePropertyFilter",
    "enableRetryTopicV2",
    "enableSingleTopicRegister",
    "estimateAccumulation",
    "haMaxGapNotInSync",
    "initPopOffsetByCheckMsgInMem",
    "litePullMessageEnable",
    "longPollingEnable",
    "notifyConsumerIdsChangedEnable",
    "popCkMaxBufferSize",
    "popCkStayBufferTime",
    "popFromRetryProbability",
    "popResponseReturnActualRetryTopic",
    "recallMessageEnable",
    "rejectPullConsumerEnable",
    "rejectTransactionMessage",
    "retrieveMessageFromPopRetryTopicV1",
    "serverLoadBalancerEnable",
    "shortPollingTimeMills",
    "slaveReadEnable",
    "storeReplyMessageEnable",
    "timerCongestNumEachSlot",
    "timerMaxDelaySec",
    "transactionCheckInterval",
    "transactionCheckMax",
    "transactionMetricFlushInterval",
    "transactionOpBatchInterval",
    "transactionOpMsgMaxSize",
    "transactionTimeOut",
    "useServerSideResetOffset",
    "validateSystemTopicWhenUpdateTopic",
}


class Change(Body):
    """One changed key: its text, and the text that the configuration had for it."""

    text: str = ""
    instead_of: str = ""


class HotKeysTable(Body):
    """config/hotKeys.json."""

    changes: dict[str, Change] = {}
    data_version: DataVersion | None = None


class HotKeys:
    """Changes a running broker's config. `version` counts the changes."""

    def __init__(self, config: BrokerConfig, path: Path, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._path = path
        self._now_ms = now_ms
        self._changes: dict[str, Change] = {}
        self._effects: dict[str, Callable[[], object]] = {}
        self.version = DataVersion(0, now_ms(), 0)

    def on_change(self, key: str, effect: Callable[[], object]) -> None:
        """Call this after the key has changed, for what doesn't read the config each time."""
        assert key in HOT
        self._effects[key] = effect

    def load(self) -> None:
        """Bring the changes of earlier runs into the config; ValueError for a file that can't be
        read. To be called before any part reads the config."""
        found = json_file.load(self._path, HotKeysTable.decode)
        if found is None:
            return
        self.version = found.data_version or self.version
        for key, change in found.changes.items():
            try:
                value = self._typed({key: change.text})
            except Refusal as wrong:
                log.warning("the change of %s that was kept is dropped: %s", key, wrong)
                continue
            configured = text_of(getattr(self._config, KEYS.fields[key].name))
            if configured != change.instead_of:
                log.warning(
                    "%s is %s: the configuration has a new value, so %s, which was set over the "
                    "network, is dropped",
                    key,
                    configured,
                    change.text,
                )
                continue
            self._changes[key] = change
            self._set(value)
            log.info("%s is %s, set over the network; configured is %s", key, *_texts(change))

    def update(self, wanted: Mapping[str, str]) -> list[str]:
        """Change these keys, all of them or none; returns those whose value is another now.

        Refusal NO_PERMISSION for a key that may not be changed, INVALID_PARAMETER for a value that
        it may not have.
        """
        values = self._typed(wanted)
        before = {key: text_of(getattr(self._config, KEYS.fields[key].name)) for key in wanted}
        changed = []
        changes = dict(self._changes)
        for key in wanted:
            text = text_of(values[KEYS.fields[key].name])
            if text != before[key]:
                changed.append(key)
                old = changes.pop(key, None)
                configured = before[key] if old is None else old.instead_of
                if text != configured:
                    changes[key] = Change(text, configured)
        if not changed:
            return []
        version = self.version.following(self._now_ms())
        json_file.save(self._path, HotKeysTable(changes, version).encode(standard=True))
        self._changes, self.version = changes, version
        self._set(values)
        for key in changed:
            now = text_of(getattr(self._config, KEYS.fields[key].name))
            log.info("%s is %s now, it was %s", key, now, before[key])
        for effect in dict.fromkeys(self._effects[key] for key in changed if key in self._effects):
            effect()
        return changed

    def _typed(self, wanted: Mapping[str, str]) -> dict[str, object]:
        """The values by attribute name; Refusal."""
        for key in wanted:
            if key not in HOT:
                known = "is a key, but not one that" if key in KEYS.fields else "is no key that"
                raise Refusal(
                    codes.NO_PERMISSION,
                    f"{key} {known} can be changed while the broker runs; those are "
                    f"{', '.join(sorted(HOT))}. Set it in the configuration and restart",
                )
        try:
            values, _ = KEYS.values([Setting(key, wanted[key], "request") for key in wanted])
            msgspec.structs.replace(self._config, **values)  # it checks what must fit together
        except ConfigError as wrong:
            raise Refusal(codes.INVALID_PARAMETER, str(wrong)) from None
        return values

    def _set(self, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            force_setattr(self._config, name, value)


def _texts(change: Change) -> tuple[str, str]:
    return change.text, change.instead_of
