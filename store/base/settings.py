"""The settings of a store: sizes of its files, flush mode, limits. Each names its RocketMQ key.

The sizes of files are not recorded in a store: it must be opened with those it was made with.
"""

from dataclasses import dataclass, field
from pathlib import Path

from .errors import StoreError
from .retention import Rules

QUEUE_UNIT_BYTES = 20
BATCH_QUEUE_UNIT_BYTES = 46
BLANK_BYTES_MIN = 8  # what the last record of a commit log file always leaves free

# Levels 1 to 18; an entry of SCHEDULE_TOPIC_XXXX holds its time of delivery.
DELAY_LEVELS_MS = (
    1_000,
    5_000,
    10_000,
    30_000,
    60_000,
    120_000,
    180_000,
    240_000,
    300_000,
    360_000,
    420_000,
    480_000,
    540_000,
    600_000,
    1_200_000,
    1_800_000,
    3_600_000,
    7_200_000,
)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The layout and the limits of a store. The defaults are RocketMQ's."""

    segment_bytes: int = 1 << 30  # mappedFileSizeCommitLog
    queue_file_bytes: int = 300_000 * QUEUE_UNIT_BYTES  # mappedFileSizeConsumeQueue
    batch_queue_file_bytes: int = 300_000 * BATCH_QUEUE_UNIT_BYTES  # mapperFileSize…BatchConsumeQ.
    queue_ext_file_bytes: int = 48 << 20  # mappedFileSizeConsumeQueueExt
    index_slots: int = 5_000_000  # maxHashSlotNum
    index_entries: int = 20_000_000  # maxIndexNum
    index_enable: bool = True  # messageIndexEnable
    sync_flush: bool = False  # flushDiskType = SYNC_FLUSH
    max_message_bytes: int = 4 << 20  # maxMessageSize, of a body
    pull_messages_max: int = 32  # maxTransferCountOnMessageInMemory
    pull_bytes_max: int = 256 << 10  # maxTransferBytesOnMessageInMemory
    pull_messages_max_on_disk: int = 8  # maxTransferCountOnMessageInDisk
    pull_bytes_max_on_disk: int = 64 << 10  # maxTransferBytesOnMessageInDisk
    memory_ratio_percent: int = 40  # accessMessageInMemoryMaxRatio
    scan_bytes_max: int = 16_000  # maxFilterMessageSize, of consume queue a pull
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS  # messageDelayLevel
    append_crc: bool = False  # enabledAppendPropCRC: records end with a crc of all before it
    lmq_enable: bool = False  # enableLmq with enableMultiDispatch
    light_queues_max: int = 20_000  # maxLmqConsumeQueueNum
    controller_mode: bool = (
        False  # enableControllerMode: epochs are kept, confirmOffset bounds reads
    )
    commit_log_dir: Path | None = None  # storePathCommitLog; None: "commitlog" under the root
    queue_sync_ms: int = 1_000  # flushIntervalConsumeQueue
    queue_sync_thorough_ms: int = 60_000  # flushConsumeQueueThoroughInterval
    rules: Rules = field(default_factory=Rules)  # how long it keeps

    def __post_init__(self) -> None:
        """StoreError when a size can't be."""
        # RocketMQ rounds the size of a consume queue file up to whole units.
        units = -(-self.queue_file_bytes // QUEUE_UNIT_BYTES)
        object.__setattr__(self, "queue_file_bytes", units * QUEUE_UNIT_BYTES)
        _at_least("mappedFileSizeCommitLog", self.segment_bytes, 4096)
        _at_least("mappedFileSizeConsumeQueue", self.queue_file_bytes, QUEUE_UNIT_BYTES)
        _at_least("maxHashSlotNum", self.index_slots, 1)
        _at_least("maxIndexNum", self.index_entries, 2)
        _at_least("maxMessageSize", self.max_message_bytes, 1)
        if self.batch_queue_file_bytes % BATCH_QUEUE_UNIT_BYTES:
            raise StoreError(
                f"mapperFileSizeBatchConsumeQueue is {self.batch_queue_file_bytes}; it must be a "
                f"multiple of {BATCH_QUEUE_UNIT_BYTES}, the size of an entry"
            )


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise StoreError(f"{name} is {value}; it must be {least} or more")
