"""Who a client is to brokers with access control, and whether it speaks TLS."""

import os
import ssl
from dataclasses import dataclass, field
from typing import Self

from ..protocol.signature import signed
from .errors import ClientError


@dataclass(frozen=True, slots=True)
class Security:
    """Key and secret to sign requests with (none: they are not signed), and TLS.

        Producer("mq.example:9876", security=Security("shop", os.environ["SECRET"], tls=True))

    `tls` True checks the server's certificate against the system's authorities; an `SSLContext` of
    your own may trust others, bring a certificate, or check nothing. Java's brokers and name
    servers speak TLS on their usual port.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool | ssl.SSLContext = False

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            missing = "secret_key" if self.access_key else "access_key"
            raise ClientError(f"{missing} is empty; give access_key and secret_key, or neither")

    @classmethod
    def from_environment(cls) -> Self:
        """Signed with $AEROBEE_ACCESS_KEY and $AEROBEE_SECRET_KEY, or not without them."""
        access_key = os.environ.get("AEROBEE_ACCESS_KEY", "")
        secret_key = os.environ.get("AEROBEE_SECRET_KEY", "")
        if bool(access_key) != bool(secret_key):
            raise ClientError(
                "only one of AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY is set; set both, or neither"
            )
        return cls(access_key, secret_key)

    @property
    def signs(self) -> bool:
        """Requests are signed."""
        return bool(self.access_key)

    def sign(self, fields: dict[str, str] | None, body: bytes) -> dict[str, str]:
        """The custom header of a request with the signature."""
        return signed(fields, body, self.access_key, self.secret_key, self.security_token)

    @property
    def context(self) -> ssl.SSLContext | None:
        """What connections are made with; None without TLS."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        return ssl.create_default_context() if self.tls else None


OPEN = Security()
