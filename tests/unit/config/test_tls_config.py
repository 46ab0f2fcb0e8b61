"""Settings of TLS: what contradicts, the file that overrides, and passwords, which nobody is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.config import (
    BrokerSettings,
    ClientAuth,
    Machine,
    NamesrvSettings,
    TlsMode,
    load_broker_config,
    load_namesrv_config,
    update_broker,
    update_namesrv,
)
from rocketpy.errors import ConfigError, RequestRefused

MACHINE = Machine(2, "host-a", lambda: "10.1.2.3")
ENVIRON = {"HOME": "/home/mq"}
PAIR = {"tls.server.certPath": "/c.pem", "tls.server.keyPath": "/k.pem"}
ENFORCING = PAIR | {"tls.server.mode": "enforcing", "tls.config.file": "/dev/null"}
SECRET = "to be seen by nobody"


def namesrv(overrides: dict[str, str]) -> NamesrvSettings:
    return load_namesrv_config(None, overrides, ENVIRON, machine=MACHINE)


def broker(overrides: dict[str, str]) -> BrokerSettings:
    return load_broker_config(None, overrides, ENVIRON, machine=MACHINE)


def test_nothing_is_on_by_default() -> None:
    for tls in (namesrv({}).tls, broker({}).tls):
        assert not (tls.is_served or tls.use_tls or tls.tls_test_mode_enable or tls.checks_clients)
        assert tls.checks_servers and tls.server_files == tls.client_files == ()


def test_a_name_server_has_modes_and_files() -> None:
    tls = namesrv(ENFORCING).tls
    assert tls.is_served and tls.tls_server_mode is TlsMode.ENFORCING
    assert tls.server_files == (Path("/c.pem"), Path("/k.pem"))
    clients = {"tls.server.authClient": "true", "tls.server.trustCertPath": "/ca.pem"}
    for asks, found in (("none", 2), ("optional", 3), ("require", 3)):
        tls = namesrv(ENFORCING | clients | {"tls.server.need.client.auth": asks}).tls
        assert (len(tls.server_files), tls.checks_clients) == (found, found == 3)
        assert tls.tls_server_need_client_auth is ClientAuth(asks)


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ({"tls.server.mode": "enforcing"}, "tls.server.mode", "needs tls.server.certPath and tls.server.keyPath"),
        ({"tls.server.mode": "permissive"}, "tls.server.mode", "permissive needs tls.server.certPath"),
        ({"tls.server.certPath": "/c"}, "tls.server.certPath", "needs tls.server.keyPath too"),
        ({"tls.server.keyPath": "/k"}, "tls.server.keyPath", "needs tls.server.certPath too"),
        ({"tls.client.certPath": "/c"}, "tls.client.certPath", "needs tls.client.keyPath too"),
        ({"tls.server.need.client.auth": "require"}, "tls.server.need.client.auth", "proves nothing"),
        (
            {"tls.server.need.client.auth": "optional", "tls.server.authClient": "true"},
            "tls.server.authClient",
            "needs tls.server.trustCertPath",
        ),
        ({"tls.server.mode": "on"}, "tls.server.mode", "must be disabled or permissive or enforcing"),
    ],
)
def test_contradictions_name_the_key_and_the_remedy(given: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        namesrv({"tls.config.file": "/dev/null"} | given)
    assert caught.value.key == key


def test_a_certificate_is_made_for_tests_only_where_none_is_given() -> None:
    made = {"tls.config.file": "/dev/null", "tls.server.mode": "permissive", "tls.test.mode.enable": "true"}
    assert namesrv(made).tls.makes_certificate and not namesrv(made).tls.checks_servers
    assert not namesrv(made | PAIR).tls.makes_certificate


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (4, 1), (16, 4), (288, 64)])
def test_tls_workers_follow_the_cores(cores: int, workers: int) -> None:
    """Fault: A broker with TLS on more than 259 cores started more TLS workers than tlsWorkers allows."""
    machine = Machine(cores, "host-a", lambda: "10.1.2.3")
    assert load_broker_config(None, ENFORCING, ENVIRON, machine=machine).rocketpy.tls_workers == workers


def test_a_broker_with_tls_has_workers_for_it() -> None:
    assert broker(ENFORCING).rocketpy.tls_workers >= 1
    assert broker(ENFORCING | {"tlsWorkers": "3"}).rocketpy.tls_workers == 3
    assert broker({}).rocketpy.tls_workers == 0
    with pytest.raises(ConfigError, match=r"tlsWorkers: 0 with tls\.server\.mode=enforcing"):
        broker(ENFORCING | {"tlsWorkers": "0"})


def test_a_slave_gets_the_log_by_tls() -> None:
    assert broker(ENFORCING).store.ha_use_tls
    assert not broker(ENFORCING | {"haUseTLS": "false"}).store.ha_use_tls
    assert not broker(ENFORCING | {"useTLS": "false"}).store.ha_use_tls
    assert not broker({"useTLS": "true", "tls.config.file": "/dev/null"}).store.ha_use_tls
    with pytest.raises(ConfigError, match=r"haUseTLS: true needs useTLS=true"):
        broker({"haUseTLS": "true"})


def test_metrics_by_tls_need_a_server_with_tls() -> None:
    assert broker(ENFORCING | {"metricsUseTLS": "true"}).rocketpy.metrics_use_tls
    for load in (broker, namesrv):
        with pytest.raises(ConfigError, match=r"metricsUseTLS: true needs tls\.server\.mode=permissive or enforcing"):
            load({"metricsUseTLS": "true", "tls.config.file": "/dev/null"})


def test_a_broker_calls_by_tls() -> None:
    for key in ("useTLS", "tls.enable"):
        assert broker({key: "true", "tls.config.file": "/dev/null"}).tls.use_tls
    files = {"tls.client.certPath": "/c", "tls.client.keyPath": "/k", "tls.client.trustCertPath": "/t"}
    tls = broker(files).tls
    assert tls.client_files == (Path("/c"), Path("/k"), Path("/t"))
    assert broker(files | {"tls.client.authServer": "false"}).tls.client_files == (Path("/c"), Path("/k"))


def test_enforcing_servers_call_by_tls_unless_told_otherwise() -> None:
    assert namesrv(ENFORCING).tls.use_tls
    assert not namesrv(ENFORCING | {"useTLS": "false"}).tls.use_tls
    assert not namesrv(ENFORCING | {"tls.server.mode": "permissive"}).tls.use_tls


def test_the_tls_file_overrides_as_in_the_reference(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.certPath=/other.pem\ntls.client.authServer=false\n")
    given = ENFORCING | {"tls.config.file": str(file)}
    tls = namesrv(given).tls
    assert (tls.tls_server_cert_path, tls.tls_server_key_path, tls.checks_servers) == ("/other.pem", "/k.pem", False)
    off = namesrv(given | {"tls.server.mode": "disabled"}).tls
    assert off.tls_server_cert_path == "/c.pem", "nobody reads the file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#\ntls.server.mode=disabled\n", r"tls\.properties:2: tls\.server\.mode: is not read from this file"),
        ("tls.enable=true", r"tls\.properties:1: useTLS: is not read from this file"),
        ("tls.server.certpath=/c", r"tls\.properties:1: .*did you mean tls\.server\.certPath"),
        ("listenPort=1", r"tls\.properties:1: listenPort: unknown setting"),
        ("tls.server.authClient=yes", r"tls\.properties:1: .*must be true or false"),
        ("tls.server.keyPath=", r"tls\.server\.certPath: needs tls\.server\.keyPath"),
        (None, r"tls\.properties: cannot be read"),
    ],
)
def test_mistakes_in_the_tls_file(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "tls.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        namesrv(ENFORCING | {"tls.config.file": str(file)})


def test_passwords_are_shown_to_nobody() -> None:
    given = ENFORCING | {"tls.server.keyPassword": SECRET, "tls.client.keyPassword": SECRET}
    settings = namesrv(given)
    assert settings.tls.tls_server_key_password == settings.tls.tls_client_key_password == SECRET
    of_broker = broker({key: value for key, value in given.items() if key != "tls.server.mode"})
    for shown in (settings.to_properties(), repr(settings), of_broker.to_properties(), repr(of_broker)):
        assert SECRET not in shown and "/k.pem" in shown
        assert "keyPassword=" not in shown


def test_certificates_are_not_changed_by_requests() -> None:
    for key in ("tls.server.mode", "useTLS", "tls.enable", "tls.server.keyPassword", "tls.client.authServer"):
        with pytest.raises(RequestRefused, match="cannot be changed while the server runs") as caught:
            update_namesrv(namesrv({}), {key: "false"})
        assert caught.value.response_code == 16
        with pytest.raises(RequestRefused):
            update_broker(broker({}), {key: "false"})
