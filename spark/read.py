"""The rows of one range of a queue: pulled, decoded, and filtered where brokers only guess."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..client import reader
from .decode import decode
from .options import ReadOptions
from .plan import QueueRange
from .pull import Pulling, pull_pieces
from .schema import BY_NAME, Column


def read_range(
    options: ReadOptions, columns: tuple[Column, ...], wanted: QueueRange | None
) -> Iterator[pa.RecordBatch]:
    """The rows with these columns, batch by batch, over a connection of its own."""
    if wanted is None:  # PySpark makes one partition of none
        return
    how = Pulling(
        options.messages_per_pull,
        options.fail_on_data_loss,
        options.is_filtered,
        options.retries,
        options.retry_ms,
    )
    puller = reader.Reader(options.name_server, **options.reader)
    pieces = pull_pieces(puller, wanted, how)
    tags = None if options.tags is None else [each.strip() for each in options.tags.split("||")]
    # A broker compares hashes of tags; the texts are compared here.
    asked = columns if tags is None or BY_NAME["tags"] in columns else (*columns, BY_NAME["tags"])
    for piece in pieces:
        rows = decode(
            piece.data, asked, broker_name=wanted.broker_name, first=piece.start, end=piece.end
        )
        if tags is not None:
            rows = rows.filter(pc.is_in(rows.column("tags"), pa.array(tags)))
            rows = rows.select([column.name for column in columns])
        if rows.num_rows:
            yield rows
