"""The settings of a name server, under RocketMQ's key names, each with its type and range.

A frozen value: changing a setting while running makes a new one. Keys that have no meaning here
(thread pools, buffers of the Java server) are accepted, kept and shown, so that a properties file
of a Java name server works unchanged; `UNUSED` lists them.
"""

from collections.abc import Mapping
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from ..conf import changes, log_levels
from ..conf.kinds import BindAddress, IdleSeconds, IntervalMs, LogLevels, Port, TlsMode
from ..conf.sources import ConfigError
from ..conf.users import INIT_USER, INNER_CREDENTIALS, super_users
from ..protocol.bodies.access import UserInfo

Count = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Seconds = Annotated[int, Meta(ge=0, le=86_400)]

SECRET_KEYS = {INIT_USER, INNER_CREDENTIALS}
START_KEYS = frozenset(
    {
        "tlsServerCertPath",
        "tlsServerKeyPath",
        "tlsServerMode",
        "authenticationEnabled",
        "authorizationEnabled",
        "namesrvAuthenticationRequired",
        "authUsersPath",
        INIT_USER,
        INNER_CREDENTIALS,
        "auditLog",
    }
)
OWN_KEYS = START_KEYS | {"logLevel"}
ALWAYS_BLACK = START_KEYS | {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}


class NamesrvConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """All settings; the defaults are RocketMQ's, except that nothing is bound to the outside or
    written to a disk unless a setting says so."""

    listen_port: Port = 9876
    bind_address: BindAddress = "127.0.0.1"
    server_channel_max_idle_time_seconds: IdleSeconds = 120
    tls_server_mode: TlsMode = "permissive"
    tls_server_cert_path: str = ""
    tls_server_key_path: str = ""
    log_level: LogLevels = ""  # as the command says

    authentication_enabled: bool = False  # of brokers and administrators
    authorization_enabled: bool = False
    namesrv_authentication_required: bool = False  # of every client, also for routes
    auth_users_path: str = ""  # the folder of users.json and acls.json
    init_authentication_user: str = ""  # a super user, as JSON
    inner_client_authentication_credentials: str = ""  # of its notices, and a super user
    audit_log: str = ""  # a file; empty: none

    kv_config_path: str = ""  # empty: the key-value config lives in memory only
    config_store_path: str = ""  # empty: changes of settings are not stored
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    # As in 5.3.3; 4.9 and RocketMQ's texts have 10 s. A broker is dead after 120 s in all of them.
    scan_not_active_broker_interval: IntervalMs = 5_000
    delete_topic_with_broker_registration: bool = False
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: Seconds = 45
    enable_controller_in_namesrv: bool = False  # as the command reads it

    rocketmq_home: str = ""
    product_env_name: str = "center"
    cluster_test: bool = False
    client_request_thread_pool_nums: Count = 8
    default_thread_pool_nums: Count = 16
    client_request_thread_pool_queue_capacity: Count = 50_000
    default_thread_pool_queue_capacity: Count = 10_000
    un_register_broker_queue_capacity: Count = 3_000
    server_worker_threads: Count = 8
    server_callback_executor_threads: Count = 0
    server_selector_threads: Count = 3
    server_oneway_semaphore_value: Count = 256
    server_async_semaphore_value: Count = 64
    server_socket_snd_buf_size: Count = 0
    server_socket_rcv_buf_size: Count = 0
    write_buffer_high_water_mark: Count = 0
    write_buffer_low_water_mark: Count = 0
    server_socket_backlog: Count = 1_024
    server_netty_worker_group_enable: bool = True
    server_pooled_byte_buf_allocator_enable: bool = True
    enable_shutdown_gracefully: bool = False
    shutdown_wait_time_seconds: Seconds = 30
    use_epoll_native_selector: bool = False

    def __post_init__(self) -> None:
        log_levels.parse(self.log_level)
        self.first_users()
        needs_users = self.authorization_enabled or self.namesrv_authentication_required
        if needs_users and not self.authentication_enabled:
            raise ConfigError(
                "authorizationEnabled or namesrvAuthenticationRequired is true and "
                "authenticationEnabled is not, so nobody would have to prove a name; set "
                "authenticationEnabled=true, or leave them out"
            )

    def first_users(self) -> list[UserInfo]:
        """The super users that the settings name. ConfigError for odd JSON."""
        return super_users(
            self.init_authentication_user, self.inner_client_authentication_credentials
        )

    def changed(self, texts: Mapping[str, object]) -> Self:
        """The settings with these keys set; ValueError naming key, value and the legal values.

        Unknown keys are ignored: `conf.changes.unknown_keys` lists them.
        """
        return changes.changed(self, NamesrvConfig, texts)

    def to_properties(self, *, own: bool = True) -> str:
        """All settings but the password as `key=value` lines; without `own` only the keys of a Java
        name server."""
        return changes.to_properties(self, NamesrvConfig, SECRET_KEYS if own else OWN_KEYS)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that a request may not change."""
        return ALWAYS_BLACK | frozenset(filter(None, self.config_black_list.split(";")))


_NAMES = [each.encode_name for each in msgspec.structs.fields(NamesrvConfig)]
UNUSED = frozenset(_NAMES[_NAMES.index("rocketmqHome") :])
