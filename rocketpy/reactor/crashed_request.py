"""A request that crashed a worker is not tried again: the restarted worker drops it and has its connection closed.

Every worker stores in its block the connection whose request it is serving. When it crashes, or is killed because it
hung (not by a signal from outside), the supervisor passes that connection to the restarted worker. Such a death does
not count towards the bound of restarts: a client that repeats the request must not end the broker (docs/adr/0073).

    worker:      serving = connection, take the record, release it, serving = 0
    supervisor:  death that is the worker's own  ->  suspect = serving
    successor:   message of `suspect` at the head of an input  ->  dropped;  reply ring  <-  CLOSE_AFTER

What the ring no longer holds (the manager copies its records, large ones cross in parts) went with the predecessor.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError
from rocketpy.remoting.command import RemotingCommand

from .ring import Ring, RingReader, RingWriter, WorkerBlock
from .topology import SEND, Topology
from .worker_messages import (
    CONNECTION_INTERNAL,
    PULL_REQUEST,
    PUT_RESULT,
    SEND_REQUEST,
    WorkerMessage,
    connection_of,
    decode_origin,
    encode_reply,
    frame_of,
    token_of,
)

REQUESTS = frozenset({WorkerMessage.FRAME, WorkerMessage.COMMAND, WorkerMessage.SEND, WorkerMessage.PULL})
TELL_TRIES, TELL_WAIT_S = 100, 0.01  # while the selector makes room
_log = logging.getLogger(__name__)


def drop_crashed_request(block: WorkerBlock, topology: Topology) -> None:
    """Drop the request that crashed the last worker. Called before a worker reads its rings."""
    suspect = block.suspect
    if not suspect:
        return
    sizes = topology.sizes
    has_copied = block.name in (*sizes.managers, *sizes.selectors)  # the head of its rings is another request
    inputs = [] if has_copied else topology.inputs(block.name)
    found = [taken for ring in inputs if (taken := _take_from(ring, suspect)) is not None]
    for kind, record in found:
        _log.error(
            "worker %s crashed while it served %s: dropped the request and closed its connection",
            block.name,
            describe(kind, record),
        )
        if suspect == CONNECTION_INTERNAL and block.name == SEND:
            refuse_put(topology.ring(SEND, sizes.managers[0]), record)
    if not found:
        _log.error("worker %s crashed while it served connection %x: closed the connection", block.name, suspect)
    if block.name not in sizes.selectors:  # whose connections ended with it
        close_connection(topology.replies_from(block.name), suspect)
    block.suspect_of(0)


def _take_from(ring: Ring, connection: int) -> tuple[int, bytes] | None:
    """The request of `connection` that is next in the ring, taken out of it."""
    reader = RingReader(ring)
    found = reader.peek()
    if found is None or found[0] not in REQUESTS or connection_of(found[1]) != connection:
        return None
    return reader.read()


def describe(kind: int, record: bytes) -> str:
    """The request's peer, code and size, for the log."""
    code: int | str = "unknown"
    if kind == WorkerMessage.SEND:
        code = SEND_REQUEST.read(record).code
    elif kind == WorkerMessage.PULL:
        code = PULL_REQUEST.read(record).code
    else:
        with contextlib.suppress(RocketError):
            code = RemotingCommand.decode(frame_of(record)).code
    return f"a request of {decode_origin(record).peer} (code {code}, {len(record)} bytes)"


def close_connection(replies: Sequence[Ring], connection: int) -> None:
    """Have its selector close it; `replies` by selector. One that stays full for a second is left alone."""
    index = connection >> 56
    if index >= len(replies):
        return
    writer = RingWriter(replies[index])
    for _ in range(TELL_TRIES):
        if writer.write(WorkerMessage.REPLY, encode_reply(connection, b"", close_after=True)):
            writer.finish_batch()
            return
        time.sleep(TELL_WAIT_S)


def refuse_put(to_manager: Ring, record: bytes) -> None:
    """Answer the manager's own put with an error: it may be stored or not."""
    writer = RingWriter(to_manager)
    refusal = PUT_RESULT.write(token=token_of(record), code=ResponseCode.SYSTEM_ERROR)
    writer.write(WorkerMessage.PUT_RESULT, refusal)
    writer.finish_batch()
