"""The settings of access control that are JSON, lists or class names in one text: parsed, checked.

Their passwords are never shown: not in printed settings, responses or error messages.
"""

import re
from collections.abc import Mapping

from ...conf import users
from ...conf.secret import HIDDEN
from ...conf.sources import ConfigError
from ...conf.users import INIT_USER, INNER_CREDENTIALS, Credentials
from ...protocol.bodies.access import SUPER, UserInfo
from ...protocol.errors import Refusal
from .user_rules import check_name, check_password, with_known_words

SECRET_KEYS = frozenset(
    {INIT_USER, INNER_CREDENTIALS, "haSecret", "httpToken", "metricsGrpcExporterHeader"}
)

CODES_MAX = 1_000  # of one white list

_AUTH = "org.apache.rocketmq.auth"
# RocketMQ's own classes; with any other one foreign code would decide.
CLASSES = {
    "authenticationProvider": (f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    ),
    "authenticationStrategy": (
        f"{_AUTH}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_AUTH}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    ),
    "authorizationStrategy": (
        f"{_AUTH}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_AUTH}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}


def check_classes(others: Mapping[str, str]) -> None:
    """ConfigError for a class that isn't RocketMQ's own local one."""
    for key, names in CLASSES.items():
        given = others.get(key, "").strip()
        if given and given not in names:
            raise ConfigError(
                f"{key} is {given[:200]!r}, but users and access lists are this broker's own, so "
                f"it can only be {' or '.join(names)}; leave the key out"
            )


def codes_of(key: str, text: str) -> frozenset[int]:
    """The request codes of a white list; ConfigError when it is none."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > CODES_MAX:
        raise ConfigError(f"{key} has {len(words)} codes, the limit is {CODES_MAX}; shorten it")
    for word in words:
        if re.fullmatch(r"[0-9]{1,9}", word) is None:
            raise ConfigError(
                f"{key} has {word[:40]!r} in it, but must be request codes with commas between "
                "them, as in 34,38; correct it or leave it out"
            )
    return frozenset(map(int, words))


def init_user_of(text: str) -> UserInfo | None:
    """The super user that the first start creates; None when none is named."""
    if not text.strip():
        return None
    wanted = '{"username":"NAME","password":"PASSWORD"}'
    try:
        given = with_known_words(UserInfo.decode(text.encode()))
    except (ValueError, Refusal):
        raise _wrong(INIT_USER, f"is not JSON like {wanted}") from None
    _check(INIT_USER, given.username, given.password)
    return UserInfo(given.username, given.password, SUPER, given.user_status)


def credentials_of(text: str) -> Credentials | None:
    """The credentials with which this broker signs its own requests; None when it signs none."""
    if not text.strip():
        return None
    given = users.credentials_of(text)
    if given is not None:
        _check(INNER_CREDENTIALS, given.access_key, given.secret_key)
    return given


def first_users(init_user: str, inner: str) -> list[UserInfo]:
    """The users that a start creates unless they are there: both are super users."""
    user, credentials = init_user_of(init_user), credentials_of(inner)
    found = [] if user is None else [user]
    if credentials is not None and (user is None or user.username != credentials.access_key):
        found.append(UserInfo(credentials.access_key, credentials.secret_key, SUPER))
    return found


def shown(key: str, value: str) -> str:
    """The value as it may be shown."""
    return HIDDEN if key in SECRET_KEYS and value else value


def _check(key: str, name: str | None, password: str | None) -> None:
    try:
        check_name(name or "")
        check_password(password or "")
    except Refusal as wrong:
        raise _wrong(key, f"has a fault: {wrong.remark}") from None


def _wrong(key: str, what: str) -> ConfigError:
    return ConfigError(f"{key} {what}; correct it or leave it out (its value is not shown here)")
