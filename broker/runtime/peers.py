"""The connections that a broker opens itself, to name servers and to its master."""

from ...conf.users import signing
from ...protocol.aio.peers import Peers
from ...protocol.aio.tls import client_context
from ..settings.config import BrokerConfig


def open_peers(config: BrokerConfig) -> Peers:
    """Open peers with TLS and signatures as the settings say. OSError for an unusable certificate
    file."""
    tls = None
    if config.use_tls:
        tls = client_context(
            auth_server=config.tls_client_auth_server,
            trust_cert_path=config.tls_client_trust_cert_path,
        )
    sign = signing(config.inner_client_authentication_credentials)
    return Peers(tls=tls, sign=sign)
