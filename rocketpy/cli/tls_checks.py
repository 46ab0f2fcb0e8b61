"""The part of `rocketpy doctor` that looks at TLS: files of certificates, days left, and servers that answer by it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from rocketpy.client.options import TlsOptions
from rocketpy.config import TlsConfig, parse_addresses
from rocketpy.errors import ConfigError, ConnectFailed
from rocketpy.message.host import format_host
from rocketpy.tls import Certificates
from rocketpy.tls.certificates import EXPIRES_SOON_DAYS, der_certificates, expiry_text
from rocketpy.transport.tls import tls_connector

from .findings import Finding

TIMEOUT_S = 3.0


def server_findings(tls: TlsConfig, address: tuple[str, int]) -> Iterator[Finding]:
    """Yield findings about a server's certificate, and about the server at `address` if it runs."""
    if not tls.is_served:
        return
    loaded, findings = _load("tls.server", lambda: Certificates.of_server(tls), tls.tls_server_key_path)
    yield from findings
    if loaded is not None and tls.tls_server_cert_path:
        yield _served(address, Path(tls.tls_server_cert_path))


def call_findings(tls: TlsConfig, name_servers: str) -> Iterator[Finding]:
    """Yield findings about a broker's calls, and about each name server."""
    if not tls.use_tls:
        return
    loaded, findings = _load("tls.client", lambda: Certificates.of_client(tls), tls.tls_client_key_path)
    yield from findings
    if loaded is not None:
        for address in map(format_host, parse_addresses(name_servers) if name_servers else ()):
            yield _called(address, loaded.context)


def calling_options(tls: TlsConfig) -> TlsOptions | None:
    """Return a broker's way to call others, for the admin client; None: it is plain."""
    if not tls.use_tls:
        return None

    def path(text: str | None) -> Path | None:
        return Path(text) if text else None

    return TlsOptions(
        ca_file=path(tls.tls_client_trust_cert_path) if tls.checks_servers else None,
        certificate_file=path(tls.tls_client_cert_path),
        key_file=path(tls.tls_client_key_path),
        key_password=tls.tls_client_key_password,
        verify=tls.checks_servers,
    )


def _load(side: str, load: Callable[[], Certificates], key: str | None) -> tuple[Certificates | None, list[Finding]]:
    """Load the files of a side. Returns: None if they cannot be used, and the findings."""
    try:
        certificates = load()
    except ConfigError as exc:
        return None, [Finding(exc.key or side, exc.reason, "correct the file or the property", True)]
    found = []
    days = certificates.days_left(time.time())
    if days is not None:
        remedy = "replace it; it is loaded without a restart" if days < EXPIRES_SOON_DAYS else ""
        found.append(Finding(f"{side}.certPath", expiry_text(days), remedy, days < 0))
    if key and Path(key).stat().st_mode & 0o077:
        found.append(Finding(f"{side}.keyPath", f"{key}: other users may read it", f"chmod 600 {key}"))
    return certificates, found


def _served(address: tuple[str, int], certificate: Path) -> Finding:
    """Compare the certificate of the running server with the file."""
    subject = f"TLS at {format_host(address)}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection(address, TIMEOUT_S)
    except OSError as exc:
        return Finding(subject, f"nobody answers: {exc.strerror or exc}", "fine if the server is not running")
    try:
        with plain, context.wrap_socket(plain) as connection:
            shown = connection.getpeercert(binary_form=True)
    except OSError as exc:
        reason = getattr(exc, "reason", None) or exc.strerror or exc
        return Finding(subject, f"no TLS: {reason}", "restart the server with these settings")
    if shown != der_certificates(certificate)[0]:
        remedy = "wait some seconds; then look into the server's log (`cannot load the changed certificate`)"
        return Finding(subject, f"another certificate than that of {certificate}", remedy)
    return Finding(subject, f"serves {certificate}")


def _called(address: str, context: ssl.SSLContext) -> Finding:
    """Call a name server as the broker does."""

    async def call() -> None:
        with trio.fail_after(TIMEOUT_S):
            await trio.aclose_forcefully(await tls_connector(lambda: context)(address))

    subject = f"TLS of {address}"
    try:
        trio.run(call)
    except trio.TooSlowError:
        return Finding(subject, f"no handshake within {TIMEOUT_S:g} s", "does it serve TLS? (tls.server.mode)", True)
    except ConnectFailed as exc:
        if isinstance(exc.__cause__, OSError):
            return Finding(subject, str(exc), "start the name server, or correct namesrvAddr", True)
        remedy = "correct its certificate, or tls.client.trustCertPath; it must name the address in namesrvAddr"
        return Finding(subject, str(exc), remedy, True)
    return Finding(subject, "trusted" if context.verify_mode is ssl.CERT_REQUIRED else "answers; it is not checked")
