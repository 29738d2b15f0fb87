"""The connections that a broker opens itself, to name servers and to its master."""

from ...protocol.aio.peers import Peers
from ...protocol.aio.tls import client_context
from ...protocol.security.signature import signed
from ..settings.access_settings import credentials_of
from ..settings.config import BrokerConfig


def open_peers(config: BrokerConfig) -> Peers:
    """With TLS and signatures as the settings ask for. OSError for an unusable certificate file."""
    tls = None
    if config.use_tls:
        tls = client_context(
            auth_server=config.tls_client_auth_server,
            trust_cert_path=config.tls_client_trust_cert_path,
        )
    credentials = credentials_of(config.inner_client_authentication_credentials)
    if credentials is None:
        return Peers(upgrade=False, tls=tls)
    name, secret = credentials
    return Peers(
        upgrade=False, tls=tls, sign=lambda fields, body: signed(fields, body, name, secret)
    )
