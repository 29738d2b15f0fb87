"""A key and a self-signed certificate in PEM, for TLS that doesn't authenticate the server.

Traffic is encrypted as with any other certificate, but no authority vouches for the key's owner.
Needs the package cryptography, which the extra `tls` installs.
"""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

VALID = timedelta(days=3_650)


def make(now_s: float, common_name: str = "aerobee") -> bytes:
    """Key and certificate, one after the other, as `load_cert_chain` takes them.

    Valid for ten years, from a day before `now_s` (Unix seconds).
    """
    now = datetime.fromtimestamp(now_s, UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + VALID)
        # Lets clients trust this certificate as an authority.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM)
