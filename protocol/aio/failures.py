"""Why a connection could not be made, or was closed at once, in words that name the remedy."""

import ssl

from ..errors import reason_of

# A fresh plain connection that the other side closed without a byte: what a server with
# tlsServerMode=enforcing does.
UNANSWERED = (
    "before it answered anything; does it want TLS? A command takes --tls or AEROBEE_TLS=true, a "
    "client Security(tls=True), a broker useTLS=true. Or it speaks something else, as a proxy does "
    "at its gRPC port (8081)"
)
NO_TLS_HERE = "it does not speak TLS there; switch TLS off, or set its tlsServerMode to permissive"
CUT_OFF = (
    "it cut the TLS handshake off; see its log: it may have tlsServerMode=disabled, or no "
    "certificate (an aerobee server makes one with the package cryptography: pip install "
    "'aerobee[tls]')"
)
# OpenSSL's names for "what came is no TLS".
_PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def of_connecting(error: OSError, *, with_tls: bool) -> str:
    """The reason why a connection can't be made; `with_tls`: TLS was tried."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"certificate verify failed: {error.verify_message}; name the file of the authority "
            "that signed it (--tls-ca FILE, AEROBEE_TLS_CA, Security(tls_ca=FILE), a broker's "
            "tlsClientTrustCertPath), and connect by a name that stands in the certificate"
        )
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_REASONS:
        return NO_TLS_HERE
    if with_tls and isinstance(error, ConnectionResetError | ConnectionAbortedError | ssl.SSLError):
        return f"{reason_of(error)}: {CUT_OFF}"
    return reason_of(error)
