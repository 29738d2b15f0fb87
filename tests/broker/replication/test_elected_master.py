"""A slave in controller mode follows the elected master, whatever name servers say."""

from typing import Any

from aerobee.broker.naming.registration import MasterAddresses
from aerobee.broker.replication.replica import ElectedMaster, Replica

ELECTED, OLDER = "10.0.0.2:10911", "10.0.0.1:10911"


class Sync:
    """Stands in for what copies topics, offsets and the rest."""

    master = ""

    def set_master(self, address: str) -> None:
        self.master = address


def replica() -> tuple[Replica, Sync]:
    """A slave whose controller has elected `ELECTED`."""
    unused: Any = None
    sync: Any = Sync()
    elected = ElectedMaster(ELECTED, unused)
    return Replica(sync, unused, lambda: None, elected=elected), sync


def test_offsets_are_copied_from_the_elected_master_and_no_older_one() -> None:
    found, sync = replica()
    assert sync.master == ELECTED
    found.on_master(MasterAddresses(OLDER, "10.0.0.1:10912"))
    assert (sync.master, found.master()) == (ELECTED, ELECTED)


def test_a_name_server_tells_the_replication_address_of_the_elected_master() -> None:
    found, sync = replica()
    found.on_master(MasterAddresses(ELECTED, "10.0.0.2:10912"))
    assert (sync.master, found.master()) == (ELECTED, ELECTED)
