"""The choice of a broker's role: by its settings, or as the controllers have elected."""

from .acting import PairMaster, PairSlave
from .controlled import ControlledMaster, ControlledSlave
from .master import Master
from .parts import Parts
from .role import Role
from .slave import Slave


def role_of(b: Parts) -> Role:
    """The role of this broker, for life."""
    if b.membership is not None:
        is_master = b.membership.election.is_master
        return (ControlledMaster if is_master else ControlledSlave)(b, b.membership)
    if b.config.has_acting_master:
        return PairSlave(b) if b.config.is_slave else PairMaster(b)
    return Slave(b) if b.config.is_slave else Master(b)
