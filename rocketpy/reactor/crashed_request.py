"""A request that crashed a worker is not tried again: the restarted worker drops it and its connection is closed.

Every worker stores in its block the connection whose request it is serving. If the worker crashes or hangs, the
supervisor passes this connection to the restarted worker as its suspect. A kill from outside makes no suspect. Such a
crash does not count towards the limit of restarts: a client that repeats the request must not end the broker
(docs/adr/0044).

    worker:      serving = connection, take the record, release it, serving = 0
    supervisor:  crash or hang of the worker  ->  suspect = serving
    restarted:   message of `suspect` at the head of an input  ->  dropped;  reply ring  <-  CLOSE_AFTER

Some requests are no longer in the ring when the worker crashes: the manager copies its requests, and large ones cross
in parts. Those are lost with the worker. A timer stays in its ring: the restarted send worker tries it again, and
skips it when three have crashed. A hang counts as a crash there if the worker computed (`has_computed`): a disk that
hangs says nothing of the timer (csrc/store/timers/delivery_marks.h).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError
from rocketpy.native.core import Layout
from rocketpy.remoting.command import RemotingCommand

from .ring import Ring, RingReader, RingWriter, WorkerBlock
from .topology import MANAGER, SEND, STORE, Topology
from .worker_messages import (
    CONNECTION_INTERNAL,
    CONNECTION_TIMER,
    DELIVER,
    END_REQUEST,
    PULL_REQUEST,
    PUT_RESULT,
    SEND_REQUEST,
    TIMER,
    WorkerMessage,
    connection_of,
    decode_origin,
    encode_reply,
    frame_of,
    token_of,
)

REQUESTS = frozenset(
    {
        WorkerMessage.FRAME,
        WorkerMessage.COMMAND,
        WorkerMessage.HEARTBEAT,
        WorkerMessage.SEND,
        WorkerMessage.PULL,
        WorkerMessage.END_TRANSACTION,
    }
)
FIXED: dict[int, Layout] = {
    WorkerMessage.SEND: SEND_REQUEST,
    WorkerMessage.PULL: PULL_REQUEST,
    WorkerMessage.END_TRANSACTION: END_REQUEST,
}
TELL_TRIES, TELL_WAIT_S = 100, 0.01  # while the reply ring is full
_log = logging.getLogger(__name__)


def drop_crashed_request(block: WorkerBlock, topology: Topology) -> None:
    """Drop the request that crashed the last worker. Called before a worker reads its rings."""
    if block.suspect == CONNECTION_TIMER:
        _log_timer(topology.ring(STORE, SEND))
    elif block.suspect:
        _drop_request_of(block.suspect, block, topology)
    block.suspect = 0


def _drop_request_of(suspect: int, block: WorkerBlock, topology: Topology) -> None:
    sizes = topology.sizes
    # These copy what they read: the next message of their rings is another request.
    has_copied = block.name in (MANAGER, *sizes.queries, *sizes.selectors)
    inputs = [] if has_copied else topology.inputs(block.name)
    found = [taken for ring in inputs if (taken := _take_from(ring, suspect)) is not None]
    for kind, record in found:
        _log.error(
            "worker %s crashed while it served %s: dropped the request and closed its connection",
            block.name,
            describe_request(kind, record),
        )
        if suspect == CONNECTION_INTERNAL and block.name == SEND:
            refuse_put(topology.ring(SEND, MANAGER), kind, record)
    if not found:
        _log.error("worker %s crashed while it served connection %x: closed the connection", block.name, suspect)
    if block.name not in sizes.selectors:  # connections of a dead selector are closed already
        close_connection(topology.replies_from(block.name), suspect)


def _log_timer(ring: Ring) -> None:
    """Log the timer whose delivery crashed the send worker: the first message of `ring`."""
    if found := RingReader(ring).peek():
        _log.error(
            "worker %s crashed while it served the timer at log offset %d; it is skipped after the third crash",
            SEND,
            TIMER.read(found[1]).phy_offset,
        )


def _take_from(ring: Ring, connection: int) -> tuple[int, bytes] | None:
    """Remove and return the next request of the ring if it is one of `connection`."""
    reader = RingReader(ring)
    found = reader.peek()
    return reader.read() if found is not None and _sender_of(*found) == connection else None


def _sender_of(kind: int, record: bytes) -> int | None:
    """The connection whose request the record is, CONNECTION_INTERNAL for deliveries too; None: it is no request."""
    if kind == WorkerMessage.DELIVER:
        return CONNECTION_INTERNAL
    return connection_of(record) if kind in REQUESTS else None


def describe_request(kind: int, record: bytes) -> str:
    """Describe the request for the log: peer, code, size, and its names in lines of other processes."""
    found: Any = None
    if kind == WorkerMessage.DELIVER:
        due = DELIVER.read(record)
        return f"the delivery of {due.count} messages of delay level {due.level} from offset {due.queue_offset} on"
    if kind in FIXED:
        found = FIXED[kind].read(record)
    else:
        with contextlib.suppress(RocketError):
            found = RemotingCommand.decode(frame_of(record))
    code, opaque = (found.code, found.opaque) if found is not None else ("unknown", "unknown")
    names = f"connection {connection_of(record):x}, opaque {opaque}"
    return f"a request of {decode_origin(record).peer} (code {code}, {len(record)} bytes; {names})"


def close_connection(replies: Sequence[Ring], connection: int) -> None:
    """Ask the selector of the connection to close it; `replies` are the reply rings by selector. Gives up after a
    second if the ring stays full."""
    index = connection >> 56
    if index >= len(replies):
        return
    writer = RingWriter(replies[index])
    for _ in range(TELL_TRIES):
        if writer.write(WorkerMessage.REPLY, encode_reply(connection, b"", close_after=True)):
            writer.finish_batch()
            return
        time.sleep(TELL_WAIT_S)


def refuse_put(to_manager: Ring, kind: int, record: bytes) -> None:
    """Answer an internal put or a delivery of the manager with an error. The message may have been stored."""
    writer = RingWriter(to_manager)
    refusal = PUT_RESULT.write(token=token_of(record, kind), code=ResponseCode.SYSTEM_ERROR)
    writer.write(WorkerMessage.PUT_RESULT, refusal)
    writer.finish_batch()
