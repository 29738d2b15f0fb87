"""Reading queues by hand without an event loop; see `client.reader`."""

from collections.abc import Iterable
from typing import Any

from ..pull import reader as _reader
from .sync_wrapper import Blocking, awaited


class Reader(Blocking[_reader.Reader]):
    """Reads queues by hand: bounds, offsets by time, pulls at an offset the caller chooses.

        with Reader("127.0.0.1:9876", group="spark") as reader:
            for queue in reader.queues("orders"):
                pulled = reader.pull(queue, reader.min_offset(queue))

    It joins no group. The arguments and the methods are those of `client.reader.Reader`.
    """

    def __init__(self, name_server: str | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__("aerobee-reader", lambda: _reader.Reader(name_server, **options))

    topics = awaited(_reader.Reader.topics)
    commit = awaited(_reader.Reader.commit)
    queues = awaited(_reader.Reader.queues)
    min_offset = awaited(_reader.Reader.min_offset)
    max_offset = awaited(_reader.Reader.max_offset)
    offset_at = awaited(_reader.Reader.offset_at)
    pull = awaited(_reader.Reader.pull)
