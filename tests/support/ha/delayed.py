"""A sender of delayed messages that remembers what was acknowledged; a thread with plain sockets."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Sequence

import attrs

from tests.support.history import Connection, send_request

from .history import SUCCESS
from .places import SEND_TIMEOUT_S, STORED_CODES, Server, connected

TOPIC = "Delayed"
PAUSE_S = 0.01


@attrs.define(eq=False)
class DelayedSends:
    """One message after the other with delay level 1, which is a second, in turn to the queues; until stopped."""

    servers: Sequence[Server]
    seed: int
    queues: int = 4
    pause_s: float = PAUSE_S
    acknowledged: dict[str, float] = attrs.field(init=False, factory=dict)  # key: when it was sent, CLOCK_MONOTONIC
    failure: BaseException | None = attrs.field(init=False, default=None)
    _number: int = attrs.field(init=False, default=0)
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)
    _thread: threading.Thread = attrs.field(init=False)

    def __enter__(self) -> DelayedSends:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more, and wait for the answer of the last one."""
        self._stop.set()
        self._thread.join()

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self.failure is not None and exc[0] is None:
            raise self.failure

    def _run(self) -> None:
        at = 0
        try:
            while not self._stop.is_set():
                server = self.servers[at % len(self.servers)]
                at += 1
                with contextlib.suppress(OSError, struct.error), connected(server, SEND_TIMEOUT_S) as connection:
                    while self._send(connection) and not self._stop.wait(self.pause_s):
                        pass
                self._stop.wait(PAUSE_S)
        except BaseException as exc:
            self.failure = exc

    def _send(self, connection: Connection) -> bool:
        """Whether this member takes messages."""
        self._number += 1
        key = f"{self.seed}.{self._number}"
        request = send_request(TOPIC, self._number % self.queues, [f"{key} ".encode()], self._number)
        assert request.ext_fields is not None
        request.ext_fields["i"] = "DELAY\x011\x02"
        sent_s = time.monotonic()
        reply = connection.ask(request)
        if reply.code == SUCCESS:
            self.acknowledged[key] = sent_s
        return reply.code in STORED_CODES
