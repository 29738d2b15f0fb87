"""An authority of an installation's own, and the certificates that it signs, in PEM.

Clients that trust the authority check servers by it. Its key signs further certificates, so it may
be kept elsewhere. Needs the package cryptography, which the extra `tls` installs.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_VALID = timedelta(days=3_650)
SERVER_VALID = timedelta(days=825)  # what Apple's systems accept at most
SIGNS = {"key_cert_sign", "crl_sign"}


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates of servers. `now_s` is the time of its making, in Unix seconds."""

    def __init__(self, now_s: float, common_name: str = "aerobee authority") -> None:
        self._now = datetime.fromtimestamp(now_s, UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(common_name)
        builder = (
            self._builder(self._name, self._key, AUTHORITY_VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(SIGNS), critical=True)
        )
        self.own = _in_pem(builder.sign(self._key, hashes.SHA256()), self._key)

    def issue(self, hosts: Sequence[str]) -> Certificate:
        """A certificate for a server with these names and addresses, the first as its subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._builder(_named(hosts[0]), key, SERVER_VALID)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage({"digital_signature"}), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), False)
            .add_extension(of_authority, critical=False)
        )
        return _in_pem(builder.sign(self._key, hashes.SHA256()), key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - timedelta(days=1))
            .not_valid_after(self._now + valid)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(names: set[str]) -> x509.KeyUsage:
    kinds = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{kind: kind in names for kind in kinds})


def _in_pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(certificate.public_bytes(Encoding.PEM), secret)
