"""The settings of `controllerType=etcd`: where etcd is, and how a controller proves itself."""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

ENDPOINTS_MAX = 20
PREFIX_CHARS_MAX = 200
SCHEMES = ("http", "https")
ANY_ADDRESS = ("0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound to

TimeoutMs = Annotated[int, Meta(ge=100, le=3_000)]

ETCD_KEYS = frozenset(
    {
        "controllerEtcdEndpoints",
        "controllerEtcdPrefix",
        "controllerEtcdTimeoutMills",
        "controllerEtcdUser",
        "controllerEtcdPassword",
        "controllerEtcdCaPath",
        "controllerEtcdCertPath",
        "controllerEtcdKeyPath",
    }
)
SECRET_KEYS = frozenset({"controllerEtcdPassword"})


class EtcdSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The settings to reach etcd. Only `controllerType=etcd` reads them."""

    controller_etcd_endpoints: str = ""
    controller_etcd_prefix: str = "/aerobee/controller/"
    controller_etcd_timeout_mills: TimeoutMs = 1_000
    controller_etcd_user: str = ""
    controller_etcd_password: str = ""
    controller_etcd_ca_path: str = ""
    controller_etcd_cert_path: str = ""
    controller_etcd_key_path: str = ""

    def __repr__(self) -> str:
        """The name of the class alone: the fields have a password."""
        return f"{type(self).__name__}(...)"

    @property
    def endpoints(self) -> list[str]:
        """The URLs of etcd's members, without a slash at the end."""
        texts = self.controller_etcd_endpoints.replace(",", ";").split(";")
        return [text.strip().rstrip("/") for text in texts if text.strip()]

    def check_etcd(self) -> None:
        """ValueError with one sentence when etcd can't be reached with these settings."""
        found = self.endpoints
        if not found:
            raise ValueError(
                "controllerType is 'etcd', and controllerEtcdEndpoints is empty; name etcd's "
                "client URLs there, such as https://10.0.0.1:2379;https://10.0.0.2:2379"
            )
        if len(found) > ENDPOINTS_MAX:
            raise ValueError(
                f"controllerEtcdEndpoints has {len(found)} URLs, the limit is {ENDPOINTS_MAX}; "
                "name the members of one etcd cluster"
            )
        for number, endpoint in enumerate(found, 1):
            _check_endpoint(number, endpoint)
        prefix = self.controller_etcd_prefix
        if not prefix.endswith("/") or len(prefix) > PREFIX_CHARS_MAX or prefix == "/":
            raise ValueError(
                f"controllerEtcdPrefix is {prefix[:PREFIX_CHARS_MAX]!r}; it must be a name of at "
                f"most {PREFIX_CHARS_MAX} characters with / at the end, such as "
                "/aerobee/controller/"
            )
        self._check_pair("controllerEtcdUser", "controllerEtcdPassword")
        self._check_pair("controllerEtcdCertPath", "controllerEtcdKeyPath")

    def _check_pair(self, one: str, other: str) -> None:
        """ValueError when only one of two keys is set."""
        names = {info.encode_name: info.name for info in msgspec.structs.fields(EtcdSettings)}
        is_set = [bool(getattr(self, names[key])) for key in (one, other)]
        if is_set[0] != is_set[1]:
            given, missing = (one, other) if is_set[0] else (other, one)
            raise ValueError(f"{given} is set and {missing} is not; set both or none")


def _check_endpoint(number: int, endpoint: str) -> None:
    """ValueError for what is no URL of an etcd; a password in it is not repeated."""
    try:
        parts = urlsplit(endpoint)
        is_whole = parts.scheme in SCHEMES and parts.hostname and parts.port
    except ValueError:
        is_whole = False
    if "@" in endpoint:
        raise ValueError(
            f"URL {number} of controllerEtcdEndpoints has an @; user and password belong into "
            "controllerEtcdUser and controllerEtcdPassword"
        )
    if not is_whole or endpoint.count("/") != 2 or "?" in endpoint or "#" in endpoint:
        raise ValueError(
            f"controllerEtcdEndpoints has {endpoint[:100]!r}, which is no URL of etcd's client "
            "port; write http://HOST:PORT or https://HOST:PORT"
        )


def peers_of(text: str) -> dict[str, str]:
    """The controllers that `controllerDLegerPeers` names, id to "host:port".

    ValueError for what is not `n0-host:port;n1-host:port`.
    """
    found: dict[str, str] = {}
    for one in filter(None, (part.strip() for part in text.split(";"))):
        own_id, dash, address = one.partition("-")
        host, colon, port = address.rpartition(":")
        is_whole = own_id and dash and host and colon and port.isascii() and port.isdecimal()
        if not is_whole or int(port[:6]) > 65_535:
            raise ValueError(
                f"controllerDLegerPeers has {one[:100]!r}; write ID-HOST:PORT for each controller, "
                "with ; between them"
            )
        found[own_id] = address
    return found
