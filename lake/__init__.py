"""Topics as tables: every message of a topic as a row of an Iceberg table, once.

import aerobee.lake
aerobee.lake.table("orders").to_polars()    # the table and what came since
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .union import NamedTable

__all__ = ["table"]


def table(name: str, *, config: Path | str = "lake.yaml", **options: Any) -> "NamedTable":
    """A table of the settings in `config`, with the messages that came since its last commit.

    `security` (credentials and TLS) and `since_ms` (only messages stored then or later, ms since
    the epoch) are the other options. LakeError when the settings can't be read.
    """
    from . import settings
    from .union import NamedTable

    return NamedTable(name, settings.read(Path(config)), **options)
