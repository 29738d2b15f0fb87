"""Credentials for brokers with access control, and TLS settings."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ...protocol.errors import reason_of
from ...protocol.security.signature import signed
from ..errors import ClientError

PREFIX = "AEROBEE"  # of the variables in the environment
ACCESS_KEY, SECRET_KEY = f"{PREFIX}_ACCESS_KEY", f"{PREFIX}_SECRET_KEY"
TLS, TLS_CA, TLS_INSECURE = f"{PREFIX}_TLS", f"{PREFIX}_TLS_CA", f"{PREFIX}_TLS_INSECURE"
_FLAGS = {"": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Security:
    """Credentials to sign requests with (unsigned without them), and TLS.

        Producer("mq.example:9876", security=Security("shop", os.environ["SECRET"], tls=True))

    With `tls` True the server's certificate must be valid for the host name or IP address and be
    signed by one of the system's authorities, or by one in the PEM file `tls_ca`. `tls_insecure`
    encrypts without any check, which is the default of RocketMQ's clients: a man in the middle goes
    unnoticed. Both options switch TLS on. Pass an `SSLContext` for anything else, such as client
    certificates.

    Java's brokers and name servers speak TLS on their usual port.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool | ssl.SSLContext = False
    tls_ca: str | os.PathLike[str] = ""
    tls_insecure: bool = False

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            missing = "secret_key" if self.access_key else "access_key"
            raise ClientError(f"{missing} is empty; give access_key and secret_key, or neither")
        if self.tls_ca and self.tls_insecure:
            raise ClientError(
                f"tls_ca is {os.fspath(self.tls_ca)!r} and tls_insecure is true, which checks no "
                "certificate; give one of them"
            )
        if isinstance(self.tls, ssl.SSLContext) and (self.tls_ca or self.tls_insecure):
            raise ClientError(
                "tls is an SSLContext, which holds the authorities and the checks; leave tls_ca "
                "and tls_insecure out"
            )

    @classmethod
    def from_environment(
        cls,
        *,
        tls: bool = False,
        tls_ca: str = "",
        tls_insecure: bool = False,
        prefix: str = PREFIX,
    ) -> Self:
        """Credentials from $AEROBEE_ACCESS_KEY and $AEROBEE_SECRET_KEY (unsigned without them); TLS
        from $AEROBEE_TLS (true or false), $AEROBEE_TLS_CA and $AEROBEE_TLS_INSECURE.

        Arguments take precedence over the variables, whose names begin with `prefix`: a program
        with two clusters has two sets of them.
        """
        environ = {
            PREFIX + name.removeprefix(prefix): value
            for name, value in os.environ.items()
            if name.startswith(f"{prefix}_")
        }
        access_key, secret_key = environ.get(ACCESS_KEY, ""), environ.get(SECRET_KEY, "")
        if bool(access_key) != bool(secret_key):
            raise ClientError(
                f"only one of {prefix}_ACCESS_KEY and {prefix}_SECRET_KEY is set; set both, or "
                "neither"
            )
        if not tls_ca and not tls_insecure:  # they exclude each other, and so do the variables
            tls_ca = environ.get(TLS_CA, "")
            tls_insecure = _flag(environ, TLS_INSECURE)
        tls = tls or _flag(environ, TLS)
        return cls(access_key, secret_key, tls=tls, tls_ca=tls_ca, tls_insecure=tls_insecure)

    @property
    def signs(self) -> bool:
        """Requests are signed."""
        return bool(self.access_key)

    def sign(self, fields: dict[str, str] | None, body: bytes) -> dict[str, str]:
        """The custom header of a request with the signature."""
        return signed(fields, body, self.access_key, self.secret_key, self.security_token)

    @property
    def context(self) -> ssl.SSLContext | None:
        """The SSL context of connections; None without TLS. ClientError for an unusable file."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        if not (self.tls or self.tls_ca or self.tls_insecure):
            return None
        try:
            context = ssl.create_default_context(cafile=os.fspath(self.tls_ca) or None)
        except OSError as wrong:
            raise ClientError(
                f"tls_ca is {os.fspath(self.tls_ca)!r}, which can't be used: {reason_of(wrong)}; "
                "name a file with the certificates of authorities in PEM"
            ) from None
        if self.tls_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in _FLAGS:
        raise ClientError(f"{name} is {text[:40]!r}; set it to true or false")
    return _FLAGS[text]


OPEN = Security()
