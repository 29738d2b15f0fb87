"""TLS on the listening side, on the port that also speaks plain text, as RocketMQ does it; and TLS
of a server to other servers.

The first byte of a connection tells: a TLS hello begins with 22, the length of a frame with 0 or 1.
A connection in plain text is passed on with its first bytes and pays nothing after that. A server
without a certificate of its own makes one when the first hello comes (with the extra `tls`): that
hides what is said, but does not prove the identity of the server.
"""

import asyncio
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from ..security.secret_mode import fault_of

log = logging.getLogger(__name__)

Mode = Literal["disabled", "permissive", "enforcing"]
SETTINGS = "tlsServerCertPath, tlsServerKeyPath"
HELLO = 22  # the first byte of a handshake
READ_BYTES = 256 << 10
WAITING_BYTES_MAX = 64 << 10  # what a peer may say before its hello is answered
KEPT_MAX = 64  # certificates, and as many trusts, that this process keeps

# What the files of this process held when they were usable last. A broker that is made again for
# another role goes on with that.
_certificates: dict[tuple[str, str, tuple[str, ...]], "Certificate"] = {}
_trusts: dict[str, ssl.SSLContext] = {}


class Tls:
    """The TLS of a server. `protocols` are offered by ALPN, `names` are the settings of the two
    files.

    OSError, in one sentence, for unusable files.
    """

    def __init__(
        self,
        mode: Mode,
        cert_path: str = "",
        key_path: str = "",
        protocols: Sequence[str] = (),
        names: str = SETTINGS,
    ) -> None:
        self.mode = mode
        self._protocols = protocols
        self._context: ssl.SSLContext | None = None
        self._making: asyncio.Task[ssl.SSLContext] | None = None
        if mode == "enforcing" and not (cert_path or key_path):
            _check_maker()  # else no client could connect, and only the log would say why
        if mode == "disabled" or not (cert_path or key_path):
            return
        self._context = server_context(cert_path, key_path, protocols, names)

    async def context(self) -> ssl.SSLContext:
        """The context of new connections; the first call may have to make a certificate."""
        if self._context is None:
            if self._making is None:
                self._making = asyncio.create_task(asyncio.to_thread(_self_signed))
            self._context = await asyncio.shield(self._making)
            if self._protocols:
                self._context.set_alpn_protocols(list(self._protocols))
        return self._context


def server_context(
    cert_path: str, key_path: str = "", protocols: Sequence[str] = (), names: str = SETTINGS
) -> ssl.SSLContext:
    """The context of a server; changed files are read again at the next handshake.

    `protocols` are offered by ALPN, `names` are the settings of the two files. OSError, in one
    sentence, for unusable files that this process has not used before.
    """
    key = cert_path, key_path, tuple(protocols)
    known = _certificates.get(key)
    if known is None:
        known = Certificate(cert_path, key_path, protocols, names)
        _keep(_certificates, key, known)
    else:
        known.renew()
    return known.context


