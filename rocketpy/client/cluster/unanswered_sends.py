"""Sends without an answer are given up when the route names another master, and then go there.

A machine that dies, or is cut off, closes no connection. A send to it would wait for its whole timeout, and so would
the next one, while the new master is in the route already. So after SILENCE_S the client asks for the route of a
waiting send, as it does for one that fails (route_renewal.py). A slow broker stays in its route: its sends wait on. So
do those of a former master that lives: it passes them on (docs/adr/0114), and another attempt would store them twice.

Short: routes are instance.py's, and the waits themselves the transport's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.errors import ConnectionLost
from rocketpy.message.message_queue import MessageQueue
from rocketpy.transport.channel import Answer

SILENCE_S = 1.0
LOOK_S = 0.25


class Transport(Protocol):
    """The part of a RemotingClient that knows the requests without an answer."""

    def waiting(self, sent_until_s: float) -> Iterable[tuple[str, Answer]]: ...

    def reaches(self, address: str) -> bool: ...


@attrs.define(eq=False)
class UnansweredSends:
    """Looks at the requests that wait; those about a queue are sends.

    Attributes:
        send_address: of a broker, as the newest route has it; None: it has no master.
        doubt: have the route of a topic asked for.
    """

    transport: Transport
    send_address: Callable[[str], str | None]
    doubt: Callable[[str], object]

    def look(self) -> None:
        """End the sends that wait for SILENCE_S, where there is another master; ask for the route where there is
        none."""
        for address, answer in list(self.transport.waiting(aio.now_s() - SILENCE_S)):
            queue = answer.about
            if not isinstance(queue, MessageQueue):
                continue
            master = self.send_address(queue.broker_name)
            if master in (None, address):
                self.doubt(queue.topic)
            elif not self.transport.reaches(address):
                text = f"{address} does not answer, and the master of broker {queue.broker_name} is {master}"
                answer.finish(ConnectionLost(text))
