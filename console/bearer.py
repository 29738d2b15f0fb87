"""The token that requests to an HTTP port have to carry: Authorization: Bearer TOKEN."""

import hmac

from aiohttp import web

SCHEME = "bearer"
REFUSED = (
    "this page needs the token of the setting httpToken: send the header Authorization: Bearer "
    "TOKEN\n"
)


class Bearer:
    """Checks requests. An empty token lets every request through."""

    def __init__(self, token: bytes = b"") -> None:
        self._token = token

    @property
    def headers(self) -> dict[str, str]:
        """The header with which another endpoint of the same token is asked."""
        return {"Authorization": f"Bearer {self._token.decode()}"} if self._token else {}

    def check(self, request: web.Request) -> None:
        """HTTPUnauthorized for a request without the token, in constant time."""
        if not self._token:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token)
        if scheme.lower() != SCHEME or not is_right:
            raise web.HTTPUnauthorized(
                text=REFUSED,
                headers={"WWW-Authenticate": 'Bearer realm="aerobee"', "Cache-Control": "no-store"},
            )
