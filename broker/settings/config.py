"""The settings of a broker: RocketMQ's keys where it has one, with types, ranges and defaults.

An attribute is the key in snake case (`listenPort` is `listen_port`). An empty value that follows
from other settings or from the machine is filled in when the object is created. Every key has an
effect. Keys that only a Java broker knows are kept in `others`, so that a `broker.conf` works as it
is. conf/broker.yaml explains each key.

A broker works on its own copy, and its parts read a key when they use it. Only `DynamicSettings`
assigns to that copy, and only the keys of `DYNAMIC`.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from ...conf import log_levels
from ...conf.collectors import pairs_of, target_of
from ...conf.described import Described, described
from ...conf.java_keys import AUTH_KEYS, JAVA_KEYS
from ...conf.kinds import (
    LOG_FILE_MIB,
    BindAddress,
    ConsoleUrl,
    LogFileMib,
    LogFormat,
    LogLevels,
    Port,
    TlsMode,
)
from ...conf.load import Keys, load, text_of
from ...conf.secret import secret_of
from ...conf.sources import ConfigError
from ...protocol.addresses import is_loopback, is_nobodys
from ...protocol.codec import java_properties
from ...protocol.ha import CHUNK_BYTES_MAX
from ...store.base.retention import HOUR_MS, Rules
from ...store.base.settings import StoreSettings
from .access_settings import (
    check_classes,
    codes_of,
    credentials_of,
    init_user_of,
    shown,
)
from .delay_levels import parse_levels
from .ha_addresses import networks_of
from .store_host import may_be_host

NAME_CHARS_MAX = 90  # a system topic adds up to 37 characters, and may have 127 in all
NAME_PATTERN = r"^[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.-]*$"  # never one that leaves a folder

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=NAME_PATTERN)]
Ms = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
PeriodMs = Annotated[int, Meta(ge=10, le=86_400_000)]
Percent = Annotated[int, Meta(ge=1, le=100)]
# At most 100 names with ; between them.
GroupNames = Annotated[str, Meta(pattern=r"^([%|a-zA-Z0-9_-]{1,120}(;(?!$)|$)){0,100}$")]
PullBytes = Annotated[int, Meta(ge=1, le=15 << 20)]  # a response must fit into a frame
Queues = Annotated[int, Meta(ge=1, le=65_536)]

# Keys without effect here, each with the warning for an operator that relies on it.
NO_PLAIN_ACL = (
    "the plain_acl.yml of RocketMQ 4 is not read; use authenticationEnabled and "
    "authorizationEnabled with users and access lists as RocketMQ 5 has them"
)
NO_MIGRATION = (
    "the users of a plain_acl.yml are not taken over; make them with mqadmin's createUser and "
    "createAcl"
)
NO_DLEDGER = (
    "DLedger is not there; enableControllerMode with a controller keeps copies of the log and "
    "elects a master (docs/failover.md)"
)
RELIED_ON = {
    "aclEnable": NO_PLAIN_ACL,
    "migrateAuthFromV1Enabled": NO_MIGRATION,
    "enableDLegerCommitLog": NO_DLEDGER,
}
NO_SLAVE_NEEDED = (
    "brokerRole is SYNC_MASTER and inSyncReplicas is 1, the master itself: no send waits for a "
    "slave, as in RocketMQ 5; set inSyncReplicas=2 for one that does"
)
ACKS_CAN_BE_LOST = (
    "allAckInSyncStateSet=false: a send is acknowledged before every member of the sync state set "
    "has the message, so an election can lose acknowledged messages; leave it out, or set it to "
    "true"
)

OPEN_TO_ALL = (
    "bindAddress is {} and authenticationEnabled is false: anyone who reaches port {} can read and "
    "send messages, delete topics and change settings; set authenticationEnabled and "
    "authorizationEnabled (docs/security.md), or bindAddress=127.0.0.1"
)

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
NO_CAP_SEC = (1 << 31) - 1  # of timerMaxDelaySec: the largest there is, 68 years
TIMER_PRECISIONS_MS = (100, 200, 500, 1_000)
HTTP_PORT_OFF = -1
HA_PORT_DISTANCE = 1

SLAVE = "SLAVE"
SYNC_MASTER = "SYNC_MASTER"
SLAVES_MAX = 16  # of one master
# Percent: a slave has few readers, so it counts messages as cold earlier, as in RocketMQ.
SLAVE_RATIO_LESS = 10

# aerobee's own keys: Java tools don't know them, so GET_BROKER_CONFIG doesn't show them.
OWN_KEYS = frozenset(
    {
        "allowDuplicateMaster",
        "clientMemoryBytesMax",
        "compiledSends",
        "haAllowedAddresses",
        "haSecret",
        "haTls",
        "httpBindAddress",
        "httpPort",
        "logFile",
        "logFileMib",
        "logFormat",
        "logLevel",
        "auditLog",
        "retainUntilConsumedBy",
        "httpToken",
        "consoleUrl",
        "spansGrpcExporterTarget",
        "tlsClientAuthServer",
        "tlsClientTrustCertPath",
        "tlsServerCertPath",
        "tlsServerKeyPath",
        "tlsServerMode",
    }
)


class BrokerConfig(msgspec.Struct, rename="camel", kw_only=True):
    """All settings. ConfigError (a ValueError) for settings that are illegal or contradictory."""

    # Identity
    broker_cluster_name: Name = "DefaultCluster"
    broker_name: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""  # the host's name
    broker_id: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)] = 0
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"] = "ASYNC_MASTER"
    region_id: Annotated[str, Meta(min_length=1, max_length=255)] = "DefaultRegion"

    # Addresses and ports
    namesrv_addr: str = ""
    bind_address: BindAddress = "127.0.0.1"
    listen_port: Port = 10_911
    broker_ip1: str = field(name="brokerIP1", default="")
    broker_ip2: str = field(name="brokerIP2", default="")  # for slaves; brokerIP1 where empty
    # None: ten above listen_port, or the next free one
    http_port: Annotated[int, Meta(ge=HTTP_PORT_OFF, le=65_535)] | None = None
    http_bind_address: BindAddress = "127.0.0.1"
    http_token: str = ""
    console_url: ConsoleUrl = ""  # of a console of the cluster; empty: none is linked
    audit_log: str = ""  # a file; empty: none
    metrics_exporter_type: Literal["DISABLE", "OTLP_GRPC", "PROM", "LOG"] = "DISABLE"
    metrics_prom_exporter_host: str = ""  # brokerIP1 where empty
    metrics_prom_exporter_port: Port = 5_557
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = ""
    metric_grpc_exporter_time_out_in_mills: PeriodMs = 3_000
    metric_grpc_exporter_interval_in_mills: PeriodMs = 60_000
    metric_logging_exporter_interval_in_mills: PeriodMs = 10_000
    spans_grpc_exporter_target: str = ""  # a collector for spans; empty: none are made
    metrics_label: str = ""
    metrics_in_delta: bool = False
    client_memory_bytes_max: Annotated[int, Meta(ge=16 << 20, le=1 << 40)] = 512 << 20
    compiled_sends: bool = True
    server_channel_max_idle_time_seconds: Annotated[int, Meta(ge=10, le=86_400)] = 120
    tls_server_mode: TlsMode = "permissive"
    tls_server_cert_path: str = ""
    tls_server_key_path: str = ""
    use_tls: bool | None = field(name="useTLS", default=None)  # as tlsServerMode asks of others
    tls_client_auth_server: bool = False
    tls_client_trust_cert_path: str = ""
    log_level: LogLevels = ""  # as the command says
    log_format: LogFormat = "text"
    log_file: str = ""  # empty: standard error
    log_file_mib: LogFileMib = LOG_FILE_MIB
    register_name_server_period: PeriodMs = 30_000
    enable_split_registration: bool = False
    split_registration_size: Annotated[int, Meta(ge=1, le=100_000)] = 800
    enable_single_topic_register: bool = False
    forward_timeout: Annotated[int, Meta(ge=1, le=86_400_000)] = 3_000
    allow_duplicate_master: bool = False
    ha_master_address: str = ""  # a slave's; else the name servers tell it
    channel_expired_timeout: PeriodMs = 120_000

    # Replication
    ha_listen_port: Port = 0  # 0: the one behind listenPort
    ha_send_heartbeat_interval: PeriodMs = 5_000
    ha_housekeeping_interval: PeriodMs = 20_000
    ha_transfer_batch_size: Annotated[int, Meta(ge=1, le=CHUNK_BYTES_MAX)] = 32 << 10
    ha_secret: str = ""  # which master and slaves prove to each other
    ha_tls: bool = False
    ha_allowed_addresses: str = ""  # besides loopback and the replicas that the controller names
    ha_max_time_slave_not_catchup: PeriodMs = 15_000
    min_in_sync_replicas: Annotated[int, Meta(ge=1, le=SLAVES_MAX + 1)] = 1
    sync_from_last_file: bool = False
    async_learner: bool = False
    ha_max_gap_not_in_sync: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 256 << 20
    in_sync_replicas: Annotated[int, Meta(ge=1, le=SLAVES_MAX + 1)] = 1
    enable_auto_in_sync_replicas: bool = False
    slave_timeout: Annotated[int, Meta(ge=1, le=86_400_000)] = 3_000

    # Acting master
    enable_slave_acting_master: bool = False
    enable_remote_escape: bool = False
    skip_pre_online: bool = False
    send_heartbeat_timeout_millis: PeriodMs = 1_000
    sync_broker_member_group_period: PeriodMs = 1_000
    broker_not_active_timeout_millis: Annotated[int, Meta(ge=1_000, le=3_600_000)] = 10_000

    # Controller mode
    enable_controller_mode: bool = False
    controller_addr: str = ""
    broker_election_priority: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = (1 << 31) - 1
    broker_heartbeat_interval: PeriodMs = 1_000
    controller_heart_beat_timeout_mills: Annotated[int, Meta(ge=1_000, le=3_600_000)] = 10_000
    sync_broker_metadata_period: PeriodMs = 1_000  # Java's is 5,000
    # None: true in controller mode; Java's is false
    all_ack_in_sync_state_set: bool | None = None

    # Access control
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    authentication_metadata_provider: str = ""
    authorization_metadata_provider: str = ""
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = ""

    # Permissions of clients
    broker_permission: Annotated[int, Meta(ge=0, le=7)] = 6
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    default_topic_queue_nums: Queues = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_on: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: Name = "RMQ_SYS_TRACE_TOPIC"
    validate_system_topic_when_update_topic: bool = True
    enable_mixed_message_type: bool = False
    max_message_size: Annotated[int, Meta(ge=1, le=15 << 20)] = 4 << 20
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: Annotated[int, Meta(ge=0, le=100_000)] = 20_000
    message_delay_level: Annotated[
        str, Meta(pattern=r"^\s*\d+[smhdSMHD](\s+\d+[smhdSMHD])*\s*$")
    ] = DELAY_LEVELS

    # Timer messages
    timer_wheel_enable: bool = True
    timer_max_delay_sec: Annotated[int, Meta(ge=1, le=NO_CAP_SEC)] = NO_CAP_SEC
    timer_precision_ms: Annotated[int, Meta(ge=100, le=1_000)] = 1_000
    timer_roll_window_slot: Annotated[int, Meta(ge=2, le=604_740)] = 172_800
    timer_congest_num_each_slot: Annotated[int, Meta(ge=1, le=(1 << 31) - 1)] = (1 << 31) - 1
    timer_flush_interval_ms: PeriodMs = 1_000
    mapped_file_size_timer_log: Annotated[int, Meta(ge=4_096, le=(1 << 31) - 1)] = 100 << 20
    recall_message_enable: bool = False
    allow_recall_when_broker_not_writeable: bool = True

    # Transactions
    reject_transaction_message: bool = False
    transaction_time_out: Ms = 6_000
    transaction_check_max: Annotated[int, Meta(ge=1, le=1_000)] = 15
    transaction_check_interval: PeriodMs = 30_000
    transaction_op_msg_max_size: Annotated[int, Meta(ge=1, le=1 << 20)] = 4_096
    transaction_op_batch_interval: PeriodMs = 3_000
    transaction_metric_flush_interval: PeriodMs = 3_000

    # Delivery
    long_polling_enable: bool = True
    short_polling_time_mills: Ms = 1_000
    notify_consumer_ids_changed_enable: bool = True
    max_transfer_count_on_message_in_memory: Annotated[int, Meta(ge=1, le=10_000)] = 32
    max_transfer_bytes_on_message_in_memory: PullBytes = 256 << 10
    max_transfer_count_on_message_in_disk: Annotated[int, Meta(ge=1, le=10_000)] = 8
    max_transfer_bytes_on_message_in_disk: PullBytes = 64 << 10
    access_message_in_memory_max_ratio: Percent = 40
    access_message_in_memory_hot_ratio: Percent = 26
    cold_data_flow_control_enable: bool = False
    cold_data_scan_enable: bool = False
    cg_cold_read_threshold: Annotated[int, Meta(ge=0, le=1 << 62)] = 3 << 20
    global_cold_read_threshold: Annotated[int, Meta(ge=0, le=1 << 62)] = 100 << 20
    data_read_ahead_enable: bool = True
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False
    slave_read_enable: bool = False
    enable_property_filter: bool = False
    filter_support_retry: bool = False
    filter_data_clean_time_span: Ms = 86_400_000
    expect_consumer_num_use_filter: Annotated[int, Meta(ge=1, le=100_000)] = 32
    max_error_rate_of_bloom_filter: Annotated[int, Meta(ge=1, le=99)] = 20
    max_filter_message_size: Annotated[int, Meta(ge=20, le=1 << 30)] = 16_000
    use_server_side_reset_offset: bool = True
    estimate_accumulation: bool = True
    store_reply_message_enable: bool = True
    default_query_max_num: Annotated[int, Meta(ge=1, le=10_000)] = 32

    # Pop
    default_message_request_mode: Literal["PULL", "POP"] = "PULL"
    default_pop_share_queue_num: Annotated[int, Meta(ge=-1, le=100_000)] = -1
    server_load_balancer_enable: bool = True
    load_balance_poll_name_server_interval: PeriodMs = 30_000
    init_pop_offset_by_check_msg_in_mem: bool = True
    pop_from_retry_probability: Annotated[int, Meta(ge=0, le=100)] = 20
    enable_retry_topic_v2: bool = field(name="enableRetryTopicV2", default=False)
    retrieve_message_from_pop_retry_topic_v1: bool = field(
        name="retrieveMessageFromPopRetryTopicV1", default=True
    )
    pop_response_return_actual_retry_topic: bool = False
    pop_polling_size: Annotated[int, Meta(ge=0, le=1_000_000)] = 1_024
    max_pop_polling_size: Annotated[int, Meta(ge=0, le=1_000_000)] = 100_000
    enable_pop_message_threshold: bool = False
    pop_inflight_message_threshold: Annotated[int, Meta(ge=0, le=1 << 62)] = 10_000
    enable_pop_buffer_merge: bool = True  # Java's is false
    pop_ck_stay_buffer_time: Ms = 10_000
    pop_ck_stay_buffer_time_out: Ms = 3_000
    pop_ck_max_buffer_size: Annotated[int, Meta(ge=0, le=10_000_000)] = 200_000
    pop_ck_offset_max_queue_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000
    revive_queue_num: Annotated[int, Meta(ge=1, le=998)] = 8
    revive_interval: PeriodMs = 1_000

    # Storage
    store_path_root_dir: str = "~/store"
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: Annotated[int, Meta(ge=4_096, le=(1 << 31) - 1)] = 1 << 30
    mapped_file_size_consume_queue: Annotated[int, Meta(ge=20, le=(1 << 31) - 1)] = 6_000_000
    mapped_file_size_consume_queue_ext: Annotated[int, Meta(ge=4_096, le=(1 << 31) - 1)] = 48 << 20
    mapper_file_size_batch_consume_queue: Annotated[int, Meta(ge=46, le=(1 << 31) - 1)] = 13_800_000
    message_index_enable: bool = True
    enabled_append_prop_crc: bool = field(name="enabledAppendPropCRC", default=False)
    max_hash_slot_num: Annotated[int, Meta(ge=1, le=100_000_000)] = 5_000_000
    max_index_num: Annotated[int, Meta(ge=2, le=100_000_000)] = 20_000_000
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    flush_interval_commit_log: PeriodMs = 500
    flush_interval_consume_queue: PeriodMs = 1_000
    flush_consume_queue_thorough_interval: PeriodMs = 60_000
    sync_flush_timeout: Annotated[int, Meta(ge=1, le=86_400_000)] = 5_000
    flush_consumer_offset_interval: PeriodMs = 5_000
    flush_delay_offset_interval: PeriodMs = 10_000

    # Retention
    file_reserved_time: Annotated[int, Meta(ge=1, le=1_000_000)] = 72
    delete_when: Annotated[str, Meta(pattern=r"^\d{1,2}(;\d{1,2})*$")] = "04"
    clean_resource_interval: PeriodMs = 10_000
    disk_max_used_space_ratio: Percent = 75
    disk_space_clean_forcibly_ratio: Percent = 85
    disk_space_warning_level_ratio: Percent = 90
    clean_file_forcibly_enable: bool = True
    delete_file_batch_max: Annotated[int, Meta(ge=1, le=10_000)] = 10
    delete_commit_log_files_interval: Ms = 100
    delete_consume_queue_files_interval: Ms = 100
    destroy_maped_file_interval_forcibly: Ms = 120_000
    redelete_hanged_file_interval: Ms = 120_000
    retain_until_consumed_by: GroupNames = ""

    # Keys of other kinds of broker, or unknown ones, as they were given
    others: dict[str, str] = {}

    def __post_init__(self) -> None:
        self._check_controller_mode()
        if not self.is_slave:
            self.broker_id = 0  # a master's, whatever was given, as in RocketMQ
        elif self.broker_id <= 0 and not self.enable_controller_mode:
            raise ConfigError(
                f"brokerRole is SLAVE and brokerId is {self.broker_id}, but a slave's must be at "
                "least 1, and one of a kind among the slaves of its master; set it"
            )
        if not self.broker_name:
            self.broker_name = _host_name()
        elif re.search(NAME_PATTERN, self.broker_name) is None:
            raise ConfigError(
                f"brokerName is {self.broker_name!r}, but becomes a topic's name and must match "
                f"{NAME_PATTERN}; correct it"
            )
        if not self.broker_ip1:
            self.broker_ip1 = reachable_address(self.bind_address)
        if not may_be_host(self.broker_ip1):
            raise ConfigError(
                f"brokerIP1 is {self.broker_ip1!r}, but must be an IP address or the name of a "
                "host, without a port; correct it, or leave it out and set bindAddress"
            )
        if not self.broker_ip2:
            self.broker_ip2 = self.broker_ip1
        if not may_be_host(self.broker_ip2):
            raise ConfigError(
                f"brokerIP2 is {self.broker_ip2!r}, but must be an IP address or the name of a "
                "host, without a port, where slaves reach this broker; correct it or leave it out"
            )
        if self.ha_master_address and not _is_host_port(self.ha_master_address):
            raise ConfigError(
                f"haMasterAddress is {self.ha_master_address!r}, but must be host:port, of the "
                "master's port for replication (haListenPort there); correct it, or leave it out "
                "to have it from the name servers"
            )
        for text in self.name_servers:
            host, _, port = text.rpartition(":")
            if not may_be_host(host.strip("[]")) or not port.isdecimal() or int(port) > 65_535:
                raise ConfigError(
                    f"namesrvAddr names {text!r}, but must be host:port, several with ; between "
                    "them; correct it"
                )
        # RocketMQ has these four precisions and rounds any other value down to one of them.
        ticks = max(one for one in TIMER_PRECISIONS_MS if one <= self.timer_precision_ms)
        self.timer_precision_ms = ticks
        if self.ha_listen_port == 0:
            near = self.listen_port and self.listen_port + HA_PORT_DISTANCE
            self.ha_listen_port = near if near <= 65_535 else 0
        if self.use_tls is None:
            self.use_tls = self.tls_server_mode == "enforcing"
        if "," in self.store_path_commit_log:
            raise ConfigError(
                f"storePathCommitLog is {self.store_path_commit_log}, but a log in several folders "
                "is not served; name one folder, and move all files of the log there"
            )
        log_levels.parse(self.log_level)
        pairs_of("metricsLabel", self.metrics_label)
        pairs_of("metricsGrpcExporterHeader", self.metrics_grpc_exporter_header)
        self._check_collectors()
        self._check_access()
        hours = self.delete_when.split(";")
        if max(map(int, hours)) > 23:
            raise ConfigError(
                f"deleteWhen is {self.delete_when}, but holds hours from 00 to 23 with ; between "
                "them; correct it"
            )

    def _check_collectors(self) -> None:
        if self.metrics_exporter_type == "OTLP_GRPC":
            target_of("metricsGrpcExporterTarget", self.metrics_grpc_exporter_target)
        if self.spans_grpc_exporter_target:
            target_of("spansGrpcExporterTarget", self.spans_grpc_exporter_target)

    def _check_controller_mode(self) -> None:
        networks_of(self.ha_allowed_addresses)
        if self.all_ack_in_sync_state_set is None:
            self.all_ack_in_sync_state_set = self.enable_controller_mode
        if not self.enable_controller_mode:
            return
        if not self.controllers:
            raise ConfigError(
                "enableControllerMode is true and controllerAddr is empty, so nobody could say "
                "which broker is the master; set controllerAddr=host:port;host:port"
            )
        for text in self.controllers:
            if not _is_host_port(text):
                raise ConfigError(
                    f"controllerAddr names {text!r}, but must be host:port, several with ; between "
                    "them; correct it"
                )
        if self.ha_master_address:
            raise ConfigError(
                f"haMasterAddress is {self.ha_master_address!r} and enableControllerMode is true, "
                "but there the controller names the master; leave haMasterAddress out"
            )

    def _check_access(self) -> None:
        providers = {
            "authenticationMetadataProvider": self.authentication_metadata_provider,
            "authorizationMetadataProvider": self.authorization_metadata_provider,
        }
        check_classes(self.others | providers)
        secret_of("httpToken", self.http_token)
        secret_of("haSecret", self.ha_secret)
        if self.ha_tls and not self.tls_server_cert_path:
            raise ConfigError(
                "haTls is true and tlsServerCertPath is empty, so slaves could check no "
                "certificate; set tlsServerCertPath and tlsServerKeyPath, or leave haTls out"
            )
        init_user_of(self.init_authentication_user)
        credentials_of(self.inner_client_authentication_credentials)
        codes_of("authenticationWhitelist", self.authentication_whitelist)
        codes_of("authorizationWhitelist", self.authorization_whitelist)
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorizationEnabled is true and authenticationEnabled is not, so anybody could "
                "name himself any user; switch on both, or neither"
            )

    @property
    def name_servers(self) -> list[str]:
        """The addresses in namesrvAddr, separated by semicolons or commas."""
        return [text for text in self.namesrv_addr.replace(",", ";").split(";") if text]

    @property
    def controllers(self) -> list[str]:
        """The addresses in controllerAddr, separated by semicolons or commas."""
        return [text for text in self.controller_addr.replace(",", ";").split(";") if text]

    @property
    def keeps_users(self) -> bool:
        """True if the broker keeps users, also while requests need no signature yet."""
        return self.authentication_enabled or bool(self.authentication_metadata_provider.strip())

    @property
    def keeps_access_lists(self) -> bool:
        """True if the broker keeps access lists, also while they are not enforced yet."""
        return self.authentication_enabled or bool(self.authorization_metadata_provider.strip())

    @property
    def acks_needed(self) -> int:
        """The number of slaves that must have a message before its sender gets a response."""
        return self.in_sync_replicas - 1 if self.broker_role == SYNC_MASTER else 0

    @property
    def is_slave(self) -> bool:
        """True if this broker is a slave, which stores only its master's log."""
        return self.broker_role == SLAVE

    @property
    def has_acting_master(self) -> bool:
        """True if a slave of this broker's name stands in for a master that is gone; in controller
        mode another master is elected instead."""
        return self.enable_slave_acting_master and not self.enable_controller_mode

    @property
    def lmq_enable(self) -> bool:
        """True if messages have entries in the light queues (%LMQ%) that they name."""
        return self.enable_lmq and self.enable_multi_dispatch

    @property
    def commit_log_dir(self) -> Path:
        """The folder of the commit log."""
        return Path(self.store_path_commit_log or self.store_dir / "commitlog").expanduser()

    @property
    def store_dir(self) -> Path:
        """The folder of everything else in the store."""
        return Path(self.store_path_root_dir).expanduser()

    def store_settings(self) -> StoreSettings:
        """The settings of the store; StoreError for a size that it can't have."""
        return StoreSettings(
            segment_bytes=self.mapped_file_size_commit_log,
            queue_file_bytes=self.mapped_file_size_consume_queue,
            batch_queue_file_bytes=self.mapper_file_size_batch_consume_queue,
            queue_ext_file_bytes=self.mapped_file_size_consume_queue_ext,
            index_slots=self.max_hash_slot_num,
            index_entries=self.max_index_num,
            index_enable=self.message_index_enable,
            append_crc=self.enabled_append_prop_crc,
            sync_flush=self.flush_disk_type == "SYNC_FLUSH",
            lmq_enable=self.lmq_enable,
            light_queues_max=self.max_lmq_consume_queue_num,
            max_message_bytes=self.max_message_size,
            pull_messages_max=self.max_transfer_count_on_message_in_memory,
            pull_bytes_max=self.max_transfer_bytes_on_message_in_memory,
            pull_messages_max_on_disk=self.max_transfer_count_on_message_in_disk,
            pull_bytes_max_on_disk=self.max_transfer_bytes_on_message_in_disk,
            memory_ratio_percent=self._memory_ratio_percent(),
            scan_bytes_max=self.max_filter_message_size,
            delay_levels_ms=tuple(parse_levels(self.message_delay_level)),
            commit_log_dir=self.commit_log_dir,
            queue_sync_ms=self.flush_interval_consume_queue,
            queue_sync_thorough_ms=self.flush_consume_queue_thorough_interval,
            rules=self.retention_rules(),
            controller_mode=self.enable_controller_mode,
        )

    def _memory_ratio_percent(self) -> int:
        less = SLAVE_RATIO_LESS if self.is_slave else 0
        return max(1, self.access_message_in_memory_max_ratio - less)

    def retention_rules(self) -> Rules:
        """The store's rules for keeping and deleting files."""
        return Rules(
            keep_ms=self.file_reserved_time * HOUR_MS,
            hours=frozenset(map(int, self.delete_when.split(";"))),
            early_percent=self.disk_max_used_space_ratio,
            force_percent=self.disk_space_clean_forcibly_ratio,
            refuse_percent=self.disk_space_warning_level_ratio,
            may_force=self.clean_file_forcibly_enable,
            files_max=self.delete_file_batch_max,
            log_pause_ms=self.delete_commit_log_files_interval,
            queue_pause_ms=self.delete_consume_queue_files_interval,
            held_ms=self.destroy_maped_file_interval_forcibly,
            retry_ms=self.redelete_hanged_file_interval,
        )

    def as_properties(self) -> dict[str, str]:
        """Every key of a Java broker, with its value here or else Java's default."""
        found = {key: default for key, (_, default) in JAVA_KEYS.items() if default is not None}
        found |= {
            "rocketmqHome": os.environ.get("ROCKETMQ_HOME", ""),
            "configName": self.broker_name,
            "clusterName": self.broker_cluster_name,
            "authConfigPath": str(self.store_dir / "config"),
        }
        found |= self.others
        found |= {
            key: shown(key, text_of(getattr(self, info.name)))
            for key, info in KEYS.fields.items()
            if key not in OWN_KEYS
        }
        for key in ("namesrvAddr", "storePathCommitLog", "haMasterAddress"):
            if not found[key]:
                del found[key]  # null in Java
        return found


