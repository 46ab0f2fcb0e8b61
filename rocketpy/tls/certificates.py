"""Certificates: the files of a server or of a caller, the context made of them, and when they expire.

Files are looked at by name, size, time and inode: one that is replaced, also through a link, is seen. A change is
loaded when it has stood for a whole interval, because certificate and key are replaced one after the other. Files that
do not load leave the context as it was.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rocketpy.config import TlsConfig
from rocketpy.errors import ConfigError

from .contexts import FILE_BYTES_MAX, client_context, server_context

logger = logging.getLogger(__name__)

LOOK_S = 2.0
DAY_S = 86_400
EXPIRES_SOON_DAYS = 14
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_FIRST_SHORT_YEAR = 1950  # RFC 5280, 4.1.2.5.1: the years of two digits are those of 1950 to 2049
_VERSION = 0xA0


class Certificates:
    """The files of one side, and the context that its new connections use.

    For one thread, in which `has_changed` is called; `reload` may run in another one.
    """

    def __init__(self, files: Sequence[Path], certificate: Path | None, build: Callable[[], ssl.SSLContext]) -> None:
        """Read the files. Raises: ConfigError, of `build`."""
        self._files = tuple(files)
        self._certificate = certificate
        self._build = build
        self._tried = self._seen = self._look()
        self.context = build()
        self.not_after_s = self._not_after_s()
        self.reloads = 0
        self.reload_failures = 0
        self._warn_of_expiry()

    @classmethod
    def of_server(cls, tls: TlsConfig) -> Certificates:
        path = tls.tls_server_cert_path
        return cls(tls.server_files, Path(path) if path else None, lambda: server_context(tls))

    @classmethod
    def of_client(cls, tls: TlsConfig) -> Certificates:
        """Of a broker that calls name servers and its master."""
        path = tls.tls_client_cert_path
        return cls(tls.client_files, Path(path) if path else None, lambda: client_context(tls))

    def has_changed(self) -> bool:
        """Return True if `reload` should be called. Costs a stat for each file."""
        seen, self._seen = self._seen, self._look()
        return self._seen == seen and self._seen != self._tried

    def refreshed(self) -> ssl.SSLContext:
        """Return the context, after a look at the files: of a caller that may wait, and calls seldom."""
        if self.has_changed():
            self.reload()
        return self.context

    def load_changed(self) -> None:
        """Load the files if they are others than at the last try: in a process that begins, without a second look.

        Raises:
            ConfigError: they cannot be used; what was loaded may be long out of date.
        """
        if self._look() != self._tried:
            self._load()

    def reload(self) -> None:
        """Read the files again. If they cannot be used, new connections go on with the context there is.

        A key with a password takes a tenth of a second: call it where nothing waits for it.
        """
        try:
            self._load()
        except ConfigError as exc:
            self.reload_failures += 1
            logger.error("cannot load the changed certificate: %s; new connections get the one loaded before", exc)

    def _load(self) -> None:
        self._tried = self._look()
        context, not_after_s = self._build(), self._not_after_s()
        self.context, self.not_after_s = context, not_after_s
        self.reloads += 1
        days = self.days_left(time.time())
        logger.info("loaded the changed certificate%s", "" if days is None else f"; it {expiry_text(days)}")
        self._warn_of_expiry()

    def days_left(self, now_s: float) -> int | None:
        """Days until a certificate of the chain expires; below 0 one has. None: there is no certificate."""
        return None if self.not_after_s is None else int((self.not_after_s - now_s) // DAY_S)

    def _look(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(_stamp, self._files))

    def _not_after_s(self) -> float | None:
        return None if self._certificate is None else not_after_s(self._certificate)

    def _warn_of_expiry(self) -> None:
        days = self.days_left(time.time())
        if days is not None and days < EXPIRES_SOON_DAYS:
            text = "the certificate %s %s: replace it; it is loaded without a restart"
            logger.warning(text, self._certificate, expiry_text(days))


def expiry_text(days: int) -> str:
    """Say when a certificate expires that has so many days left."""
    return f"expires in {days} days" if days >= 0 else f"expired {-days} days ago"


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_dev, found.st_ino


def not_after_s(path: Path) -> float:
    """Return when the certificate of a PEM file that expires first does, in seconds since 1970.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    try:
        return min(map(_not_after_s, der_certificates(path)))
    except (OSError, ValueError, IndexError) as exc:
        raise ConfigError(f"cannot use {path}: it has no PEM certificate", key="TLS") from exc


def der_certificates(path: Path) -> list[bytes]:
    """Return the certificates of a PEM file. Raises: OSError; ValueError: one is no base64."""
    with path.open("rb") as file:
        return [base64.b64decode(text) for text in _PEM.findall(file.read(FILE_BYTES_MAX))]


def _not_after_s(der: bytes) -> float:
    """Certificate { TBSCertificate { [0] version?, serial, algorithm, issuer, Validity { notBefore, notAfter }, ... } }

    Raises:
        ValueError, IndexError: it is no certificate.
    """
    (certificate,) = _values(der)
    fields = [field for field in _values(next(_values(certificate[1]))[1]) if field[0] != _VERSION]
    _, (tag, text) = _values(fields[3][1])
    return _moment(tag, text.decode()).timestamp()


def _moment(tag: int, text: str) -> datetime:
    """Read a time of a certificate, [YY]YYMMDDhhmmssZ. (strptime would load two modules more.) Raises: ValueError."""
    digits, year_size = text.removesuffix("Z"), {_UTC_TIME: 2, _GENERALIZED_TIME: 4}.get(tag, 0)
    if text == digits or len(digits) != year_size + 10 or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text} is no time of a certificate")
    year = int(digits[:year_size])
    if tag == _UTC_TIME:
        year = _FIRST_SHORT_YEAR + (year - _FIRST_SHORT_YEAR) % 100
    month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(year_size, len(digits), 2))
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each value in `der`."""
    at = 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(der[at : at + count], "big"), at + count
        if at + size > len(der):
            raise ValueError("a value ends after the certificate")
        yield tag, der[at : at + size]
        at += size
