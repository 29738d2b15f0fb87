"""Replication without a controller: as many slaves as the settings say acknowledge the log."""

import logging

from ..replication.counted_acks import CountedAcks
from ..replication.master import HaMaster
from .parts import Parts

log = logging.getLogger(__name__)


def counted_acks(b: Parts, ha: HaMaster) -> CountedAcks:
    """The syncer, which is made later, is told how far the slaves have the log."""

    def on_shortage(why: str) -> None:
        if why:
            log.warning("%s", why)
        b.syncer.shortage = why

    return CountedAcks(ha, lambda end: b.syncer.replicated(end), on_shortage)
