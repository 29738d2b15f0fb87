"""Access control for many sends at once: each signature is checked, each permission once.

What is refused here takes the exceptional path, where `Access.check` finds the same and says why.
"""

from collections.abc import Sequence

import numpy as np

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.kernels.plain_sends import PlainSends
from ...protocol.kernels.signatures import Signatures, signers
from ...protocol.security.signature import signing_key
from ..access.access import Access

NO_KEY = signing_key(b"")  # in place of that of a user that is not there


def refused_pieces(
    access: Access, signatures: Signatures, plain: PlainSends, senders: Sequence[Connection]
) -> set[int]:
    """The numbers of the pieces with a request whose signature is not proven, or whose user may not
    send to its topic. `senders` has the connection of each piece."""
    pieces, groups = plain.signed[:, 0], plain.signed[:, 1]
    names, users = signers(plain)
    found = [access.signer(name.decode()) for name in names]
    is_known = np.array([each is not None for each in found], np.bool_)
    keys = [NO_KEY if each is None else each[1] for each in found]
    refused = signatures.wrong(plain, users, keys) | ~is_known[users]
    # Requests of one user to one topic from one machine are allowed together.
    machines = {connection.host[:-4]: connection for connection in senders}
    uses = users * len(plain.groups) + groups
    if len(machines) > 1:
        numbers = {host: number for number, host in enumerate(machines)}
        machine_of = np.array([numbers[each.host[:-4]] for each in senders], np.int64)
        uses += machine_of[pieces] * len(names) * len(plain.groups)
    connections = list(machines.values())
    for use in np.unique(uses[~refused]).tolist():
        rest, group = divmod(use, len(plain.groups))
        machine, number = divmod(rest, len(names))
        user = found[number]
        assert user is not None  # its requests are refused
        sent = plain.groups[group]
        code = codes.SEND_BATCH_MESSAGE if sent.is_batch else codes.SEND_MESSAGE_V2
        if not access.may_send(code, user[0], sent.topic, connections[machine]):
            refused |= uses == use
    return set(pieces[refused].tolist())
