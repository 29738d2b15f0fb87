"""Access control for many sends at once: each signature is checked, each permission once.

What is refused here takes the exceptional path, where `Access.check` finds the same and says why.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.bodies.access import UserInfo
from ..access.access import Access

if TYPE_CHECKING:
    from ...protocol.kernels.plain_sends import PlainSends


def refused_pieces(access: Access, plain: "PlainSends", senders: Sequence[Connection]) -> set[int]:
    """The numbers of the pieces with a request whose signature is not proven, or whose user may not
    send to its topic. `senders` has the connection of each piece."""
    data, contents = plain.data.data, plain.contents.data
    found: set[int] = set()
    users: dict[bytes, tuple[UserInfo, bytes]] = {}
    permissions: dict[tuple[int, int, bytes], bool] = {}
    for piece, group, at, end, name_at, name_end, signature_at, signature_end in plain.signed:
        if piece in found:
            continue
        name = bytes(data[name_at:name_end])
        user = users.get(name)
        if user is None:
            user = access.signer(name.decode())
            if user is None:
                found.add(piece)
                continue
            users[name] = user
        info, secret = user
        signature = b2a_base64(hmac.digest(secret, contents[at:end], "sha1"), newline=False)
        if not hmac.compare_digest(signature, data[signature_at:signature_end]):
            found.add(piece)
            continue
        may_send = permissions.get((piece, group, name))
        if may_send is None:
            topic, _, _, _, is_batch, _ = plain.groups[group]
            code = codes.SEND_BATCH_MESSAGE if is_batch else codes.SEND_MESSAGE_V2
            may_send = access.may_send(code, info, topic, senders[piece])
            permissions[piece, group, name] = may_send
        if not may_send:
            found.add(piece)
    return found
