"""Deletions of a topic's queues, from the manager's side.

    send     is told that the topic is gone, then asked for its POSITION: the log's end P at that point of its input.
             Everything acknowledged to the deleted topic lies below P, everything acknowledged to a topic of the same
             name that is created later lies at P or above
    manager  writes P to the queues' entries in the control block: from here on the deletion survives every process
    store    removes the units of records below P when dispatch has reached it, and answers with CLEANED

Nothing here waits: each answer causes the next step. A caller may wait for the end as long as it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from .outbox import Outbox
from .worker_messages import POSITION, PUT_RESULT, WorkerMessage, encode_clean_topic

TOKENS = 1 << 63  # ours are behind it, those of puts before it


class QueueTable(Protocol):
    """The queues' entries in the control block, as far as the manager writes them."""

    def add_queue(self, topic: bytes, queue_id: int) -> object:
        """Raises: StoreError (no room, or a name that cannot be a directory)."""

    def delete_queues(self, topic: str) -> None: ...

    def delete_units(self, topic: str, below: int) -> None: ...


@attrs.define
class _Deletion:
    topic: str
    done: trio.Event = attrs.field(factory=trio.Event)


class QueueDeletions:
    """`send`, `store`: the ways to these workers; `store` None: there is none (tests)."""

    def __init__(self, queues: QueueTable, send: Outbox, store: Outbox | None, now_ns: Callable[[], int]) -> None:
        self._queues = queues
        self._send = send
        self._store = store
        self._last_token = TOKENS + now_ns()  # above all tokens of a predecessor
        self._by_token: dict[int, _Deletion] = {}  # send has not answered
        self._by_record: dict[bytes, _Deletion] = {}  # store has not answered

    def begin(self, topic: str) -> trio.Event:
        """Right after send was told that the topic is gone. Returns: set when the queues' files are removed."""
        deletion = _Deletion(topic)
        self._last_token += 1
        token = self._last_token
        self._queues.delete_queues(topic)
        self._by_token[token] = deletion
        self._send.put(WorkerMessage.POSITION, POSITION.write(token=token), always=True)
        return deletion.done

    def position_is(self, record: bytes) -> bool:
        """A PUT_RESULT has come; False: it is not for us. One to a predecessor of ours is dropped."""
        position = PUT_RESULT.read(record)
        token = position.token
        if token < TOKENS:
            return False
        deletion = self._by_token.pop(token, None)
        if deletion is not None:
            self._delete_units(deletion, position.phy_offset, token)
        return True

    def _delete_units(self, deletion: _Deletion, below: int, token: int) -> None:
        self._queues.delete_units(deletion.topic, below)
        if self._store is None:
            return deletion.done.set()
        record = encode_clean_topic(deletion.topic, token)
        self._by_record[record] = deletion
        self._store.put(WorkerMessage.CLEAN_TOPIC, record, always=True)

    def cleaned(self, record: bytes) -> None:
        deletion = self._by_record.pop(record, None)
        if deletion is not None:
            deletion.done.set()

    def ask_again(self) -> None:
        """The store worker has been replaced: what its predecessor took may have gone with it."""
        for record in self._by_record:
            if self._store is not None:
                self._store.put(WorkerMessage.CLEAN_TOPIC, record, always=True)
