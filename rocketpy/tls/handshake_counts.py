"""Counts of TLS handshakes, and the reasons for which connections are refused; of name servers and brokers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import attrs

from rocketpy.logs import LogLimit, and_more

from .certificates import Certificates

logger = logging.getLogger(__name__)

PLAIN = "plain"
TIMEOUT = "timeout"
LIMIT = "limit"
FILES = "files"
SIZE = "size"
CLOSED = "closed"
CERTIFICATE = "certificate"
ALERT = "alert"
PROTOCOL = "protocol"
RECORDS = "records"
REASONS = {
    PLAIN: "plain connections, which enforcing refuses",
    TIMEOUT: "handshakes that take longer than tlsHandshakeTimeoutMillis",
    LIMIT: "beyond the number of unfinished handshakes",
    FILES: "beyond the limit of open files",
    SIZE: "handshakes of more than 64 KiB; of a TLS worker 128 KiB",
    CLOSED: "closed by the client in the middle",
    CERTIFICATE: "no certificate of the client, or one that is not trusted",
    ALERT: "refused by the client, which may not trust our certificate",
    PROTOCOL: "no TLS, or no version or cipher in common",
    RECORDS: "after the handshake, more than 64 KiB of records without data, or of unread answers to them",
}
"""The values of the label `reason`."""


@attrs.frozen(kw_only=True)
class TlsStatistics:
    """Counters of a server; the fields are those of `metrics.TlsSnapshot`."""

    handshakes: int
    plain: int
    refused: Mapping[str, int]
    reloads: int
    reload_failures: int
    not_after_s: float | None


class HandshakeCounts:
    """Counts the handshakes of a process, and logs refused ones at a limited rate. One thread counts, others read."""

    def __init__(self, limit: LogLimit | None = None) -> None:
        self.completed = 0
        self.plain = 0  # connections that are served without TLS
        self.refused: Counter[str] = Counter()
        self._limit = limit or LogLimit()

    def refuse(self, peer: object, reason: str, text: str) -> None:
        """Count a refused connection of `peer`, for one of REASONS."""
        self.refused[reason] += 1
        if told := self._limit.take(reason):
            plain, encrypted = "refused the plain connection of %s%s: %s", "refused the TLS connection of %s%s: %s"
            logger.warning(plain if reason == PLAIN else encrypted, peer, and_more(told), text)

    def statistics(self, certificates: Certificates) -> TlsStatistics:
        return TlsStatistics(
            handshakes=self.completed,
            plain=self.plain,
            refused=dict(self.refused),
            reloads=certificates.reloads,
            reload_failures=certificates.reload_failures,
            not_after_s=certificates.not_after_s,
        )
