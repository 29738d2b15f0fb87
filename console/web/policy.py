"""What a browser may do with a page."""

POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # with no-referrer a form has no Origin
    "Server": "aerobee",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def headers(nonce: str) -> dict[str, str]:
    """The headers of every response; `nonce` is that of its scripts."""
    return {**HEADERS, "Content-Security-Policy": POLICY.format(nonce=nonce)}
