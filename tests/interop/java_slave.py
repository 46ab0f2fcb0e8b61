"""The official broker 4.9.7 as slave of another broker, and how its log compares with its master's."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.broker import free_ports

from . import toolchain
from .brokers import AnyBroker, wait_until
from .java_broker import JavaBroker, write_logback


class JavaSlave(JavaBroker):
    """It has no name server of its own: it registers with its master's."""

    def start_namesrv(self) -> None:
        pass


@contextlib.contextmanager
def java_slave_of(master: AnyBroker) -> Iterator[JavaSlave]:
    """A slave with the id 1 and an empty store; not started yet. Its files have the sizes of the master's."""
    toolchain.server_directory()
    with tempfile.TemporaryDirectory(prefix="rocketpy-java-slave-") as directory:
        home = Path(directory)
        write_logback(home)
        port, _ = free_ports()
        role = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true", "registerNameServerPeriod": "10000"}
        slave = JavaSlave(home, home / "store", port, master.namesrv_port, master.settings | role)
        try:
            yield slave
        except BaseException as failure:
            failure.add_note(f"slave:\n{slave.text()}")
            raise
        finally:
            slave.close()


def digests(store: Path, end: int, file_size: int) -> dict[str, str]:
    """SHA-256 of each whole log file that begins before `end`."""
    found = {}
    for start in range(0, end, file_size):
        name = f"{start:020d}"
        path = store / "commitlog" / name
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"
    return found


def wait_for_copy(master: AnyBroker, slave: AnyBroker, end: int) -> None:
    """Until all log files of both are the same, byte for byte, blanks and what follows them included.

    The master may go on writing meanwhile (delayed messages fall due): it is looked at anew each time.
    """
    size = int(master.settings["mappedFileSizeCommitLog"])
    assert end > 0, "the master's log is empty"
    wait_until(
        lambda: digests(slave.store, end, size) == digests(master.store, end, size),
        f"the slave to have the log up to {end}",
    )
