"""What `rocketpy doctor` says of certificates, and of servers that answer by TLS or do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.cli.tls_checks import ServedPort, call_findings, calling_options, server_findings
from rocketpy.client.options import TlsOptions
from rocketpy.tls import server_context
from tests.support.certificates import HOST, Authority, Issued, serving, tls_config

ENFORCING = {"tls.server.mode": "enforcing"}
CALLS = {"useTLS": "true"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def texts_of_server(issued: Issued, address: tuple[str, int], *given: dict[str, str]) -> list[tuple[str, bool]]:
    tls = tls_config(ENFORCING, issued.settings(), *given)
    return [(f"{one.subject}: {one.found}", one.is_fatal) for one in server_findings(tls, ServedPort(address))]


def test_a_server_and_its_file(authority: Authority) -> None:
    issued = authority.issue(days=30)
    issued.key.chmod(0o600)
    with serving(server_context(tls_config(issued.settings()))) as address:
        served = f"TLS at {HOST}:{address[1]}: "
        assert texts_of_server(issued, address) == [
            ("tls.server.certPath: expires in 29 days", False),
            (f"{served}serves {issued.certificate}", False),
        ]
        other = authority.issue(days=3)
        assert texts_of_server(other, address) == [
            ("tls.server.certPath: expires in 2 days", False),
            (f"tls.server.keyPath: {other.key}: other users may read it", False),
            (f"{served}another certificate than that of {other.certificate}", False),
        ]
    assert texts_of_server(issued, address)[1] == (f"{served}nobody answers: Connection refused", False)
    with serving(None) as address:
        assert ": no TLS: " in texts_of_server(issued, address)[1][0]


def test_certificates_that_are_of_no_use(authority: Authority) -> None:
    expired, missing = authority.issue(days=-2), Issued(Path("/none"), Path("/none"))
    expired.key.chmod(0o600)
    assert texts_of_server(expired, (HOST, 1))[0] == ("tls.server.certPath: expired 3 days ago", True)
    [(text, is_fatal)] = texts_of_server(missing, (HOST, 1))
    assert is_fatal and text.startswith("tls.server.certPath: cannot use /none with the key /none: ")


def test_names_that_a_certificate_must_have(authority: Authority) -> None:
    """Also of one that has expired, on a server that asks clients for certificates."""
    named = authority.issue(HOST, "broker.example.org", days=-2)
    names = {"brokerIP1": HOST, "brokerIP2": "10.0.0.5", "more": "broker.example.org", "another": "a.example.org"}
    tls = tls_config(ENFORCING, named.settings(), authority.asking("require"))
    found = {one.subject: one for one in server_findings(tls, names=names)}
    assert found["brokerIP1"].found == f"{HOST} is named by {named.certificate}" and not found["brokerIP1"].remedy
    assert not found["more"].remedy
    assert (
        found["brokerIP2"].found
        == f"10.0.0.5 is not named by {named.certificate}: slaves and clients of rocketpy refuse it"
    )
    assert found["brokerIP2"].remedy == "issue a certificate with 10.0.0.5 among its subject alternative names"
    assert "a.example.org is not named" in found["another"].found
    assert [one.subject for one in found.values() if one.is_fatal] == ["tls.server.certPath"]


def test_the_port_of_slaves_has_remedies_of_its_own(authority: Authority) -> None:
    issued = authority.issue()
    issued.key.chmod(0o600)
    tls = tls_config(ENFORCING, issued.settings())
    with serving(None) as address:
        _, closed = server_findings(tls, ServedPort.of_slaves(address))
    assert "no TLS" in closed.found and closed.remedy.endswith(f"or name {HOST} in haAddresses")
    _, absent = server_findings(tls, ServedPort.of_slaves(address))
    assert absent.remedy == "fine if the broker is not running, or is a slave now"


def test_nothing_is_said_where_tls_is_off(authority: Authority) -> None:
    off = tls_config(authority.issue(days=-1).settings())
    assert not [*server_findings(off, ServedPort((HOST, 1))), *call_findings(off, f"{HOST}:1")]


def test_name_servers_that_are_called(authority: Authority) -> None:
    issued = authority.issue()
    with serving(server_context(tls_config(issued.settings()))) as address, serving(None) as deaf:
        addresses = [f"{host}:{port}" for host, port in (address, deaf)]
        trusting = tls_config(CALLS, authority.trusting())
        trusted, no_tls = call_findings(trusting, ";".join(addresses))
        assert (trusted.subject, trusted.found) == (f"TLS of {addresses[0]}", "trusted")
        assert no_tls.is_fatal and "it may not speak TLS" in no_tls.found
        [stranger] = call_findings(tls_config(CALLS), addresses[0])
        assert stranger.is_fatal and "unable to get local issuer certificate" in stranger.found
        [anybody] = call_findings(tls_config(CALLS, {"tls.client.authServer": "false"}), addresses[0])
        assert (anybody.found, anybody.is_fatal) == ("answers; it is not checked", False)
    [absent] = call_findings(trusting, addresses[0])
    assert absent.is_fatal and absent.remedy == "start the name server, or correct namesrvAddr"
    [bad] = call_findings(tls_config(CALLS, {"tls.client.trustCertPath": "/none"}), addresses[0])
    assert bad.is_fatal and bad.subject == "tls.client.trustCertPath"


def test_a_certificate_of_calls(authority: Authority) -> None:
    shown = authority.issue("client", days=10, password="secret")
    shown.key.chmod(0o600)
    tls = tls_config(CALLS, authority.trusting(shown))
    [finding] = call_findings(tls, "")
    assert (finding.subject, finding.found) == ("tls.client.certPath", "expires in 9 days") and finding.remedy
    assert calling_options(tls) == TlsOptions(
        ca_file=authority.ca_file, certificate_file=shown.certificate, key_file=shown.key, key_password="secret"
    )
    assert calling_options(tls_config()) is None
    assert calling_options(tls_config(CALLS, {"tls.test.mode.enable": "true"})) == TlsOptions(verify=False)
