"""The part of `rocketpy doctor` that looks at TLS: certificates, their days and names, and servers that show them."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import trio

from rocketpy.client.options import TlsOptions
from rocketpy.config import TlsConfig, parse_addresses
from rocketpy.errors import ConfigError, ConnectFailed, TlsFailed
from rocketpy.message.host import format_host
from rocketpy.tls import Certificates, TlsSession
from rocketpy.tls.certificates import DAY_S, EXPIRES_SOON_DAYS, der_certificates, expiry_text
from rocketpy.transport.connector import tls_connector

from .findings import Finding, open_to_others

TIMEOUT_S = 3.0
_REPLACE = "it is loaded without a restart"
_WRONG_NAME = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


@attrs.frozen
class ServedPort:
    """A port of this machine that serves TLS if its server runs, with the remedies where it does not."""

    address: tuple[str, int]
    absent: str = "fine if the server is not running"
    refuses: str = "restart the server with these settings"

    @classmethod
    def of_slaves(cls, address: tuple[str, int]) -> ServedPort:
        return cls(
            address,
            "fine if the broker is not running, or is a slave now",
            f"restart the broker with these settings, or name {address[0]} in haAddresses",
        )


def server_findings(tls: TlsConfig, *ports: ServedPort, names: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Yield findings about a server's certificate, and about the ports that show it.

    Args:
        names: host names or addresses that others dial, by property. Clients of rocketpy and slaves refuse a
            certificate that does not name theirs.
    """
    if not tls.is_served:
        return
    loaded, findings = _load("tls.server", lambda: Certificates.of_server(tls), tls.tls_server_key_path)
    yield from findings
    if loaded is None or not tls.tls_server_cert_path:
        return
    certificate = Path(tls.tls_server_cert_path)
    for key, host in (names or {}).items():
        yield _named(key, host, loaded.context, certificate)
    for port in ports:
        yield _served(port, certificate)


def expiry_of_peer(connection: ssl.SSLSocket) -> tuple[str, str]:
    """Return when the certificate of a checked server expires, as the end of a sentence, and the remedy if it is soon.

    Both are empty if the server is not checked.
    """
    shown = connection.getpeercert()
    if not shown:
        return "", ""
    days = int((ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()) // DAY_S)
    remedy = f"replace the certificate of the master; {_REPLACE}" if days < EXPIRES_SOON_DAYS else ""
    return f"; its certificate {expiry_text(days)}", remedy


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
        remedy = f"replace it; {_REPLACE}" if days < EXPIRES_SOON_DAYS else ""
        found.append(Finding(f"{side}.certPath", expiry_text(days), remedy, days < 0))
    if key:
        found += open_to_others(f"{side}.keyPath", key)
    return certificates, found


def _named(key: str, host: str, server: ssl.SSLContext, certificate: Path) -> Finding:
    """Shake hands in memory as a client that trusts this certificate and has dialled `host`."""
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate is no authority
    caller.load_verify_locations(certificate)
    try:
        client, accepted = TlsSession.client(caller, host.strip("[]")), TlsSession.server(server)
        accepted.receive(client.take_outgoing())
        client.receive(accepted.take_outgoing())
    except TlsFailed as exc:
        if getattr(exc.__cause__, "verify_code", 0) in _WRONG_NAME:
            found = f"{host} is not named by {certificate}: slaves and clients of rocketpy refuse it"
            return Finding(key, found, f"issue a certificate with {host} among its subject alternative names")
    return Finding(key, f"{host} is named by {certificate}")


def _served(port: ServedPort, certificate: Path) -> Finding:
    """Compare the certificate that the port shows with the file."""
    subject = f"TLS at {format_host(port.address)}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection(port.address, TIMEOUT_S)
    except OSError as exc:
        return Finding(subject, f"nobody answers: {exc.strerror or exc}", port.absent)
    try:
        with plain, context.wrap_socket(plain) as connection:
            shown = connection.getpeercert(binary_form=True)
    except OSError as exc:
        reason = getattr(exc, "reason", None) or exc.strerror or exc
        return Finding(subject, f"no TLS: {reason}", port.refuses)
    if shown != der_certificates(certificate)[0]:
        remedy = "wait some seconds; then look into the server's log (`cannot load the changed certificate`)"
        return Finding(subject, f"another certificate than that of {certificate}", remedy)
    return Finding(subject, f"serves {certificate}")


def _called(address: str, context: ssl.SSLContext) -> Finding:
    """Call a name server as the broker does."""

    async def call() -> None:
        with trio.fail_after(TIMEOUT_S):
            (await tls_connector(lambda: context)(address)).abort()

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
