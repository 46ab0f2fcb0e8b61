"""Several masters of rocketpy in one cluster: the first with the name server, the others beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.pair import LoneBroker


@contextlib.contextmanager
def running_masters(directory: Path, names: tuple[str, ...]) -> Iterator[dict[str, RunningBroker]]:
    """Started brokers by name."""
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
