"""The settings of a controller, under RocketMQ's key names, each with its type and range."""

from collections.abc import Mapping
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from ..conf import changes, log_levels
from ..conf.kinds import BindAddress, IdleSeconds, IntervalMs, LogLevels, Port, TlsMode
from ..conf.users import INIT_USER, INNER_CREDENTIALS, super_users
from ..protocol.bodies.access import UserInfo
from .etcd_settings import ANY_ADDRESS, ETCD_KEYS, SECRET_KEYS, EtcdSettings, peers_of

Count = Annotated[int, Meta(ge=1, le=1_000)]

ALWAYS_BLACK = frozenset(
    {
        "bindAddress",
        "listenPort",
        "controllerType",
        "controllerStorePath",
        "tlsServerCertPath",
        "tlsServerKeyPath",
        "tlsServerMode",
        "useTLS",
        "tlsClientAuthServer",
        "tlsClientTrustCertPath",
        "authenticationEnabled",
        INIT_USER,
        INNER_CREDENTIALS,
        "auditLog",
        "configBlackList",
        "configStorePath",
        "controllerDLegerGroup",
        "controllerDLegerSelfId",
        "controllerDLegerPeers",
        *ETCD_KEYS,
    }
)
FILE, ETCD = "file", "etcd"
CONSENSUS_OF_ROCKETMQ = ("DLedger", "jRaft")


class ControllerConfig(EtcdSettings, frozen=True, rename="camel", kw_only=True):
    """All settings. The defaults are RocketMQ's, with three exceptions: the state is a journal on
    the local disk, the port accepts only connections from this machine, and dead brokers are found
    each second.

    `controller_type` is "file": one controller, whose state is in `controller_store_path`; or
    "etcd": several, of which etcd says which one leads.
    """

    listen_port: Port = 9878
    bind_address: BindAddress = "127.0.0.1"
    server_channel_max_idle_time_seconds: IdleSeconds = 120
    tls_server_mode: TlsMode = "permissive"
    tls_server_cert_path: str = ""
    tls_server_key_path: str = ""
    # Of its notices to brokers; by default as tlsServerMode asks of others.
    use_tls: bool | None = msgspec.field(default=None, name="useTLS")
    tls_client_auth_server: bool = False
    tls_client_trust_cert_path: str = ""
    log_level: LogLevels = ""  # as the command says

    authentication_enabled: bool = False  # of brokers and administrators
    init_authentication_user: str = ""  # a user, as JSON
    inner_client_authentication_credentials: str = ""  # of its notices to brokers
    audit_log: str = ""  # a file; empty: none

    controller_type: str = "file"
    controller_store_path: str = "aerobee-controller"
    controller_dleger_group: str = msgspec.field(default="group1", name="controllerDLegerGroup")
    controller_dleger_peers: str = msgspec.field(default="", name="controllerDLegerPeers")
    controller_dleger_self_id: str = msgspec.field(default="n0", name="controllerDLegerSelfId")
    scan_not_active_broker_interval: IntervalMs = 1_000
    elect_master_max_retry_count: Count = 3
    enable_elect_unclean_master: bool = False
    notify_broker_role_changed: bool = True
    config_black_list: str = "configBlackList;configStorePath"

    def __post_init__(self) -> None:
        log_levels.parse(self.log_level)
        self.users()
        if self.controller_type in CONSENSUS_OF_ROCKETMQ:
            raise ValueError(
                f"controllerType is {self.controller_type!r}: RocketMQ's own consensus is not "
                "served here; take controllerType=file (one controller) or etcd (several), or let "
                "the brokers join RocketMQ's controllers (controllerAddr)"
            )
        if self.controller_type == ETCD:
            self.check_etcd()
            self._check_peers()
        elif self.controller_type != FILE:
            raise ValueError(f"controllerType is {self.controller_type!r}; there are file and etcd")

    def _check_peers(self) -> None:
        """ValueError when no other host could reach this controller by what it tells of itself."""
        own, peers = self.controller_dleger_self_id, self.peers
        if peers and own not in peers:
            raise ValueError(
                f"controllerDLegerSelfId is {own!r}, which controllerDLegerPeers does not name: it "
                f"has {', '.join(peers)[:200]}; add {own}-HOST:PORT"
            )
        if not peers and self.bind_address in ANY_ADDRESS:
            raise ValueError(
                f"bindAddress is {self.bind_address!r}, and controllerDLegerPeers is empty: "
                "brokers could not be told where the leading controller is; set "
                f"controllerDLegerPeers={own}-HOST:PORT with ; and the other controllers"
            )

    def users(self) -> dict[str, UserInfo]:
        """The users that may sign, by name. ConfigError for odd JSON."""
        found = super_users(
            self.init_authentication_user, self.inner_client_authentication_credentials
        )
        return {user.username or "": user for user in found}

    @property
    def speaks_tls(self) -> bool:
        """True if this controller speaks TLS to brokers."""
        return self.tls_server_mode == "enforcing" if self.use_tls is None else self.use_tls

    @property
    def peers(self) -> dict[str, str]:
        """The controllers by id, each with its address as "host:port"; empty if none are named."""
        return peers_of(self.controller_dleger_peers)

    def changed(self, texts: Mapping[str, str]) -> Self:
        """A copy with these keys set; ValueError names the key, its value and the allowed values.

        Unknown keys are ignored.
        """
        return changes.changed(self, ControllerConfig, texts)

    def to_properties(self) -> str:
        """All settings but passwords as `key=value` lines."""
        return changes.to_properties(
            self, ControllerConfig, {*SECRET_KEYS, INIT_USER, INNER_CREDENTIALS}
        )

    @property
    def black_list(self) -> frozenset[str]:
        """The keys that a request may not change."""
        return ALWAYS_BLACK | frozenset(filter(None, self.config_black_list.split(";")))
