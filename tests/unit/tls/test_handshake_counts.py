"""Counts and log lines of handshakes, and the machine that each counts for."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.logs import LogLimit
from rocketpy.tls import Certificates, HandshakeCounts, TlsStatistics
from rocketpy.tls.handshake_counts import REASONS
from tests.support.certificates import Authority, tls_config


def test_refused_handshakes_are_counted_and_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    handshakes = HandshakeCounts(LogLimit(now_s=lambda: now_s))
    for number in range(100):
        handshakes.refuse(f"10.0.0.{number}:1", "timeout", "no TLS handshake within 10 s")
    handshakes.refuse("10.0.0.9:1", "plain", "it is not encrypted")
    assert handshakes.refused == {"timeout": 100, "plain": 1}
    assert [record.message for record in caplog.records] == [
        "refused the TLS connection of 10.0.0.0:1: no TLS handshake within 10 s",
        "refused the plain connection of 10.0.0.9:1: it is not encrypted",
    ]
    now_s = 60.0
    handshakes.refuse("10.0.0.1:2", "timeout", "no TLS handshake within 10 s")
    assert "10.0.0.1:2 (and 99 more since the last line about it)" in caplog.records[-1].message


def test_statistics_are_those_of_files_and_handshakes(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    certificates = Certificates.of_server(tls_config(authority.issue().settings()))
    handshakes = HandshakeCounts()
    handshakes.completed += 3
    handshakes.refuse("peer", "size", "too much")
    found = handshakes.statistics(certificates)
    assert attrs.asdict(found) == attrs.asdict(
        TlsStatistics(
            handshakes=3,
            plain=0,
            refused={"size": 1},
            reloads=0,
            reload_failures=0,
            not_after_s=certificates.not_after_s,
        )
    )
    assert set(found.refused) <= set(REASONS)
