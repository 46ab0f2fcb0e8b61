"""A rocketpy broker as the slave of another one, and the comparison of their logs."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.interop.brokers import AnyBroker, wait_until
from tests.support.broker import RunningBroker, free_ports


@attrs.define
class Slave(RunningBroker):
    """A broker alone, with brokerRole=SLAVE, which registers with the name server of its master."""

    def command(self) -> list[str]:
        own = {
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store),
            "metricsPort": "0",
            "brokerRole": "SLAVE",
            "brokerId": "1",
        }
        words = [sys.executable, "-m", "rocketpy", "broker", "-n", self.namesrv]
        for key, value in (own | self.settings).items():
            words += ["--set", f"{key}={value}"]
        return words


@contextlib.contextmanager
def running_slave(
    master: AnyBroker, directory: Path, settings: dict[str, str] | None = None, *, store: Path | None = None
) -> Iterator[Slave]:
    """A started slave of `master`; killed at the end. A failure within carries the end of its log."""
    port, _ = free_ports()
    directory.mkdir(exist_ok=True)
    name = {"brokerName": master.settings.get("brokerName", "broker-a")}
    settings = master.settings | name | (settings or {})
    slave = Slave(store or directory / "store", port, master.namesrv_port, directory / "log", settings)
    try:
        slave.start()
        yield slave
    except BaseException as failure:
        failure.add_note(f"slave:\n{slave.text()[-6000:]}")
        raise
    finally:
        slave.kill_all()


def log_files(store: Path) -> dict[str, bytes]:
    """The log's files, without those that were only allocated."""
    files = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
    return {name: image for name, image in files.items() if any(image)}


def log_hashes(store: Path) -> dict[str, str]:
    """SHA-256 of each file of the log, blanks and zeros included."""
    return {name: hashlib.sha256(image).hexdigest() for name, image in log_files(store).items()}


def wait_equal_logs(master: Path, slave: Path) -> None:
    """Until both logs are equal, file by file."""
    wait_until(lambda: log_hashes(master) == log_hashes(slave), f"equal logs of {master} and {slave}")
