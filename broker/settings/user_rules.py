"""The rules for users of access control: names, passwords, types and statuses."""

from ...protocol import codes
from ...protocol.bodies.access import DISABLED, ENABLED, NORMAL, SUPER, UserInfo
from ...protocol.errors import Refusal

USER_CHARS_MAX = 255  # of a name
PASSWORD_CHARS_MAX = 1_024

TYPES = {name.lower(): name for name in (SUPER, NORMAL)}
STATUSES = {name.lower(): name for name in (ENABLED, DISABLED)}


def with_known_words(info: UserInfo) -> UserInfo:
    """The same with type and status as RocketMQ writes them; Refusal for other words."""
    return UserInfo(
        info.username,
        info.password,
        _word("userType", info.user_type, TYPES),
        _word("userStatus", info.user_status, STATUSES),
    )


def check_name(name: str) -> None:
    """Refusal for a name that a user can't have."""
    if not name.strip():
        raise Refusal(codes.NO_PERMISSION, "username can not be blank")
    if len(name) > USER_CHARS_MAX or not name.isprintable():
        raise Refusal(
            codes.NO_PERMISSION,
            f"username {name[:40]!a} has {len(name)} characters; at most {USER_CHARS_MAX} are "
            "allowed, and all must be printable",
        )


def check_password(password: str) -> None:
    """Refusal for a password that a user can't have; the message doesn't contain it."""
    if not password.strip():
        raise Refusal(codes.NO_PERMISSION, "password can not be blank")
    if len(password) > PASSWORD_CHARS_MAX:
        raise Refusal(
            codes.NO_PERMISSION,
            f"the password has {len(password)} characters, the limit is {PASSWORD_CHARS_MAX}; "
            "take a shorter one",
        )


def _word(key: str, given: str | None, known: dict[str, str]) -> str | None:
    if not given:
        return None
    found = known.get(given.lower())
    if found is None:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"{key} is {given[:40]!r}, but must be {' or '.join(known.values())}",
        )
    return found
