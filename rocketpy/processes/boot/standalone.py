"""`rocketpy standalone`: name server and broker under one supervisor, for a first look and for development."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from rocketpy.config import (
    BrokerSettings,
    NamesrvSettings,
    Note,
    load_broker_config,
    load_namesrv_config,
)
from rocketpy.config.machine import is_concrete
from rocketpy.errors import ConfigError
from rocketpy.message.host import format_host
from rocketpy.native import require_core
from rocketpy.reactor.worker_spec import WorkerSpec

from .broker import ready_line, run_broker
from .service_manager import ServiceManager
from .sockets import listen

OPEN_NAME_SERVER = Note(
    "aclEnable",
    None,
    "the name server beside the broker serves everybody: give aclCredentialsFile, by which the broker registers",
)


def run_standalone(
    manager: ServiceManager,
    config: str | None,
    overrides: Mapping[str, str],
    defaults: Mapping[str, str],
    namesrv_port: int,
    environ: Mapping[str, str],
) -> int:
    """Run both until SIGTERM or SIGINT; the exit status.

    Args:
        defaults: properties of the broker that neither file, environment nor `overrides` have.

    Raises:
        RocketError: one line; nothing was started.
    """
    require_core()
    settings, namesrv = standalone_settings(config, overrides, defaults, namesrv_port, environ)
    _check_ports(settings, namesrv_port)
    if settings.broker.acl_enable and not namesrv.namesrv.acl_enable:
        settings = attrs.evolve(settings, notes=(*settings.notes, OPEN_NAME_SERVER))
    namesrv_addr = settings.broker.namesrv_addr or ""
    with contextlib.ExitStack() as stack:
        listeners = {
            name: stack.enter_context(listen(manager, host, port, key="listeners" if name else "--namesrv-port"))
            for name, (host, port) in namesrv.listeners.items()
        }

        def name_server() -> list[WorkerSpec]:
            from .namesrv import namesrv_spec  # while the store is being opened

            return [namesrv_spec(namesrv, listeners)]

        return run_broker(
            settings,
            manager,
            beside=name_server,
            ready_lines=lambda running: welcome(running, namesrv_addr),
        )


def standalone_settings(
    config: str | Path | None,
    overrides: Mapping[str, str],
    defaults: Mapping[str, str],
    namesrv_port: int,
    environ: Mapping[str, str],
) -> tuple[BrokerSettings, NamesrvSettings]:
    """Return the settings of both; the name server has the broker's address, certificates and accounts.

    Raises:
        ConfigError: as load_broker_config, or the broker is a member of a group.
    """
    settings = load_broker_config(config, overrides, environ, defaults={"brokerName": "broker-a"} | dict(defaults))
    bind = settings.server.bind_address
    namesrv_addr = format_host((bind if is_concrete(bind) else "127.0.0.1", namesrv_port))
    settings = attrs.evolve(settings, broker=attrs.evolve(settings.broker, namesrv_addr=namesrv_addr))
    if settings.store.is_automatic:
        raise ConfigError(
            "automatic is for `rocketpy broker`, with name servers of their own: one that ends with a broker does not "
            "tell clients of a new master",
            key="haMode",
        )
    namesrv = load_namesrv_config(
        None,
        {
            "listenPort": str(namesrv_port),
            "bindAddress": bind,
            "listeners": settings.rocketpy.listeners,
            "requestLogSample": str(settings.rocketpy.request_log_sample),
            "kvConfigPath": str(Path(settings.store.store_path_root_dir) / "config" / "kvConfig.json"),
        },
        environ,
    )
    namesrv = attrs.evolve(namesrv, tls=settings.tls)
    if settings.broker.acl_enable and settings.broker.acl_credentials_file:
        namesrv = with_accounts_of(settings, namesrv)
    return settings, namesrv


def _check_ports(broker: BrokerSettings, namesrv_port: int) -> None:
    """Raise ConfigError if the broker has the port of the name server: no other process would be found there."""
    uses = {
        broker.rocketpy.metrics_port: "metricsPort",
        broker.store.ha_listen_port: "listenPort + 1, for replication",
        broker.vip_port: "listenPort - 2, the VIP port",
        broker.server.listen_port: "listenPort",
    }
    if namesrv_port in uses:
        raise ConfigError(
            f"--namesrv-port {namesrv_port} is a port of the broker, too ({uses[namesrv_port]}); choose another"
        )


def with_accounts_of(broker: BrokerSettings, namesrv: NamesrvSettings) -> NamesrvSettings:
    """Return the settings of a name server that has the accounts of the broker."""
    own = broker.rocketpy
    return attrs.evolve(
        namesrv,
        namesrv=attrs.evolve(namesrv.namesrv, acl_enable=True),
        server=attrs.evolve(namesrv.server, rocketmq_home=broker.server.rocketmq_home),
        rocketpy=attrs.evolve(namesrv.rocketpy, acl_strict=own.acl_strict, acl_broker_accounts=own.acl_broker_accounts),
        notes=tuple(note for note in namesrv.notes if note.key != "bindAddress"),  # it was open without them
    )


def activation(environ: Mapping[str, str]) -> str:
    """Return the script that puts mqadmin on the path, if this program was started from a venv that is not on it."""
    commands = Path(sys.prefix, "bin")
    is_found = sys.prefix == sys.base_prefix or str(commands) in environ.get("PATH", "").split(os.pathsep)
    return "" if is_found else str(commands / "activate")


def welcome(settings: BrokerSettings, namesrv_addr: str) -> list[str]:
    """Return the lines that tell the broker's addresses and directory, and commands to try next."""
    port = settings.rocketpy.metrics_port
    metrics = f"http://{settings.rocketpy.metrics_host}:{port}/metrics" if port else "off (metricsPort=0)"
    return [
        ready_line(settings),
        "",
        f"  name server  {namesrv_addr}",
        f"  broker       {settings.broker_addr}",
        f"  metrics      {metrics}",
        f"  store        {settings.store.store_path_root_dir}",
        "",
        "Try next, in another terminal:",
        *([f"  . {activate}"] if (activate := activation(os.environ)) else []),
        f"  export NAMESRV_ADDR={namesrv_addr}",
        "  mqadmin clusterList",
        f"  mqadmin updateTopic -c {settings.broker.broker_cluster_name} -t Greetings",
        '  mqadmin sendMessage -t Greetings -p "hello"',
        "  mqadmin consumeMessage -t Greetings",
        "",
        "Ctrl-C stops.",
    ]
