"""TLS of replication connections (haTls), with the broker's certificate and trust."""

import ssl

from ...protocol.aio.tls import client_context, server_context
from ..settings.config import BrokerConfig


def tls_of_master(config: BrokerConfig) -> ssl.SSLContext | None:
    """What slaves are served with; None without haTls. OSError for unusable files."""
    if not config.ha_tls:
        return None
    return server_context(config.tls_server_cert_path, config.tls_server_key_path)


def tls_of_slave(config: BrokerConfig) -> ssl.SSLContext | None:
    """What the master is asked with; None without haTls. OSError for an unusable file."""
    if not config.ha_tls:
        return None
    return client_context(
        auth_server=config.tls_client_auth_server,
        trust_cert_path=config.tls_client_trust_cert_path,
    )
