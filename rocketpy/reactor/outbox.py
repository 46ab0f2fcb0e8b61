"""Records on their way to one consumer, in order, through a ring that may be full for a while.

What does not fit waits here, up to a bound of bytes; the producer's doorbell rings when the ring has room again.
"""

from __future__ import annotations

from collections import deque

import attrs

from .ring import RECORD_MAX, RingWriter, too_large


@attrs.define(eq=False)
class Outbox:
    """The writer's side of one ring, with a bounded backlog."""

    writer: RingWriter
    bytes_max: int = 8 * 1024 * 1024
    _backlog: deque[tuple[int, bytes]] = attrs.field(init=False, factory=deque)
    _backlog_bytes: int = attrs.field(init=False, default=0)

    @property
    def backlog_bytes(self) -> int:
        return self._backlog_bytes

    def put(self, kind: int, record: bytes, *, always: bool = False) -> bool:
        """Write now (and wake the consumer), or keep for later. False: the backlog is full, nothing was taken.

        `always` is for records that must not be lost and whose number is bounded by something else (tables).

        Raises: LocalProtocolError: it is larger than any ring takes; those behind it are not held up.
        """
        if len(record) > RECORD_MAX:
            raise too_large(kind, len(record))
        if not self._backlog and self.writer.write(kind, record):
            self.writer.finish_batch()
            return True
        if not always and self._backlog and self._backlog_bytes + len(record) > self.bytes_max:
            return False  # a single one always fits: a large reply is no sign that the consumer does not keep up
        self._backlog.append((kind, record))
        self._backlog_bytes += len(record)
        return True

    def flush(self) -> None:
        """Write what waits, as far as there is room, and wake the consumer. Once per batch."""
        while self._backlog and self.writer.write(*self._backlog[0]):
            self._backlog_bytes -= len(self._backlog.popleft()[1])
        self.writer.finish_batch()

    def is_empty(self) -> bool:
        return not self._backlog and not self.writer.has_unsent()
