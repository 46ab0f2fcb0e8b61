"""Sends without an answer are given up when the route names another master, and then go there.

A machine that dies, or is cut off, closes no connection. A send to it would wait for its whole timeout, and so would
the next one, while the new master is in the route already. So after SILENCE_S the client asks for the route of a
waiting send, as it does for one that fails (route_renewal.py). A slow broker stays in its route: its sends wait on. So
do those of a former master that lives: it passes them on (docs/adr/0114), and another attempt would store them twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import trio

from rocketpy.errors import ConnectionLost
from rocketpy.message.message_queue import MessageQueue

SILENCE_S = 1.0
LOOK_S = 0.25


@attrs.frozen
class Target:
    """The topic, the broker, and the address to which the sends go."""

    topic: str
    broker_name: str
    address: str


@attrs.frozen(eq=False)
class Waiting:
    """One send: since when (seconds of trio's clock), and what ends its wait."""

    since_s: float
    scope: trio.CancelScope


@attrs.define(eq=False)
class UnansweredSends:
    """The sends that wait, oldest first at each target; there are as many as requests in flight.

    Attributes:
        send_address: of a broker, as the newest route has it; None: it has no master.
        doubt: have the route of a topic asked for.
        reaches: whether the machine at an address acknowledges what is sent to it.
    """

    send_address: Callable[[str], str | None]
    doubt: Callable[[str], object]
    reaches: Callable[[str], bool]
    _targets: dict[Target, dict[int, Waiting]] = attrs.field(factory=dict)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    @contextmanager
    def waiting(self, queue: MessageQueue, address: str) -> Iterator[None]:
        """Around a send to `address`.

        Raises:
            ConnectionLost: it was given up; the message may or may not be stored.
        """
        target, number = Target(queue.topic, queue.broker_name, address), next(self._numbers)
        with trio.CancelScope() as scope:
            self._targets.setdefault(target, {})[number] = Waiting(trio.current_time(), scope)
            try:
                yield
            finally:
                del self._targets[target][number]
                if not self._targets[target]:
                    del self._targets[target]
        if scope.cancelled_caught:
            master = self.send_address(queue.broker_name)
            raise ConnectionLost(f"{address} does not answer, and the master of broker {queue.broker_name} is {master}")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            self.look(trio.current_time() - SILENCE_S)

    def look(self, silent_since_s: float) -> None:
        """End the sends that wait since then, where there is another master; ask for the route where there is none."""
        for target, sends in self._targets.items():
            if next(iter(sends.values())).since_s > silent_since_s:
                continue
            if self.send_address(target.broker_name) in (None, target.address):
                self.doubt(target.topic)
                continue
            if self.reaches(target.address):
                continue
            for send in itertools.takewhile(lambda send: send.since_s <= silent_since_s, sends.values()):
                send.scope.cancel()
