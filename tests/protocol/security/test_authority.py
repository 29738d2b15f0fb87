"""An authority of an installation's own, as OpenSSL sees it."""

import ssl
import time
from pathlib import Path

import pytest
from aerobee.protocol.security.self_signed import Authority, Certificate


def handshake(trusted: bytes, served: Certificate, folder: Path, host: str) -> None:
    """Speak TLS in memory with a server that has this certificate. ssl.SSLError."""
    path = folder / "served.pem"
    path.write_bytes(served.certificate + served.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    asking = ssl.create_default_context(cadata=trusted.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=host)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "broker.example"])
def test_a_server_is_checked_by_each_of_its_names(host: str, tmp_path: Path) -> None:
    authority = Authority(time.time())
    served = authority.issue(["localhost", "127.0.0.1", "::1", "broker.example"])
    handshake(authority.own.certificate, served, tmp_path, host)


def test_another_name_or_authority_is_refused(tmp_path: Path) -> None:
    authority, other = Authority(time.time()), Authority(time.time())
    served = authority.issue(["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(authority.own.certificate, served, tmp_path, "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other.own.certificate, served, tmp_path, "localhost")


def test_a_server_signs_no_certificates(tmp_path: Path) -> None:
    served = Authority(time.time()).issue(["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(
            served.certificate, Authority(time.time()).issue(["localhost"]), tmp_path, "localhost"
        )
