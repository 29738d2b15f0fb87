"""The settings of a controller, under RocketMQ's key names, each with its type and range."""

from collections.abc import Mapping
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from ..conf import changes
from ..conf.kinds import BindAddress, IdleSeconds, IntervalMs, Port, TlsMode

Count = Annotated[int, Meta(ge=1, le=1_000)]

ALWAYS_BLACK = frozenset(
    {
        *("bindAddress", "listenPort", "controllerType", "controllerStorePath"),
        *("tlsServerCertPath", "tlsServerKeyPath", "tlsServerMode"),
        *("configBlackList", "configStorePath", "controllerDLegerGroup", "controllerDLegerSelfId"),
    }
)
CONSENSUS_OF_ROCKETMQ = ("DLedger", "jRaft")


class ControllerConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """All settings. The defaults are RocketMQ's, with two exceptions: the state is a journal on the
    local disk, and the port accepts only connections from this machine.

    `controller_type` is "file": one controller, whose state is in `controller_store_path`.
    """

    listen_port: Port = 9878
    bind_address: BindAddress = "127.0.0.1"
    server_channel_max_idle_time_seconds: IdleSeconds = 120
    tls_server_mode: TlsMode = "permissive"
    tls_server_cert_path: str = ""
    tls_server_key_path: str = ""

    controller_type: str = "file"
    controller_store_path: str = "aerobee-controller"
    controller_dleger_group: str = msgspec.field(default="group1", name="controllerDLegerGroup")
    controller_dleger_self_id: str = msgspec.field(default="n0", name="controllerDLegerSelfId")
    scan_not_active_broker_interval: IntervalMs = 5_000
    elect_master_max_retry_count: Count = 3
    enable_elect_unclean_master: bool = False
    notify_broker_role_changed: bool = True
    config_black_list: str = "configBlackList;configStorePath"

    def __post_init__(self) -> None:
        if self.controller_type in CONSENSUS_OF_ROCKETMQ:
            raise ValueError(
                f"controllerType is {self.controller_type!r}: RocketMQ's own consensus is not "
                "served here; take controllerType=file, or let the brokers join RocketMQ's "
                "controllers (controllerAddr)"
            )
        if self.controller_type != "file":
            raise ValueError(f"controllerType is {self.controller_type!r}; file is what there is")

    def changed(self, texts: Mapping[str, str]) -> Self:
        """A copy with these keys set; ValueError names the key, its value and the allowed values.

        Unknown keys are ignored.
        """
        return changes.changed(self, ControllerConfig, texts)

    def to_properties(self) -> str:
        """All settings as `key=value` lines."""
        return changes.to_properties(self, ControllerConfig)

    @property
    def black_list(self) -> frozenset[str]:
        """The keys that a request may not change."""
        return ALWAYS_BLACK | frozenset(filter(None, self.config_black_list.split(";")))
