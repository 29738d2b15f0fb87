"""Access control of a controller: brokers and administrators sign, as they do at brokers.

RocketMQ's controllers have none, and its brokers sign all their requests once they have
innerClientAuthenticationCredentials. Reading the members of a broker name needs no signature.
"""

import logging
from collections.abc import Callable

from ..protocol.aio.guard import Guard, Refusals
from .config import ControllerConfig

log = logging.getLogger(__name__)

NO_USER = (
    "the request has no AccessKey, and this controller serves it only when it is signed with a "
    "user's name and password"
)


class Access:
    """The users of a controller, each of whom may do everything, and the guard before the
    handlers."""

    def __init__(self, config: ControllerConfig, now_ms: Callable[[], int]) -> None:
        self.refusals = Refusals(now_ms)
        users = config.users()
        self.guard = Guard(
            users.get,
            lambda *_: None,
            self.refusals,
            cluster="",
            no_user=NO_USER,
            is_limited=False,
            all_sign=False,
        )
        if not users:
            log.warning(
                "access control is on and there is no user, so no broker can join; name one in "
                "initAuthenticationUser"
            )