KEYS = Keys(BrokerConfig, {key: kind for key, (kind, _) in JAVA_KEYS.items()})


def load_broker(
    *,
    file: Path | None = None,
    options: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[BrokerConfig, list[str]]:
    """The settings from all sources, and the warnings. ConfigError with one sentence."""
    config, warnings = load(KEYS, file=file, options=options, environ=environ)
    for key, instead in RELIED_ON.items():
        if config.others.get(key, "").lower() == "true":
            warnings.append(f"{key}=true has no effect: {instead}")
    if config.enable_lmq != config.enable_multi_dispatch:
        warnings.append(
            f"enableLmq={str(config.enable_lmq).lower()} and enableMultiDispatch="
            f"{str(config.enable_multi_dispatch).lower()}: messages get no entries in light queues "
            "(%LMQ%), which need both; set both to true"
        )
    if config.enable_controller_mode and not config.all_ack_in_sync_state_set:
        warnings.append(ACKS_CAN_BE_LOST)
    if config.broker_role == SYNC_MASTER and config.acks_needed == 0:
        warnings.append(NO_SLAVE_NEEDED)
    for key, address in (("brokerIP1", config.broker_ip1), ("brokerIP2", config.broker_ip2)):
        if is_nobodys(address):
            warnings.append(
                f"{key} is {address}, at which nobody can connect to this broker, and clients and "
                "slaves are told it; set it to an address of this machine, or leave it out"
            )
    if not config.authentication_enabled and not is_loopback(config.bind_address):
        warnings.append(OPEN_TO_ALL.format(config.bind_address, config.listen_port))
    return config, warnings


def to_text(config: BrokerConfig, later: Mapping[str, str]) -> str:
    """The body of GET_BROKER_CONFIG (26), without passwords; `later` are settings that take effect
    at the next start.

    The keys of Java's AuthConfig are included only if they were given. Folders are absolute, so
    that commands in other folders of this machine find them (`aerobee backup BROKER`).
    """
    fields = KEYS.fields
    given = {key for key in AUTH_KEYS & fields.keys() if getattr(config, fields[key].name)}
    unseen = AUTH_KEYS - config.others.keys() - given
    found = {key: text for key, text in config.as_properties().items() if key not in unseen}
    folders = {"storePathRootDir": config.store_dir, "storePathCommitLog": config.commit_log_dir}
    found |= {key: str(path.absolute()) for key, path in folders.items() if key in found}
    found |= later
    return java_properties.dump(found)


def describe(config: BrokerConfig, origins: Mapping[str, str]) -> list[Described]:
    """Every key with its value, without passwords. `origins`: the sources of the given ones."""
    return described(KEYS, _every_value(config), _every_value(BrokerConfig()), origins)


def _every_value(config: BrokerConfig) -> dict[str, str]:
    return config.as_properties() | {
        key: shown(key, text_of(getattr(config, info.name))) for key, info in KEYS.fields.items()
    }


def reachable_address(bind_address: str) -> str:
    """The address to tell clients for a server bound to `bind_address`.

    On loopback only this host can connect. For a server bound to every address, it is the address
    from which this machine reaches others: the host itself and its containers can use it.
    """
    if bind_address not in ("0.0.0.0", "::"):  # noqa: S104
        return "127.0.0.1" if bind_address == "localhost" else bind_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # for documentation only; UDP sends nothing here
            found = str(probe.getsockname()[0])
        except OSError:
            found = ""
    if found and not found.startswith("127.") and found != "0.0.0.0":  # noqa: S104
        return found
    try:
        entries = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    except OSError:
        entries = []
    addresses = [str(entry[4][0]) for entry in entries]
    return next((one for one in addresses if not one.startswith("127.")), "127.0.0.1")


def _is_host_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return may_be_host(host.strip("[]")) and port.isdecimal() and 0 < int(port) <= 65_535


def _host_name() -> str:
    legal = re.sub(r"[^%|a-zA-Z0-9_.-]", "-", socket.gethostname())[:NAME_CHARS_MAX]
    return legal.lstrip(".") or "DEFAULT_BROKER"
