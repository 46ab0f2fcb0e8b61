"""Rings, their writers and readers, and worker blocks: csrc/ipc/ring.h with Python argument types.

Everything here is shared memory or a view of it. The supervisor creates rings and blocks before it forks, and never
frees them. Each process opens the writers and readers that it uses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rocketpy.errors import LocalProtocolError, TransportError
from rocketpy.native.core import ffi, lib, shared

STOP_LEAVE: int = lib.RP_STOP_LEAVE
STOP_INTAKE: int = lib.RP_STOP_INTAKE
MESSAGE_MAX: int = lib.RP_RING_MESSAGE_MAX
MESSAGE_HEADER = 8  # bytes before each message


def too_large(kind: int, size: int) -> LocalProtocolError:
    return LocalProtocolError(f"ring message of type {kind} has {size} bytes; a ring takes {MESSAGE_MAX} at most")


class WorkerBlock:
    """The state of one worker that all processes see: doorbell, orders, readiness, heartbeat, counters."""

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.pointer = shared("rp_worker", f"worker {name}")
        self.pointer.index = index
        try:
            self.pointer.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as exc:
            raise TransportError(f"no descriptor for worker {name}: {exc.strerror}") from exc

    @property
    def doorbell(self) -> int:
        """The eventfd, the same number in every process."""
        return int(self.pointer.doorbell)

    @property
    def epoch(self) -> int:
        """Number of times that the worker has been started."""
        return int(self.pointer.epoch)

    @property
    def is_ready(self) -> bool:
        return bool(self.pointer.ready)

    @property
    def stop(self) -> int:
        """0, or the order STOP_INTAKE or STOP_LEAVE."""
        return int(self.pointer.stop)

    @property
    def heartbeat_ns(self) -> int:
        """CLOCK_MONOTONIC of the last turn of its loop."""
        return int(self.pointer.heartbeat_ns)

    @property
    def serving(self) -> int:
        """The connection whose request the worker is serving; 0: none."""
        return int(self.pointer.serving)

    def serve(self, connection: int) -> None:
        """The worker begins to serve a request of `connection`; 0: it has finished."""
        self.pointer.serving = connection

    @property
    def suspect(self) -> int:
        """The connection whose request crashed the previous process of this worker; 0: none, or already handled."""
        return int(self.pointer.suspect)

    @suspect.setter
    def suspect(self, connection: int) -> None:  # by the supervisor; 0: by the worker
        self.pointer.suspect = connection

    def note_crash(self, value: bool) -> None:
        """Set by the supervisor: whether the previous process of this worker crashed, or looped for ever, over its
        request; not if it was killed for another reason."""
        self.pointer.has_crashed = value

    def counters(self) -> tuple[int, ...]:
        return tuple(self.pointer.counters)

    @property
    def busy_since_ns(self) -> int:
        """The start of the pass of a send worker (ns, CLOCK_MONOTONIC); 0 between passes."""
        return int(self.pointer.busy_since_ns)

    def counter(self, counter: int) -> int:
        return int(self.pointer.counters[counter])

    def add(self, counter: int, amount: int = 1) -> None:
        """Add to a counter. Called by the worker itself alone."""
        self.pointer.counters[counter] += amount

    def show(self, counter: int, value: int) -> None:
        """Set a gauge among the counters."""
        self.pointer.counters[counter] = value

    def beat(self, now_ns: int) -> None:
        self.pointer.heartbeat_ns = now_ns

    def mark_ready(self) -> None:
        self.pointer.ready = 1

    def begin(self, now_ns: int) -> None:
        """Prepare the block for a (re)start of the worker; counters and resume points stay."""
        block = self.pointer
        block.asleep = block.stop = block.ready = 0
        block.heartbeat_ns = now_ns
        block.busy_since_ns = block.serving = 0  # left by the previous process
        block.epoch += 1

    def order(self, stop: int) -> None:
        """Order the worker to stop, and wake it."""
        self.pointer.stop = stop
        self.wake(force=True)

    def wake(self, *, force: bool = False) -> None:
        lib.rp_worker_wake(self.pointer, int(force))

    def prepare_sleep(self, *, naps: bool = False) -> None:
        """Announce sleep. Check all inputs once more afterwards, then block on the doorbell.

        Args:
            naps: the worker wakes up by itself within milliseconds: unhurried messages do not ring (csrc/ipc/ring.h).
        """
        lib.rp_worker_prepare_sleep(self.pointer)
        if naps:
            self.pointer.asleep = lib.RP_NAPPING

    def awake(self) -> None:
        lib.rp_worker_end_sleep(self.pointer)


class Ring:
    """One producer process, one consumer process."""

    def __init__(self, capacity_bytes: int, producer: WorkerBlock, consumer: WorkerBlock) -> None:
        self.producer = producer.name
        self.consumer = consumer.name
        self.capacity_bytes = capacity_bytes
        self.pointer: Any = lib.rp_ring_create(capacity_bytes, producer.pointer, consumer.pointer)
        if self.pointer == ffi.NULL:
            reason = os.strerror(ffi.errno)
            path = f"from {self.producer} to {self.consumer}"
            raise TransportError(f"no shared memory for the ring {path}, {capacity_bytes} bytes: {reason}")

    @property
    def depth_bytes(self) -> int:
        """Written and not yet released."""
        return int(lib.rp_ring_depth(self.pointer))

    def waiting(self) -> tuple[int, int]:
        """(requests that wait, when the first of them was received, CLOCK_MONOTONIC ns): of a ring that carries
        requests, seen from any process. The number is taken from the bytes, as if all were as large as the first.
        (0, 0): none."""
        origin = ffi.new("rp_origin *")
        size = int(lib.rp_ring_copy_head(self.pointer, origin, ffi.sizeof("rp_origin")))
        if size == 0:
            return 0, 0
        return max(1, self.depth_bytes // (size + MESSAGE_HEADER)), int(origin.received_ns)


class RingWriter:
    """The producer's end. A message appears as a whole; `write` never blocks."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._pointer: Any = lib.rp_ring_writer_open(ring.pointer)
        if self._pointer == ffi.NULL:
            raise MemoryError

    def write(self, kind: int, message: bytes) -> bool:
        """Returns False if there is no room; nothing was written, and the doorbell rings when there is room.

        Raises: LocalProtocolError: the message is larger than the limit; nothing was written.
        """
        span = ffi.new("rp_span *", (ffi.from_buffer(message), len(message)))
        status = lib.rp_ring_write(self._pointer, kind, span, 1)
        if status == lib.RP_NO_MEMORY:
            raise MemoryError
        if status == lib.RP_TOO_LARGE:
            raise too_large(kind, len(message))
        return bool(status == lib.RP_OK)

    def finish_batch(self) -> None:
        """Continue a large message, and wake the consumer if something was written."""
        self.pump()
        lib.rp_ring_wake(self._pointer)

    def pump(self) -> bool:
        """Continue a large message; return False if parts of it are still in this process's memory."""
        return bool(lib.rp_ring_pump(self._pointer) == lib.RP_OK)


