"""A certificate that a server makes for itself, as OpenSSL sees it."""

import ssl
import time
from pathlib import Path

from aerobee.protocol.security import self_signed

NOW_S = 1_800_000_000.0  # 15 January 2027, 08:00 GMT


def test_a_certificate_names_itself_and_lasts_ten_years(tmp_path: Path) -> None:
    path = tmp_path / "own.pem"
    path.write_bytes(self_signed.make(NOW_S, "broker ü"))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)  # key and certificate agree
    context = ssl.create_default_context(cafile=str(path))
    [found] = context.get_ca_certs()
    assert found["subject"] == found["issuer"] == ((("commonName", "broker ü"),),)
    assert ssl.cert_time_to_seconds(str(found["notBefore"])) == NOW_S - 86_400
    assert ssl.cert_time_to_seconds(str(found["notAfter"])) == NOW_S + 3_650 * 86_400


def test_no_two_are_the_same() -> None:
    keys = {self_signed.make(time.time())[:200] for _ in range(3)}
    assert len(keys) == 3
