"""Bodies about users and access lists, of requests 3001 to 3010.

A `UserInfo` has the user's password, as in RocketMQ, so it must never be printed.
"""

from .body import Body

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"


class UserInfo(Body):
    """One user. `user_type` is Super (may do everything) or Normal, `user_status` enable or
    disable. A field that is None stays as it is, or gets its default."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"

    @property
    def is_super(self) -> bool:
        return self.user_type == SUPER

    @property
    def is_disabled(self) -> bool:
        return self.user_status == DISABLED


class PolicyEntryInfo(Body):
    """Allows or denies actions on one resource, such as `Topic:orders`.

    `actions` are names such as Pub and Sub; `source_ips` are addresses and networks in CIDR form,
    from anywhere when there are none.
    """

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """Entries of one type: Custom, or Default, which applies when no Custom entry matches."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """The access list of one subject, `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class UserTable(Body):
    """users.json: the users by name."""

    users: dict[str, UserInfo] = {}


class AclTable(Body):
    """acls.json: the lists by subject."""

    acls: dict[str, AclInfo] = {}
