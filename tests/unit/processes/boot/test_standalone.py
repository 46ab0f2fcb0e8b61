"""What `rocketpy standalone` tells a newcomer works in another terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocketpy.cli import command_line
from rocketpy.config import BrokerSettings
from rocketpy.errors import ConfigError
from rocketpy.processes.boot import standalone
from rocketpy.processes.boot.service_manager import ServiceManager
from rocketpy.processes.boot.serving import ServerCommand
from rocketpy.processes.boot.standalone import activation
from tests.support.broker import free_ports


@pytest.mark.parametrize(
    ("prefix", "path", "expected"),
    [
        ("/work/.venv", "/usr/bin:/bin", "/work/.venv/bin/activate"),
        ("/work/.venv", "/work/.venv/bin:/usr/bin", ""),
        (sys.base_prefix, "/usr/bin", ""),
    ],
    ids=["not activated", "activated", "no venv"],
)
def test_a_venv_that_is_not_on_the_path_is_named(
    monkeypatch: pytest.MonkeyPatch, prefix: str, path: str, expected: str
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    assert activation({"PATH": path}) == expected


def settings_of(words: list[str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> BrokerSettings:
    """The settings of the broker that `rocketpy standalone` would run, with the name server at a free port."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    commands: list[ServerCommand] = []
    _, namesrv_port = free_ports()
    command_line.cli.main(
        ["standalone", "--namesrv-port", str(namesrv_port), *words], standalone_mode=False, obj=commands.append
    )
    found: list[BrokerSettings] = []

    def run_broker(settings: BrokerSettings, *_: object, **__: object) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr(standalone, "run_broker", run_broker)
    assert commands[0].run(ServiceManager()) == 0
    return found[0]


def test_variables_and_the_file_are_stronger_than_defaults_and_weaker_than_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: Defaults of options hid ROCKETPY_BIND_ADDRESS and the file's storePathRootDir, as in a container."""
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}\nbrokerName=of-the-file\nlistenPort=10921\n")
    environ = {"ROCKETPY_BIND_ADDRESS": "::1", "ROCKETPY_LISTEN_PORT": "10931", "HOME": str(tmp_path)}
    loaded = settings_of(["-c", str(file)], environ, monkeypatch)
    assert (loaded.store.store_path_root_dir, loaded.broker.broker_name) == (str(tmp_path), "of-the-file")
    assert (loaded.server.bind_address, loaded.server.listen_port) == ("::1", 10931)
    assert (loaded.broker.namesrv_addr or "").startswith("[::1]:")
    words = ["-c", str(file), "--store", str(tmp_path / "s"), "--port", "10941", "--bind", "127.0.0.1"]
    loaded = settings_of(words, environ, monkeypatch)
    assert (loaded.server.bind_address, loaded.server.listen_port) == ("127.0.0.1", 10941)
    assert loaded.store.store_path_root_dir == str(tmp_path / "s")
    monkeypatch.setenv("ROCKETPY_STORE_PATH_ROOT_DIR", str(tmp_path / "v"))
    assert settings_of([], environ, monkeypatch).store.store_path_root_dir == str(tmp_path / "v")


def test_without_anything_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = settings_of([], {"XDG_DATA_HOME": str(tmp_path)}, monkeypatch)
    assert (loaded.broker.broker_name, loaded.broker_addr) == ("broker-a", "127.0.0.1:10911")
    assert loaded.store.store_path_root_dir == str(tmp_path / "rocketpy")


@pytest.mark.parametrize(
    ("words", "use"),
    [
        (["--port", "12000"], "listenPort"),
        (["--port", "11999"], "listenPort + 1, for replication"),
        (["--port", "12002"], "listenPort - 2, the VIP port"),
        (["--metrics-port", "12000"], "metricsPort"),
    ],
)
def test_a_port_that_both_servers_need(words: list[str], use: str, tmp_path: Path) -> None:
    """Fault: The line asked for a process that has the port: there was none, since it was the name server's own."""
    commands: list[ServerCommand] = []
    given = ["--store", str(tmp_path), "--namesrv-port", "12000", *words]
    command_line.cli.main(["standalone", *given], standalone_mode=False, obj=commands.append)
    with pytest.raises(ConfigError) as caught:
        commands[0].run(ServiceManager())
    assert str(caught.value) == f"--namesrv-port 12000 is a port of the broker, too ({use}); choose another"