class RingReader:
    """The consumer's end."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._pointer: Any = lib.rp_ring_reader_open(ring.pointer)
        if self._pointer == ffi.NULL:
            raise MemoryError
        self._data = ffi.new("const uint8_t **")
        self._size = ffi.new("uint32_t *")
        self._kind = ffi.new("uint16_t *")

    def read(self) -> tuple[int, bytes] | None:
        """Type and bytes of the next message, copied and released; None: the ring is empty."""
        found = self.look()
        if found is not None:
            self.release()
        return found

    def look(self) -> tuple[int, bytes] | None:
        """Type and bytes of the next message, copied; it stays until `release`. None: the ring is empty."""
        status = lib.rp_ring_read(self._pointer, self._data, self._size, self._kind)
        if status == lib.RP_EMPTY:
            return None
        if status != lib.RP_OK:
            raise MemoryError
        return int(self._kind[0]), bytes(ffi.buffer(self._data[0], self._size[0]))

    def release(self) -> None:
        """Release the message that `look` returned."""
        lib.rp_ring_release(self._pointer)

    @property
    def position(self) -> int:
        """Bytes of the ring that have been read since it was created."""
        return int(lib.rp_ring_head_after(self._pointer))

    def is_empty(self) -> bool:
        return bool(lib.rp_ring_is_empty(self._pointer))

    def peek(self) -> tuple[int, bytes] | None:
        """The next message, without removing it; None: the ring is empty, or the message crosses in parts."""
        data = lib.rp_ring_peek(self._pointer, self._size, self._kind)
        if data == ffi.NULL:
            return None
        return int(self._kind[0]), bytes(ffi.buffer(data, self._size[0]))


def ring_array(rings: Sequence[Ring]) -> Any:
    """`rp_ring **` for a config struct; keep the result until the C side has read it."""
    return ffi.new("rp_ring *[]", [ring.pointer for ring in rings] or [ffi.NULL])
