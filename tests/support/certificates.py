"""Certificates made for one test: an authority, what it issues, a server, and sessions that talk in memory."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from rocketpy.config import TlsConfig
from rocketpy.config.setting import with_changes
from rocketpy.tls import TlsSession

HOST = "127.0.0.1"
PLAINTEXT = bytes(range(256)) * 300  # more than one record


@attrs.frozen
class Issued:
    """The files of a certificate; the key is PKCS#8, as Netty reads it."""

    certificate: Path
    key: Path
    password: str = ""

    def settings(self, side: str = "server") -> dict[str, str]:
        """Return the properties that name the files."""
        found = {f"tls.{side}.certPath": str(self.certificate), f"tls.{side}.keyPath": str(self.key)}
        return found | ({f"tls.{side}.keyPassword": self.password} if self.password else {})

    def replace(self, other: Issued) -> None:
        """Put the other certificate in the place of this one, one file after the other, as rotation does."""
        for old, new in ((self.certificate, other.certificate), (self.key, other.key)):
            staged = old.with_suffix(".new")
            staged.write_bytes(new.read_bytes())
            staged.replace(old)


class Authority:
    """Signs certificates, into files of a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(exist_ok=True, parents=True)
        self.ca = trustme.CA()
        self.ca_file = directory / f"{name}.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self._directory = directory
        self._names = (f"{name}-{number}" for number in itertools.count())

    def issue(self, *hosts: str, days: float = 30, password: str = "") -> Issued:
        """A certificate for the hosts (127.0.0.1), which expires in so many days; below 0 it has expired."""
        now = datetime.now(UTC)
        issued = self.ca.issue_cert(
            *(hosts or (HOST,)),
            not_before=now - timedelta(days=abs(days) + 1),
            not_after=now + timedelta(days=days),
        )
        name = next(self._names)
        found = Issued(self._directory / f"{name}.pem", self._directory / f"{name}-key.pem", password)
        found.certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        found.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return found

    def trusting(self, issued: Issued | None = None) -> dict[str, str]:
        """The properties of a caller that trusts this authority, and shows a certificate."""
        return {"tls.client.trustCertPath": str(self.ca_file)} | (issued.settings("client") if issued else {})

    def asking(self, how: str = "require") -> dict[str, str]:
        """The properties of a server that asks clients for certificates of this authority."""
        own = {"tls.server.trustCertPath": str(self.ca_file), "tls.server.authClient": "true"}
        return own | {"tls.server.need.client.auth": how}


def tls_config(*given: dict[str, str]) -> TlsConfig:
    """The settings of these properties alone."""
    merged: dict[str, str] = {}
    for one in given:
        merged |= one
    return with_changes(TlsConfig(), merged)


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None, *, stays: bool = False) -> Iterator[tuple[str, int]]:
    """A server that shakes hands, or one that closes each connection. If it stays, it keeps them to its end."""
    stopping, kept = threading.Event(), contextlib.ExitStack()

    def serve() -> None:
        while not stopping.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    if context is not None:
                        accepted = context.wrap_socket(connection, server_side=True)
                        kept.enter_context(accepted) if stays else accepted.close()

    with kept, socket.create_server((HOST, 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[:2]
        finally:
            stopping.set()
            thread.join()


def converse(client: TlsSession, server: TlsSession, size: int = 1 << 20) -> None:
    """Carry bytes both ways, `size` at once, until both sides have finished. Raises: TlsFailed, of either side."""
    for _ in range(100_000):
        moved = False
        for source, target in ((client, server), (server, client)):
            data = source.take_outgoing()
            for at in range(0, len(data), size):
                target.receive(data[at : at + size])
                moved = True
        if not moved:
            return
    raise AssertionError("the two do not come to an end")
