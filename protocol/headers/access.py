"""Headers of the requests about users and access lists."""

from ..wire import Header, field


class UserName(Header):
    """3001 to 3004: one user."""

    username: str | None = None


class UserFilter(Header):
    """AUTH_LIST_USER (3005): the users whose name contains this, all without."""

    filter: str | None = None


class AclSubject(Header):
    """3006, 3007, 3009: whose list, as `User:name`."""

    subject: str | None = None


class AclResource(Header):
    """AUTH_DELETE_ACL (3008): the entry about one resource, the whole list without."""

    subject: str | None = None
    policy_type: str | None = field(name="policyType", default=None)
    resource: str | None = None


class AclFilter(Header):
    """AUTH_LIST_ACL (3010): lists whose subject, entries whose resource contains this."""

    subject_filter: str | None = field(name="subjectFilter", default=None)
    resource_filter: str | None = field(name="resourceFilter", default=None)