class Certificate:
    """The files of a server's certificate. Changed files that can't be used leave the earlier
    certificate in use, and are read again at each handshake until they can."""

    def __init__(self, cert_path: str, key_path: str, protocols: Sequence[str], names: str) -> None:
        self._cert, self._key, self._names = cert_path, key_path, names
        self._protocols = list(protocols)
        self._stamps = self._reported = self._read_stamps()
        self._newest = self.context = self._load()
        self.context.sni_callback = self._choose  # called for clients without SNI as well

    def renew(self) -> None:
        """Read the files again if they have changed."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            try:
                self._newest = self._load()
                self._stamps = stamps
                log.info("the certificate in %s has changed; it is in use now", self._cert)
            except OSError as wrong:
                if stamps != self._reported:
                    log.warning("the changed certificate is not used: %s", wrong)
                self._reported = stamps

    def _choose(self, handshake: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        self.renew()
        handshake.context = self._newest

    def _read_stamps(self) -> list[tuple[int, int, int]]:
        """The time, size and inode of each file, which differ once a file has changed."""
        found = []
        for path in filter(None, (self._cert, self._key)):
            with suppress(OSError):
                stat = os.stat(path)
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return found

    def _load(self) -> ssl.SSLContext:
        try:
            context = _context(self._cert, self._key or None)
            of_key = self._key or self._cert
            why = fault_of(of_key, os.stat(of_key).st_mode)
        except (OSError, ssl.SSLError) as wrong:
            raise OSError(
                f"can't speak TLS with {self._cert!r} and {self._key!r} ({self._names}): {wrong}; "
                "give a certificate and its key in PEM, or neither"
            ) from None
        if why:
            raise OSError(f"can't speak TLS with the private key ({self._names}): {why}")
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        return context


def client_context(*, auth_server: bool, trust_cert_path: str) -> ssl.SSLContext:
    """The context with which a server connects to others; `auth_server`: it checks their
    certificates.

    Certificates are checked by the authorities in the file, whatever the name, as in RocketMQ; or
    without a file by the system's, and then by the name as well. OSError, in one sentence, for an
    unusable file that this process has not used before.
    """
    if not auth_server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context = ssl.create_default_context(cafile=trust_cert_path or None)
    except (OSError, ssl.SSLError) as wrong:
        why = (
            f"can't speak TLS with tlsClientTrustCertPath {trust_cert_path!r}: {wrong}; give "
            "certificates in PEM, or none"
        )
        known = _trusts.get(trust_cert_path)
        if known is None:
            raise OSError(why) from None
        log.warning("%s; the authorities that this file held before stay trusted", why)
        return known
    context.check_hostname = not trust_cert_path
    if trust_cert_path:
        _keep(_trusts, trust_cert_path, context)
    return context


class Speaker(Protocol):
    """A protocol behind TLS: it can be given another transport to write to."""

    @property
    def address(self) -> str: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def set_transport(self, transport: asyncio.Transport) -> None: ...


class Greeting(asyncio.Protocol):
    """A connection before its first byte."""

    def __init__(self, connection: Speaker, tls: Tls) -> None:
        self._connection = connection
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._said = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        transport, connection = self._transport, self._connection
        assert transport is not None
        if self._task is not None or data[0] == HELLO:
            self._said += data
            if len(self._said) > WAITING_BYTES_MAX:
                transport.abort()
            elif self._task is None:
                self._task = asyncio.create_task(self._secure(transport))
        elif self._tls.mode == "enforcing":
            log.warning(
                "closing %s: it speaks plainly, and tlsServerMode is enforcing", connection.address
            )
            transport.close()
        else:
            transport.set_protocol(cast(asyncio.Protocol, connection))
            connection.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    async def _secure(self, transport: asyncio.Transport) -> None:
        try:
            context = await self._tls.context()
        except OSError as wrong:
            log.error(
                "closing %s: no certificate could be made: %s", self._connection.address, wrong
            )
            transport.abort()
            return
        if transport.is_closing():
            return
        secured = Secured(transport, context, self._connection)
        transport.set_protocol(secured)
        self._connection.set_transport(cast(asyncio.Transport, secured))
        secured.data_received(bytes(self._said))


class Secured(asyncio.Protocol):
    """A connection's bytes through TLS: protocol to the socket, transport to the connection."""

    def __init__(
        self, transport: asyncio.Transport, context: ssl.SSLContext, connection: Speaker
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._is_agreed = False

    # --- towards the socket

    def data_received(self, data: bytes) -> None:
        self._in.write(data)
        try:
            if not self._is_agreed:
                self._tls.do_handshake()
                self._is_agreed = True
            while not self._transport.is_closing():
                plain = self._tls.read(READ_BYTES)
                if not plain:
                    self._transport.close()
                    return
                self._connection.data_received(plain)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the peer has said good-bye
            self._transport.close()
        except ssl.SSLError as wrong:
            log.info("closing %s: %s", self._connection.address, wrong)
            self._send()
            self._transport.close()
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # --- towards the connection

    def write(self, data: bytes) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as wrong:
            log.info("closing %s: %s", self._connection.address, wrong)
            self._transport.abort()
            return
        self._send()

    def close(self) -> None:
        with suppress(ssl.SSLError):  # the peer's good-bye is not waited for
            self._tls.unwrap()
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def _send(self) -> None:
        data = self._out.read()
        if data and not self._transport.is_closing():
            self._transport.write(data)


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry, and drop the oldest one beyond the limit."""
    kept[key] = value
    if len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]


def _context(cert: str | Path, key: str | Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    return context


def _self_signed() -> ssl.SSLContext:
    """A context with a certificate made now, which is on the disk only while it is loaded.

    OSError without the package that makes it.
    """
    _check_maker()
    from ..security import self_signed

    with tempfile.TemporaryDirectory() as folder:  # readable by this user alone
        path = Path(folder) / "own.pem"
        path.write_bytes(self_signed.make(time.time()))
        return _context(path, None)


def _check_maker() -> None:
    """OSError without the package that makes certificates."""
    try:
        from ..security import self_signed  # noqa: F401
    except ImportError:
        raise OSError(
            "TLS needs a certificate, and the package cryptography, which makes one, is not "
            "installed: run pip install 'aerobee[tls]', or set tlsServerCertPath and "
            "tlsServerKeyPath"
        ) from None
