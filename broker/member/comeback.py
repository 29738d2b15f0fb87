"""A master that comes back after a crash, before another one was elected.

With ASYNC_FLUSH a power cut may have taken the end of its log, which the other members of the sync
state set have. As the master it would cut them to its own end. So it compares the logs first: a
member with a longer log is to be the master instead. A member that does not answer is waited for.
"""

import logging
from collections.abc import Mapping

from ...protocol.aio.peers import Peers
from .election import Election
from .leader import Declined, Leader
from .others import epochs_of

log = logging.getLogger(__name__)


async def may_return(
    leader: Leader,
    peers: Peers,
    election: Election,
    position: tuple[int, int],
    *,
    is_late: bool,
) -> bool:
    """Whether this broker may take the role of the master that it had before its crash.

    `position` is the newest epoch and the end of its log. False: another member is elected, or is
    to be, or has not answered; ask again later. With `is_late` silent members are waited
    for no longer: one that the controller finds alive is elected, without one this broker goes on.
    """
    addresses = await leader.replicas()
    others = {one: addresses.get(one, "") for one in sorted(election.members - {election.own_id})}
    logs = await _logs(peers, others)
    longer = {one: end for one, end in logs.items() if end > position}
    silent = [one for one in others if one not in logs]
    if not longer and not silent:
        return True
    candidates = sorted(longer, key=lambda one: longer[one], reverse=True)
    if is_late:
        candidates += silent
    for one in candidates:
        try:
            elected = await leader.hand_over(election.own_id, one)
        except Declined as wrong:
            log.warning("broker %d does not become the master: %s", one, wrong)
            continue
        log.warning("%s: this broker has crashed, and its log may lack the end", elected)
        return False
    return is_late and not longer


async def _logs(peers: Peers, others: Mapping[int, str]) -> dict[int, tuple[int, int]]:
    """The newest epoch and the end of the log of each broker that answers."""
    found = {}
    for one, address in others.items():
        told = await epochs_of(peers, address) if address else None
        if told is not None:
            newest = max((each.epoch for each in told.epoch_list), default=0)
            found[one] = newest, told.max_offset
    return found
