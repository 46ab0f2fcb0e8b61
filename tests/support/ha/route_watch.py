"""Watches the route of a group as clients are told it: which address has id 0, from moment to moment."""

from __future__ import annotations

import contextlib
import threading
import time

import attrs

from rocketpy.codes import RequestCode
from rocketpy.errors import RocketError
from rocketpy.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import GetRouteInfoRequestHeader
from tests.support.history import Connection

LOOK_S = 0.02


@attrs.frozen
class Shown:
    """From `since_s` (monotonic) on the route showed this master; None: no master."""

    since_s: float
    master: str | None


@attrs.define(eq=False)
class RouteWatch:
    """Asks a name server again and again, in a thread, for the route of `topic`."""

    port: int
    topic: str = "broker-a"
    shown: list[Shown] = attrs.field(factory=list)
    most: int = 0  # masters in one route
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)
    _thread: threading.Thread | None = attrs.field(init=False, default=None)

    def __enter__(self) -> RouteWatch:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    @property
    def master(self) -> str | None:
        """As it was seen last."""
        return self.shown[-1].master if self.shown else None

    def without_master_s(self, begin_s: float) -> float:
        """The longest time without a master, from `begin_s` until now."""
        ends = [each.since_s for each in self.shown[1:]] + [time.monotonic()]
        times = [
            end_s - max(each.since_s, begin_s)
            for each, end_s in zip(self.shown, ends, strict=True)
            if each.master is None and end_s > begin_s
        ]
        return max(times, default=0.0)

    def masters_since(self, begin_s: float) -> list[str | None]:
        """What was shown from `begin_s` on, in order."""
        ends = [each.since_s for each in self.shown[1:]] + [time.monotonic()]
        return [each.master for each, end_s in zip(self.shown, ends, strict=True) if end_s > begin_s]

    def story(self) -> str:
        begin_s = self.shown[0].since_s if self.shown else 0.0
        return "\n".join(f"{each.since_s - begin_s:8.3f} s  {each.master}" for each in self.shown)

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError), contextlib.closing(Connection(self.port, 2.0)) as connection:
                while not self._stop.wait(LOOK_S):
                    self._see(_ask(connection, self.topic))

    def _see(self, masters: list[str]) -> None:
        self.most = max(self.most, len(masters))
        master = masters[0] if masters else None
        if not self.shown or self.shown[-1].master != master:
            self.shown.append(Shown(time.monotonic(), master))


def _ask(connection: Connection, topic: str) -> list[str]:
    """Return each address with id 0."""
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    answer = connection.ask(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
    with contextlib.suppress(RocketError):
        route = TopicRouteData.decode(answer.body)
        return [data.broker_addrs[MASTER_ID] for data in route.broker_datas if MASTER_ID in data.broker_addrs]
    return []
