"""A key and a certificate that nobody has signed but itself, in PEM, for TLS without proof.

The key is as good as any other; what is missing is somebody who says whose it is. Needs the package
cryptography, which the extra `tls` brings.
"""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

VALID = timedelta(days=3_650)


def make(now_s: float, common_name: str = "aerobee") -> bytes:
    """Key and certificate, one behind the other, as `load_cert_chain` takes them.

    Good from a day before `now_s`, in Unix seconds, for ten years.
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
        # So that a client can be told to trust this one.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM)
