"""Certificates that an installation makes itself, in PEM.

A self-signed certificate encrypts the traffic as any other does, but no authority vouches for the
key's owner. An authority of the installation's own does: clients that trust it check servers by it.
Its key signs further certificates, so it may be kept elsewhere. Needs the package cryptography,
which the extra `tls` installs.
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

VALID = timedelta(days=3_650)
SERVER_VALID = timedelta(days=825)  # what Apple's systems accept at most
SIGNS = {"key_cert_sign", "crl_sign"}


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


def make(now_s: float, common_name: str = "aerobee") -> bytes:
    """A key and its self-signed certificate, one after the other, as `load_cert_chain` takes them.

    Valid for ten years, from a day before `now_s` (Unix seconds).
    """
    key, name = ec.generate_private_key(ec.SECP256R1()), _named(common_name)
    # Lets clients trust this certificate as an authority.
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(name, name, key, datetime.fromtimestamp(now_s, UTC), VALID)
    signed = builder.add_extension(constraints, critical=True).sign(key, hashes.SHA256())
    made = _in_pem(signed, key)
    return made.key + made.certificate


class Authority:
    """Signs certificates of servers. `now_s` is the time of its making, in Unix seconds."""

    def __init__(self, now_s: float, common_name: str = "aerobee authority") -> None:
        self._now = datetime.fromtimestamp(now_s, UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(common_name)
        builder = (
            self._builder(self._name, self._key, VALID)
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
        return _builder(subject, self._name, key, self._now, valid).add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + valid)
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
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{kind: kind in names for kind in kinds})


def _in_pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(certificate.public_bytes(Encoding.PEM), secret)
