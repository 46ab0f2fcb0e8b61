"""Runs a server: from its parsed arguments to its exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy.errors import ConfigError, RocketError

if TYPE_CHECKING:
    from .service_manager import ServiceManager


def exit_status(command: Callable[[], int]) -> int:
    """Run a command and return its exit status; a RocketError is printed as one line, and is 1."""
    try:
        return command()
    except RocketError as exc:
        print(f"rocketpy: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


@attrs.frozen
class ServerCommand:
    """One of `standalone`, `broker` and `namesrv`, with its arguments."""

    kind: str
    arguments: Mapping[str, Any]

    def run(self, manager: ServiceManager) -> int:
        """Serve until told to stop. Raises: RocketError (one line; nothing was started)."""
        return RUN[self.kind](manager, **self.arguments)


Deliver = Callable[[ServerCommand], None]  # hands a command on to the process that runs the server


def serve(command: ServerCommand | None, status: int) -> int:
    """Run a server and return its exit status.

    Args:
        command: None: the arguments were wrong, or asked for help.
        status: of the process that parsed the arguments; the result if there is no command.
    """
    from .service_manager import ServiceManager  # of servers alone

    manager = ServiceManager.of(os.environ)  # without a command, too: a start that fails has no sockets kept
    return status if command is None else command.run(manager)


def serve_standalone(
    manager: ServiceManager,
    config: str | None,
    overrides: Mapping[str, str],
    defaults: Mapping[str, str],
    namesrv_port: int,
) -> int:
    from . import standalone

    return standalone.run_standalone(manager, config, overrides, defaults, namesrv_port, os.environ)


def serve_broker(
    manager: ServiceManager, config: str | None, overrides: Mapping[str, str], to_print: str | None
) -> int:
    """Run a broker, or print its properties: `all`, or the `important` ones."""
    from rocketpy.config import load_broker_config

    loaded = load_broker_config(config, overrides, os.environ)
    if to_print is not None:
        print(loaded.to_properties(important_only=to_print == "important"), end="")
        return 0
    if not loaded.has_name_servers:
        raise ConfigError(
            "no name server is named: give -n HOST:PORT, namesrvAddr in the file, or NAMESRV_ADDR; "
            "fetchNamesrvAddrByAddressServer=true looks them up (rocketpy standalone brings its own)",
            key="namesrvAddr",
        )
    from . import broker

    return broker.run_broker(loaded, manager)


def serve_namesrv(
    manager: ServiceManager, config: str | None, overrides: Mapping[str, str], to_print: str | None
) -> int:
    """Run a name server, or print its properties."""
    from rocketpy.config import load_namesrv_config

    loaded = load_namesrv_config(config, overrides, os.environ)
    if to_print is not None:
        print(loaded.to_properties(), end="")
        return 0
    from . import namesrv

    return namesrv.run_name_server(loaded, manager)


RUN: Mapping[str, Callable[..., int]] = {
    "standalone": serve_standalone,
    "broker": serve_broker,
    "namesrv": serve_namesrv,
}
