"""The sending side of a ring, with a bounded backlog for the time in which the ring is full.

Messages that do not fit into the ring wait here, in order. The producer's doorbell rings when the ring has room again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from .ring import MESSAGE_MAX, RingWriter, too_large

RECORDS_PER_FLUSH = 500  # of those that are made when there is room for them: a millisecond or so


@attrs.define(eq=False)
class Outbox:
    """One ring and its backlog."""

    writer: RingWriter
    bytes_max: int = 8 * 1024 * 1024
    _backlog: deque[tuple[int, bytes] | Iterator[tuple[int, bytes]]] = attrs.field(init=False, factory=deque)
    backlog_bytes: int = attrs.field(init=False, default=0)
    has_unhurried: bool = attrs.field(init=False, default=False)
    """True if only unhurried messages were written since the consumer was woken."""

    def put(self, kind: int, message: bytes, *, always: bool = False, is_unhurried: bool = False) -> bool:
        """Write the message to the ring and wake the consumer, or append it to the backlog. Returns False if that is
        full.

        Args:
            always: ignores the bound. For messages whose number is bounded otherwise, such as table entries.
            is_unhurried: do not wake the consumer; the next message does, or `wake`. A wake-up costs both processes
                more than to write and to read a small message.

        Raises: LocalProtocolError: the message is larger than the limit of a ring.
        """
        if len(message) > MESSAGE_MAX:
            raise too_large(kind, len(message))
        if not self._backlog and self.writer.write(kind, message):
            if is_unhurried:
                self.has_unhurried = True
            else:
                self.wake()
            return True
        if not always and self.backlog_bytes and self.backlog_bytes + len(message) > self.bytes_max:
            return False  # a single message is always accepted: a large reply does not mean that the consumer is slow
        self._backlog.append((kind, message))
        self.backlog_bytes += len(message)
        return True

    def put_all(self, messages: Iterator[tuple[int, bytes]]) -> None:
        """Write these messages in steps, before all that is put later. What is left of an earlier call is dropped."""
        self._backlog = deque(entry for entry in self._backlog if isinstance(entry, tuple))
        self._backlog.append(messages)

    def flush(self) -> bool:
        """Write as much of the backlog as fits into the ring, and wake the consumer; do nothing while only unhurried
        messages wait for a wake-up. Called once per batch. Returns
        True if a step of `put_all` has ended before the ring was full: call again soon."""
        if self.has_unhurried and not self._backlog and self.writer.pump():
            return False
        made = 0
        while self._backlog and made < RECORDS_PER_FLUSH:
            entry = self._backlog[0]
            if isinstance(entry, tuple):
                if not self.writer.write(*entry):
                    break
                self._backlog.popleft()
                self.backlog_bytes -= len(entry[1])
                continue
            message = next(entry, None)
            made += 1
            if message is None:
                self._backlog.popleft()
            else:
                self._backlog.appendleft(message)
                self.backlog_bytes += len(message[1])
        self.wake()
        return made == RECORDS_PER_FLUSH

    def wake(self) -> None:
        """Wake the consumer if something was written."""
        self.has_unhurried = False
        self.writer.finish_batch()

    def is_empty(self) -> bool:
        return not self._backlog and self.writer.pump()
