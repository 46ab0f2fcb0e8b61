"""Clients of a group: senders that go from member to member, readers of all members, and what `mixed` has beside them.
Threads with plain sockets."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import time
from collections.abc import Callable, Sequence

import attrs

from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.record import decode_records
from tests.support.history import PULL_FOUND, Connection, pull_request, send_request

from .history import Answer, History
from .mixed import Mixed
from .places import QUEUES, READ_TIMEOUT_S, SEND_TIMEOUT_S, STORED_CODES, TOPIC, Server, connected, key_of

PAUSE_S = 0.02


@attrs.define(eq=False)
class Clients:
    """`senders` threads that send one message after the other, and one reader for each member; until stopped."""

    servers: Sequence[Server]
    history: History
    seed: int
    senders: int = 6
    body_bytes: int = 300
    failure: BaseException | None = attrs.field(init=False, default=None)
    unanswered: dict[str, OSError] = attrs.field(init=False, factory=dict)  # keys of sends without an answer, and why
    mixed: Mixed = attrs.field(init=False)
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)
    _threads: list[threading.Thread] = attrs.field(init=False, factory=list)

    def __enter__(self) -> Clients:
        self.mixed = Mixed(self.servers, self.history, self.seed)
        self.mixed.start()
        for number in range(self.senders):
            self._begin(self._send_all, number)
        for server in self.servers:
            self._begin(self._read_all, server)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.mixed.stop()
        if exc[0] is not None:
            return
        if self.failure is not None:
            raise self.failure
        assert self.history.acknowledged, "nothing was acknowledged: the history says nothing"

    def _begin(self, work: Callable[..., None], argument: object) -> None:
        def guarded() -> None:
            try:
                work(argument)
            except BaseException as exc:
                self.failure = exc

        thread = threading.Thread(target=guarded, daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- senders ------------------------------------------------------------------------------------------------------

    def _send_all(self, sender: int) -> None:
        choose = random.Random(f"{self.seed}/{sender}")
        number, at = 0, sender
        while not self._stop.is_set():
            server = self.servers[at % len(self.servers)]
            at += 1
            with contextlib.suppress(OSError, struct.error), connected(server, SEND_TIMEOUT_S) as connection:
                takes = True
                while takes and not self._stop.is_set():
                    number += 1
                    takes = self._send(connection, server.member, sender, number, choose.randrange(QUEUES))
            self._stop.wait(PAUSE_S)

    def _send(self, connection: Connection, member: str, sender: int, number: int, queue_id: int) -> bool:
        """Whether this member takes messages."""
        key = f"{self.seed}.{sender}.{number}"
        body = f"{key} ".encode().ljust(self.body_bytes, b"x")
        sent_s = time.monotonic()
        try:
            reply = connection.ask(send_request(TOPIC, queue_id, [body], number))
        except OSError as exc:
            self.unanswered[key] = exc
            raise
        if reply.code in STORED_CODES:
            fields = reply.ext_fields or {}
            place = int(fields["queueId"]), int(fields["queueOffset"])
            at, answered_s = decode_offset_message_id(fields["msgId"]), time.monotonic()
            master = self._member_at(at.store_host, member)
            self.history.answered(
                Answer(key, sender, number, reply.code, master, place, sent_s, answered_s, at.phy_offset)
            )
            return True
        self.history.answered(Answer(key, sender, number, reply.code, member, (-1, -1), sent_s, time.monotonic()))
        return False

    def _member_at(self, host: tuple[str, int], asked: str) -> str:
        """The member that has stored a message: a slave may have passed it on."""
        return next((server.member for server in self.servers if (server.host, server.port) == host), asked)

    # --- readers ------------------------------------------------------------------------------------------------------

    def _read_all(self, server: Server) -> None:
        offsets = [0] * QUEUES
        while not self._stop.is_set():
            with contextlib.suppress(OSError, struct.error), connected(server, READ_TIMEOUT_S) as connection:
                while not self._stop.is_set():
                    found = [self._read(connection, server.member, queue_id, offsets) for queue_id in range(QUEUES)]
                    if not any(found):
                        self._stop.wait(PAUSE_S)
            self._stop.wait(PAUSE_S)

    def _read(self, connection: Connection, member: str, queue_id: int, offsets: list[int]) -> bool:
        reply = connection.ask(pull_request(TOPIC, queue_id, offsets[queue_id]))
        if reply.code != PULL_FOUND:
            return False
        for record in decode_records(reply.body or b"", check_crc=True):
            if record.queue_offset != offsets[queue_id]:
                where = f"{queue_id}/{offsets[queue_id]}"
                self.history.faults.append(f"{member} shows {record.queue_offset} at {where}: an offset is left out")
            self.history.shown(member, (queue_id, record.queue_offset), key_of(bytes(record.body)))
            offsets[queue_id] = record.queue_offset + 1
        return True
