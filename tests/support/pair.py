"""A name server, a master and a slave of it, each a process tree of its own; and how their logs compare."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.support import preloaded
from tests.support.broker import RunningBroker, free_ports

TAIL = 6000  # characters of a log that a failure carries


@attrs.define
class LoneBroker(RunningBroker):
    """A broker that registers with a name server of another process."""

    def command(self) -> list[str]:
        own = {"listenPort": str(self.port), "storePathRootDir": str(self.store), "metricsPort": "0"}
        words = [*preloaded.COMMAND, "broker", "-n", self.namesrv]
        for key, value in (own | self.settings).items():
            words += ["--set", f"{key}={value}"]
        return words


@attrs.define
class NameServer(RunningBroker):
    """A name server alone; `port` is not used. `bind`: the address of its port."""

    bind: str = "127.0.0.1"

    def command(self) -> list[str]:
        own = {"listenPort": str(self.namesrv_port), "kvConfigPath": str(self.store / "kvConfig.json")}
        own["bindAddress"] = self.bind
        words = [*preloaded.COMMAND, "namesrv"]
        for key, value in (own | self.settings).items():
            words += ["--set", f"{key}={value}"]
        return words


@attrs.frozen
class Pair:
    namesrv: NameServer
    master: LoneBroker
    slave: LoneBroker

    def swap(self) -> Pair:
        """The same two in each other's role, when both are stopped."""
        roles = {"brokerRole", "brokerId"}
        master, slave = self.master, self.slave
        before = {key: value for key, value in master.settings.items() if key in roles}
        master.settings |= {key: value for key, value in slave.settings.items() if key in roles}
        slave.settings |= before
        return Pair(self.namesrv, slave, master)


@contextlib.contextmanager
def running_pair(directory: Path, role: str, settings: dict[str, str]) -> Iterator[Pair]:
    """A started name server and master; the slave is not started yet. All are killed at the end.

    A failure within carries the end of both logs.
    """
    brokers = []
    _, namesrv_port = free_ports()
    for name, own in (
        ("master", {"brokerRole": role, "brokerId": "0"}),
        ("slave", {"brokerRole": "SLAVE", "brokerId": "1"}),
    ):
        port, _ = free_ports()
        log = directory / f"{name}.log"
        brokers.append(
            LoneBroker(directory / name, port, namesrv_port, log, settings | {"brokerName": "broker-a"} | own)
        )
    master, slave = brokers
    namesrv = NameServer(directory / "namesrv", 0, namesrv_port, directory / "namesrv.log", {})
    try:
        namesrv.start()
        master.start()
        yield Pair(namesrv, master, slave)
        for broker in (namesrv, master, slave):
            broker.check_crashes()
    except BaseException as failure:
        failure.add_note(f"master:\n{master.text()[-TAIL:]}\nslave:\n{slave.text()[-TAIL:]}")
        raise
    finally:
        for process in (slave, master, namesrv):
            process.kill_all()


def log_files(store: Path) -> dict[str, bytes]:
    """The log's files, without those that were only allocated."""
    files = {path.name: path.read_bytes() for path in sorted((store / "commitlog").glob("[0-9]*"))}
    return {name: image for name, image in files.items() if image != bytes(len(image))}  # any(image): 0.4 s for 64 MiB


def log_hashes(store: Path) -> dict[str, str]:
    """SHA-256 of each file of the log, blanks and zeros included."""
    return {name: hashlib.sha256(image).hexdigest() for name, image in log_files(store).items()}


def ha_status(namesrv: str) -> list[dict[str, object]]:
    """The rows of both tables of `mqadmin haStatus`: brokers, then slaves."""
    words = [*preloaded.COMMAND, "admin", "haStatus", "-n", namesrv, "--output", "json"]
    done = preloaded.run(words, timeout=60)
    done.check_returncode()
    return [json.loads(line) for line in done.stdout.splitlines()]
