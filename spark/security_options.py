"""The options for access control and TLS, the same for reading and for writing."""

from collections.abc import Mapping

from ..client.base.security import Security
from ..client.errors import ClientError

SECURITY_OPTIONS = ("accessKey", "secretKey", "securityToken", "tls", "tlsCa", "tlsInsecure")


def flag(said: Mapping[str, str], option: str, *, default: bool) -> bool:
    """An option that is true or false; ValueError when it is neither."""
    text = (said.get(option) or str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {option} is {said[option]!r}; give true or false")
    return text == "true"


def security_of(said: Mapping[str, str]) -> Security:
    """The security settings; ValueError when options contradict each other."""
    tls, tls_insecure = (flag(said, name, default=False) for name in ("tls", "tlsInsecure"))
    try:
        return Security(
            said.get("accessKey", ""),
            said.get("secretKey", ""),
            said.get("securityToken"),
            tls=tls,
            tls_ca=said.get("tlsCa", ""),
            tls_insecure=tls_insecure,
        )
    except ClientError as wrong:
        raise ValueError(f"options {', '.join(SECURITY_OPTIONS)}: {wrong}") from None


def options_of(security: Security) -> dict[str, str]:
    """The inverse of `security_of`. A given SSLContext has no options."""
    found = {
        "accessKey": security.access_key,
        "secretKey": security.secret_key,
        "securityToken": security.security_token or "",
        "tls": "true" if security.tls else "",
        "tlsCa": str(security.tls_ca),
        "tlsInsecure": "true" if security.tls_insecure else "",
    }
    return {name: text for name, text in found.items() if text}
