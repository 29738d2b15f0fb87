"""The settings of a proxy, under the names of RocketMQ's ProxyConfig."""

import ipaddress
from typing import Annotated

import msgspec
from msgspec import Meta

from ...conf import log_levels
from ...conf.collectors import pairs_of, target_of
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
from ...conf.load import Keys
from ...conf.secret import secret_of
from ...conf.users import credentials_of

Bytes = Annotated[int, Meta(ge=1, le=1 << 30)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Millis = Annotated[int, Meta(ge=0, le=31_536_000_000)]
Seconds = Annotated[int, Meta(ge=1, le=86_400)]


class ProxyConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """All settings. The defaults are RocketMQ's, except that the port accepts only connections from
    this machine, and that endpoints are what the client dialled, port too.

    Sizes in bytes, times in ms unless the name says seconds. A limit of 0 is none where RocketMQ
    has it so.
    """

    namesrv_addr: str = ""
    bind_address: BindAddress = "127.0.0.1"
    grpc_server_port: Port = 8081
    grpc_workers: Annotated[int, Meta(ge=1, le=64)] = 1
    tls_server_mode: TlsMode = "permissive"
    tls_key_path: str = ""
    tls_cert_path: str = ""
    proxy_protocol_addresses: str = ""
    grpc_max_inbound_message_size: Bytes = 136_314_880
    grpc_client_idle_time_mills: Annotated[int, Meta(ge=10_000, le=86_400_000)] = 120_000
    grpc_shutdown_time_seconds: Annotated[int, Meta(ge=0, le=3_600)] = 30
    use_endpoint_port_from_request: bool = True
    http_port: Annotated[int, Meta(ge=-1, le=65_535)] | None = None
    http_bind_address: BindAddress = "127.0.0.1"
    http_token: str = ""
    log_level: LogLevels = ""  # as the command says
    log_format: LogFormat = "text"
    log_file: str = ""  # empty: standard error
    log_file_mib: LogFileMib = LOG_FILE_MIB
    console_url: ConsoleUrl = ""  # of a console of the cluster; empty: none is linked
    spans_grpc_exporter_target: str = ""  # a collector for spans; empty: none are made
    metrics_grpc_exporter_header: str = ""  # of requests with spans
    metric_grpc_exporter_time_out_in_mills: Annotated[int, Meta(ge=10, le=86_400_000)] = 3_000
    proxy_cluster_name: str = "DefaultCluster"
    proxy_name: str = ""

    max_message_size: Annotated[int, Meta(ge=0, le=1 << 30)] = 4_194_304
    enable_message_body_empty_check: bool = True
    max_user_property_size: Bytes = 16_384
    user_property_max_num: Count = 128
    max_message_group_size: Count = 64
    max_transaction_recovery_second: Count = 3_600
    enable_topic_message_type_check: bool = True
    auto_create_topic: bool = False
    transaction_data_expire_millis: Millis = 30_000

    default_invisible_time_mills: Millis = 60_000
    min_invisible_time_mills_for_recv: Millis = 10_000
    max_invisible_time_mills: Millis = 43_200_000
    invisible_time_mills_when_clear: Millis = 1_000
    enable_proxy_auto_renew: bool = True
    renew_ahead_time_millis: Millis = 10_000
    renew_max_time_millis: Millis = 10_800_000
    renew_schedule_period_millis: Annotated[int, Meta(ge=10, le=600_000)] = 5_000
    max_renew_retry_times: Annotated[int, Meta(ge=1, le=100)] = 3

    grpc_client_producer_max_attempts: Annotated[int, Meta(ge=1, le=100)] = 3
    grpc_client_producer_backoff_initial_millis: Millis = 10
    grpc_client_producer_backoff_max_millis: Millis = 1_000
    grpc_client_producer_backoff_multiplier: Annotated[int, Meta(ge=1, le=100)] = 2
    # RocketMQ's default is 5,000: a client that waits 1 s waits 5 s there, or is refused.
    grpc_client_consumer_min_long_polling_timeout_millis: Millis = 0
    grpc_client_consumer_max_long_polling_timeout_millis: Millis = 20_000
    # An answer is there so long before its client's deadline. RocketMQ's default is 100.
    long_polling_reserve_time_in_millis: Millis = 1_000
    transaction_heartbeat_period_second: Seconds = 20
    grpc_client_consumer_long_polling_batch_size: Annotated[int, Meta(ge=1, le=32)] = 32
    channel_expired_timeout: Millis = 120_000
    client_grace_millis: Millis = 10_000
    grpc_proxy_relay_request_timeout_in_seconds: Seconds = 5
    topic_route_cache_refresh_seconds: Seconds = 20
    topic_config_cache_refresh_seconds: Seconds = 20
    subscription_group_config_cache_refresh_seconds: Seconds = 20
    user_cache_refresh_seconds: Seconds = 20
    acl_cache_refresh_seconds: Seconds = 20

    authentication_enabled: bool = False
    authorization_enabled: bool = False
    inner_client_authentication_credentials: str = ""
    audit_log: str = ""  # a file for refusals; empty: none
    use_tls: bool = msgspec.field(default=False, name="useTLS")  # to name servers and brokers
    tls_client_auth_server: bool = False
    tls_client_trust_cert_path: str = ""

    def __post_init__(self) -> None:
        self.credentials()
        log_levels.parse(self.log_level)
        self.balancers()
        secret_of("httpToken", self.http_token)
        pairs_of("metricsGrpcExporterHeader", self.metrics_grpc_exporter_header)
        if self.spans_grpc_exporter_target:
            target_of("spansGrpcExporterTarget", self.spans_grpc_exporter_target)

    def balancers(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of proxyProtocolAddresses. ValueError for what is none."""
        words = filter(None, map(str.strip, self.proxy_protocol_addresses.split(",")))
        try:
            return tuple(ipaddress.ip_network(word, strict=False) for word in words)
        except ValueError as wrong:
            raise ValueError(
                f"proxyProtocolAddresses: {wrong}; write addresses or networks with commas "
                "between, such as 10.0.0.7,10.1.0.0/16"
            ) from None

    def credentials(self) -> tuple[str, str]:
        """Access key and secret key towards brokers; empty without. ValueError for odd JSON."""
        return credentials_of(self.inner_client_authentication_credentials) or ("", "")


# Keys of RocketMQ's proxy that have no effect here, with their Java types.
ACCEPTED = {
    "rocketMQClusterName": "String",
    "proxyMode": "String",
    "localServeAddr": "String",
    "remotingListenPort": "int",
    "heartbeatSyncerTopicClusterName": "String",
    "heartbeatSyncerTopicName": "String",
    "systemTopicClusterName": "String",
    "grpcBossLoopNum": "int",
    "grpcWorkerLoopNum": "int",
    "enableGrpcEpoll": "boolean",
    "grpcThreadPoolNums": "int",
    "grpcThreadPoolQueueCapacity": "int",
    "brokerConfigPath": "String",
    "maxDelayTimeMills": "long",
    "tlsTestModeEnable": "boolean",
    "enableACL": "boolean",
    "enableBatchAck": "boolean",
    "useDelayLevel": "boolean",
    "metricCollectorMode": "String",
    "metricsExporterType": "String",
    "metricsPromExporterPort": "int",
    "metricsPromExporterHost": "String",
}
KEYS = Keys(ProxyConfig, accepted=ACCEPTED)
