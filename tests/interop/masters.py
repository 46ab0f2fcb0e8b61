"""Several masters of rocketpy in one cluster: the first with the name server, the others beside it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.support.broker import RunningBroker, free_ports, running_broker


@attrs.define
class Master(RunningBroker):
    """A broker alone, which registers with the name server of another one."""

    def command(self) -> list[str]:
        own = {"listenPort": str(self.port), "storePathRootDir": str(self.store), "metricsPort": "0"}
        words = [sys.executable, "-m", "rocketpy", "broker", "-n", self.namesrv]
        for key, value in (own | self.settings).items():
            words += ["--set", f"{key}={value}"]
        return words


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
            master = Master(home / "store", port, first.namesrv_port, home / "log", settings)
            stack.callback(master.kill_all)
            master.start()
            masters[name] = master
        yield masters
