"""Brokers of rocketpy beside a first one: further masters, and slaves; and the comparison of logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.interop.brokers import AnyBroker, wait_until
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.pair import LoneBroker, log_hashes

ROLE = {"brokerRole": "SLAVE", "brokerId": "1"}


@contextlib.contextmanager
def running_masters(directory: Path, names: tuple[str, ...]) -> Iterator[dict[str, RunningBroker]]:
    """Started masters of one cluster by name: the first with the name server, the others beside it."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(running_broker({"brokerName": names[0]}))
        masters: dict[str, RunningBroker] = {names[0]: first}
        for name in names[1:]:
            port, _ = free_ports()
            home = directory / name
            home.mkdir()
            settings = first.settings | {"brokerName": name}
            master = LoneBroker(home / "store", port, first.namesrv_port, home / "log", settings)
            stack.callback(master.kill_all)
            master.start()
            masters[name] = master
        yield masters


@contextlib.contextmanager
def running_slave(
    master: AnyBroker, directory: Path, settings: dict[str, str] | None = None, *, store: Path | None = None
) -> Iterator[LoneBroker]:
    """A started slave of `master`; killed at the end. A failure within carries the end of its log."""
    port, _ = free_ports()
    directory.mkdir(exist_ok=True)
    name = {"brokerName": master.settings.get("brokerName", "broker-a")}
    settings = master.settings | ROLE | name | (settings or {})
    slave = LoneBroker(store or directory / "store", port, master.namesrv_port, directory / "log", settings)
    try:
        slave.start()
        yield slave
    except BaseException as failure:
        failure.add_note(f"slave:\n{slave.text()[-6000:]}")
        raise
    finally:
        slave.kill_all()


def wait_equal_logs(master: Path, slave: Path) -> None:
    """Until both logs are equal, file by file."""
    wait_until(lambda: log_hashes(master) == log_hashes(slave), f"equal logs of {master} and {slave}")
