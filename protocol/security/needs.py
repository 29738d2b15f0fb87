"""What access control asks for a request: a signature, and permissions.

Each row of a request table has its `Needs`. Documents print it, and a server's `Guard` enforces it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .. import codes
from ..command import Command
from ..errors import Refusal
from .policies import CLUSTER, GET, UPDATE, Need

Fields = dict[str, str]
Actions = tuple[str, ...]
# The permissions of one request, from its header fields and the name of the server's cluster.
# ValueError for a body that can't be read.
Find = Callable[[Command, Fields, str], Iterable[Need]]


@dataclass(frozen=True, slots=True)
class Needs:
    """The permissions that a user needs to send a request.

    `asks` has kinds of resources, each with actions: on every resource of that kind that the
    request names, the user needs permission for one of them. `find` finds these resources. An
    `is_open` request needs no signature. `is_ours`: RocketMQ allows the request to every user.
    """

    asks: tuple[tuple[str, Actions], ...] = ()
    find: Find | None = None
    is_open: bool = False
    is_ours: bool = False

    def __str__(self) -> str:
        if self.is_open:
            return "anyone"
        if not self.asks:
            return "any user"
        return " and ".join(f"{kind} {' or '.join(actions)}" for kind, actions in self.asks)

    @property
    def actions(self) -> set[str]:
        """All actions that are asked for, on whatever resource."""
        return {action for _, actions in self.asks for action in actions}

    def of(self, command: Command, fields: Fields, cluster: str) -> list[Need]:
        """The permissions that this request needs, each of them; none where a signature is enough.

        Refusal (NO_PERMISSION) when its body doesn't name its resources.
        """
        if self.find is None:
            return []
        try:
            return list(self.find(command, fields, cluster))
        except ValueError as wrong:
            text = f"parse authorization context error: {wrong}"
            raise Refusal(codes.NO_PERMISSION, text) from None


def on_cluster(action: str, *, is_ours: bool = False) -> Needs:
    """An action on the server's own cluster."""
    return Needs(
        ((CLUSTER, (action,)),),
        lambda command, fields, cluster: [Need(CLUSTER, cluster, (action,))],
        is_ours=is_ours,
    )


ANYONE = Needs(is_open=True)
ANY_USER = Needs()
CLUSTER_GET, CLUSTER_UPDATE = on_cluster(GET), on_cluster(UPDATE)
