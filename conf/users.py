"""Users that settings name in JSON. No error message shows a value."""

from collections.abc import Callable
from typing import NamedTuple

from ..protocol.bodies.access import ENABLED, SUPER, UserInfo
from ..protocol.bodies.body import Body
from ..protocol.security.signature import signed
from .sources import ConfigError

INIT_USER = "initAuthenticationUser"
INNER_CREDENTIALS = "innerClientAuthenticationCredentials"


class Credentials(NamedTuple):
    """The user name and password with which a daemon signs its own requests."""

    access_key: str
    secret_key: str


class _Credentials(Body):
    access_key: str = ""
    secret_key: str = ""


def init_user_of(text: str) -> UserInfo | None:
    """The super user of initAuthenticationUser; None without. ConfigError for odd JSON."""
    if not text:
        return None
    try:
        given = UserInfo.decode(text.encode())
    except ValueError:
        given = UserInfo()
    if not given.username or not given.password:
        raise _wrong(INIT_USER, '{"username":"NAME","password":"PASSWORD"}')
    return UserInfo(given.username, given.password, SUPER, ENABLED)


def credentials_of(text: str) -> Credentials | None:
    """The user of innerClientAuthenticationCredentials; None without. ConfigError for odd JSON."""
    if not text:
        return None
    try:
        given = _Credentials.decode(text.encode())
    except ValueError:
        given = _Credentials()
    if not given.access_key or not given.secret_key:
        raise _wrong(INNER_CREDENTIALS, '{"accessKey":"NAME","secretKey":"PASSWORD"}')
    return Credentials(given.access_key, given.secret_key)


def super_users(init_user: str, inner: str) -> list[UserInfo]:
    """The users of both settings; where both name one, it is that of initAuthenticationUser."""
    user, own = init_user_of(init_user), credentials_of(inner)
    found = [] if user is None else [user]
    if own is not None and (user is None or user.username != own.access_key):
        found.append(UserInfo(own.access_key, own.secret_key, SUPER, ENABLED))
    return found


def signing(text: str) -> Callable[[dict[str, str] | None, bytes], dict[str, str]] | None:
    """The function that signs a request with these innerClientAuthenticationCredentials; None if
    the text is empty."""
    own = credentials_of(text)
    if own is None:
        return None
    return lambda fields, body: signed(fields, body, own.access_key, own.secret_key)


def _wrong(key: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"{key} is not JSON like {wanted}; correct it or leave it out (its value is not shown here)"
    )
