"""The master's end of replication without a controller; a slave's may be followed, too."""

import asyncio
import logging

from ..replication.master import HaMaster
from .parts import Parts

log = logging.getLogger(__name__)


def classic_ha(b: Parts, slaves: asyncio.Server) -> HaMaster:
    """Slaves connect to `slaves`. As many of them as the settings say have what is acknowledged."""

    def on_shortage(why: str) -> None:
        if why:
            log.warning("%s", why)
        b.syncer.shortage = why

    return HaMaster(
        b.config, b.store, slaves, b.alive_ms, lambda end: b.syncer.replicated(end), on_shortage
    )
