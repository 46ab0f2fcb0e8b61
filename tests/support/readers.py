"""Waits of tests that send and read at once: a broker acknowledges a message a moment before readers see it.

Consume queues are written by another process than the log. A batch query, a run of an archive or a stream with
`availableNow` that asks for the end of a queue in between ends before the message.
"""

from __future__ import annotations

import contextlib

from rocketpy.client import SendResult
from rocketpy.codes import RequestCode
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.command import RemotingCommand

from .waiting import wait_until
from .wire import Wire

DEADLINE_S = 120.0  # generous: the machine may be busy


def readable(sent: list[SendResult]) -> list[SendResult]:
    """Return the results of sends when readers see their messages. The brokers are of this machine."""
    first_ids = (result.offset_msg_id.split(",", 1)[0] for result in sent)
    for port in sorted({decode_offset_message_id(one).store_host[1] for one in first_ids}):
        wait_for_readers(port)
    return sent


def wait_for_readers(port: int, within_s: float = DEADLINE_S) -> None:
    """Wait until readers see all that the broker at this port has acknowledged; a worker of it may die meanwhile."""

    def is_seen() -> bool:
        with contextlib.suppress(OSError, EOFError), Wire.open(port) as wire:
            return behind_bytes(wire) == 0
        return False

    wait_until(is_seen, "a look of readers at what was acknowledged", within_s, pause_s=0.002)


def behind_bytes(wire: Wire) -> int:
    """Return the size of the records that are in no consume queue yet."""
    answer = wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(KVTable.decode(answer.body).table["dispatchBehindBytes"])
