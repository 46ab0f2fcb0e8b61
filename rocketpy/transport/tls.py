"""TLS for clients: which certificates are trusted, which one is shown, and streams that are encrypted so."""

from __future__ import annotations

import ssl
from pathlib import Path

import trio

from rocketpy.errors import ConfigError, ConnectFailed
from rocketpy.message.host import parse_host

from .streams import Connector, connect


def tls_context(
    ca_file: Path | None, certificate_file: Path | None, key_file: Path | None, *, verify: bool
) -> ssl.SSLContext:
    """Read the PEM files. Without `ca_file`, the authorities that the system trusts are trusted; with it, only those.

    `key_file` is that of the certificate; without it the key is in `certificate_file`. An encrypted key is refused:
    OpenSSL would ask for its password at the terminal.

    Raises:
        ConfigError: names the file that cannot be used.
    """
    place = ca_file
    try:
        context = ssl.create_default_context(cafile=place)
        if (place := certificate_file) is not None:
            context.load_cert_chain(place, key_file, password="")
    except OSError as exc:
        why = getattr(exc, "reason", None) or exc.strerror or str(exc)
        key = f" with the key {key_file}" if key_file is not None and place is certificate_file else ""
        raise ConfigError(f"cannot use {place}{key}: {why}", key="TLS") from exc
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_connector(context: ssl.SSLContext) -> Connector:
    """Return a connector that opens encrypted streams. They are closed like TCP: nobody waits for the peer's
    farewell."""

    async def connect_with_tls(address: str) -> trio.abc.Stream:
        plain = await connect(address)
        host, _ = parse_host(address)
        stream = trio.SSLStream(plain, context, server_hostname=host, https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as exc:
            await trio.aclose_forcefully(stream)
            raise ConnectFailed(f"connect to <{address}> failed: {_reason(exc.__cause__)}") from exc
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    return connect_with_tls


def _reason(cause: BaseException | None) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        return f"no TLS with it: {cause.reason or cause}"
    return "it closed the connection during the TLS handshake; it may not speak TLS"
