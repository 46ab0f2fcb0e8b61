"""What `rocketpy doctor` says of a master's HA port that a slave calls by TLS: certificates broken on purpose, each
with its remedy. tests/system/test_doctor.py has real masters."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.cli.replication_checks import replication_port
from rocketpy.tls import client_context, server_context
from tests.support.certificates import Authority, Issued, serving, tls_config

CALLS = {"useTLS": "true"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def said(authority: Authority, issued: Issued, host: str = "127.0.0.1", **asking: str) -> tuple[str, str, bool]:
    """What is found, its remedy, and whether it keeps the slave from replicating."""
    trusting = client_context(tls_config(CALLS, authority.trusting()))
    with serving(server_context(tls_config(issued.settings(), asking)), stays=True) as (_, port):
        found = replication_port(f"{host}:{port}", trusting)
        return found.found.replace(str(port), "PORT"), found.remedy, found.is_fatal


def test_days_of_the_certificate(authority: Authority) -> None:
    assert said(authority, authority.issue()) == (
        "127.0.0.1:PORT: takes connections; its certificate expires in 29 days",
        "",
        False,
    )
    found, remedy, is_fatal = said(authority, authority.issue(days=3))
    assert found.endswith("its certificate expires in 2 days") and not is_fatal
    assert remedy == "replace the certificate of the master; it is loaded without a restart"


def test_certificates_that_a_slave_refuses(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "other")
    for issued, host, reason in (
        (authority.issue(days=-2), "127.0.0.1", "certificate has expired"),
        (authority.issue(), "localhost", "Hostname mismatch, certificate is not valid for 'localhost'."),
        (authority.issue("10.0.0.5"), "127.0.0.1", "IP address mismatch, certificate is not valid for '127.0.0.1'."),
        (stranger.issue(), "127.0.0.1", "unable to get local issuer certificate"),
    ):
        refused = f"no TLS with {host}:PORT: its certificate is refused: {reason}"
        found, remedy, is_fatal = said(authority, issued, host)
        assert (found, is_fatal) == (refused, True)
        assert remedy.startswith("give the master a certificate that names this address and is signed by")


def test_a_master_that_asks_for_a_certificate(authority: Authority) -> None:
    """With TLS 1.3 it refuses a slave without one after the handshake."""
    found, remedy, is_fatal = said(authority, authority.issue(), **authority.asking("require"))
    assert "it refuses the connection" in found and is_fatal
    assert remedy == "give this slave a certificate that the master trusts: tls.client.certPath"


def test_a_port_that_closes(authority: Authority) -> None:
    with serving(None) as (host, port):
        found = replication_port(f"{host}:{port}", client_context(tls_config(CALLS, authority.trusting())))
    assert "closed the connection" in found.found and found.is_fatal
    assert "tls.server.mode" in found.remedy and found.remedy.endswith("name this address in the master's haAddresses")
