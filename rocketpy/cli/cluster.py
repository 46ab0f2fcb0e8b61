"""`rocketpy cluster`: a name server and several brokers on this machine, one for each file of a directory.

For trying out a cluster (deploy/clusters). Each is a process tree of its own, as it would be on a machine of its own;
what it says goes to a file. When one ends, or Ctrl-C comes, all are stopped: brokers first, the name server last.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import attrs

from rocketpy.cli.child_server import LOOK_S, ChildServer, stop_all
from rocketpy.config import BrokerSettings, load_broker_config
from rocketpy.errors import ConfigError

PORT_STEP = 10
NAMESRV = "name server"


@attrs.frozen
class Member:
    """One process tree."""

    name: str
    words: tuple[str, ...]
    """Arguments of `rocketpy`."""
    log: Path
    about: str
    """Its role and addresses, for the operator."""


def plan(
    directory: Path, store: Path, namesrv_port: int, port: int | None, settings: Mapping[str, str]
) -> list[Member]:
    """Return the name server, then a broker for each configuration file, masters first.

    Args:
        port: listenPort of the first broker, each further one 10 above; None: as in the files.
        settings: for every broker, over its file.
    Raises:
        ConfigError: there are no files, one is wrong, or two brokers would share a port.
    """
    files = sorted(directory.glob("*.conf"), key=lambda file: file.stem)
    if not files:
        raise ConfigError(f"{directory} has no configuration files (*.conf); deploy/clusters has samples")
    address = f"127.0.0.1:{namesrv_port}"
    kv_config = store / "namesrv" / "kvConfig.json"
    words = ("namesrv", "--set", f"listenPort={namesrv_port}", "--set", f"kvConfigPath={kv_config}")
    members = [Member(NAMESRV, words, store / "namesrv.log", f"{NAMESRV}  {address}")]
    brokers = []
    for number, file in enumerate(files):
        own = {"namesrvAddr": address, "storePathRootDir": str(store / file.stem), **settings}
        if port is not None:
            own["listenPort"] = str(port + PORT_STEP * number)
        found = load_broker_config(file, own)
        given = (word for item in own.items() for word in ("--set", "=".join(item)))
        about = f"{found.broker.broker_name}  {found.store.broker_role.value:<12}  {found.broker_addr}"
        brokers.append(
            (found, Member(file.stem, ("broker", "-c", str(file), *given), store / f"{file.stem}.log", about))
        )
    _check_ports([found for found, _ in brokers])
    return members + [member for found, member in sorted(brokers, key=lambda broker: broker[0].is_slave)]


def _check_ports(brokers: Sequence[BrokerSettings]) -> None:
    """Raise ConfigError if two brokers share a port: each uses listenPort - 2 and + 1 as well."""
    used: dict[int, str] = {}
    for settings in brokers:
        port, path = settings.server.listen_port, str(settings.path)
        for number in (port - 2, port, port + 1):
            if number in used:
                raise ConfigError(f"{path} and {used[number]} both need port {number}: give them other listenPorts")
            used[number] = path


def run_cluster(members: Sequence[Member], say: Callable[[str], None]) -> int:
    """Start all in turn, and wait until a signal comes or one ends; then stop all. Returns: the exit status.

    Raises:
        ConfigError: one did not start.
    """
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    running: list[ChildServer] = []
    status = 0
    try:
        for member in members:
            running.append(ChildServer.started(member.name, member.words, member.log))
            running[-1].wait_until_ready(lambda: stopping)
            if not stopping:
                say(f"  {member.about}")
        if not stopping:
            say(f"\nTheir logs are in {members[0].log.parent}. Ctrl-C stops all.")
        while not stopping:
            ended = [server for server in running if server.has_ended]
            if ended:
                say(f"{ended[0].name} ended; stopping the others. {ended[0].log} says why")
                stopping, status = True, 1
            time.sleep(LOOK_S)
    finally:
        stop_all(running[1:])  # slaves too: a stopping master waits until they have its log
        stop_all(running[:1])
        for number, handler in before.items():
            signal.signal(number, handler)
    return status
