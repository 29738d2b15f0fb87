"""The results of reading messages: RocketMQ's GetMessageStatus as ints, in its order."""

FOUND = 0
NO_MATCHED_MESSAGE = 1  # only messages with other tags; next_offset is behind them
MESSAGE_WAS_REMOVING = 2
OFFSET_FOUND_NULL = 3
OFFSET_OVERFLOW_BADLY = 4
OFFSET_OVERFLOW_ONE = 5  # exactly at the end: nothing new yet
OFFSET_TOO_SMALL = 6
NO_MATCHED_LOGIC_QUEUE = 7
NO_MESSAGE_IN_QUEUE = 8

NAMES = (
    "FOUND",
    "NO_MATCHED_MESSAGE",
    "MESSAGE_WAS_REMOVING",
    "OFFSET_FOUND_NULL",
    "OFFSET_OVERFLOW_BADLY",
    "OFFSET_OVERFLOW_ONE",
    "OFFSET_TOO_SMALL",
    "NO_MATCHED_LOGIC_QUEUE",
    "NO_MESSAGE_IN_QUEUE",
)
