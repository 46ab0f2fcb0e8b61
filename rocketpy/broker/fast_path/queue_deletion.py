"""Deletion of a topic's queues: the part of the manager.

    send     receives the removal of the topic, then a POSITION request: it returns the end of the log, P, at that time.
             Everything acknowledged to the deleted topic lies below P, everything acknowledged to a topic of the same
             name that is created later lies at P or above
    manager  writes P to the queues' entries in the control block: from here on the deletion survives every process
    store    removes the units of records below P when dispatch has reached it, and answers with CLEANED

A topic may be created again before P is known, and while the send worker still has the old entry (its ring is full, or
it was restarted and is being told the tables). It then accepts messages for the new topic below P. So P is at most the
end of the log at the moment of the creation.

No function here waits: each answer starts the next step. A caller can wait for the event that marks the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.worker_messages import POSITION, PUT_RESULT, WorkerMessage, encode_clean_topic

TOKENS = 1 << 63  # tokens of deletions are above, those of puts below
RECENT_MAX = 100


class QueueTable(Protocol):
    """The part of the control block's queue entries that the manager writes."""

    def add_queues(self, topic: bytes, count: int) -> None:
        """Add queues to the control block. Raises: StoreError (no room, or a name that cannot be a directory)."""

    @property
    def published_phy_offset(self) -> int:
        """End of the log."""

    def delete_queues(self, topic: str) -> None: ...

    def delete_units(self, topic: str, below: int) -> None: ...


@attrs.define
class _Deletion:
    topic: str
    done: trio.Event = attrs.field(factory=trio.Event)
    recreated_at: int | None = None  # P is at most this: a topic of that name was, or may have been, created again


@attrs.define
class _Question:
    """A POSITION request that belongs to no deletion."""

    is_answered: trio.Event = attrs.field(factory=trio.Event)
    position: int = -1


class QueueDeletions:
    """`send`, `store`: outboxes to these workers; `store` is None in tests without a store worker."""

    def __init__(self, queues: QueueTable, send: Outbox, store: Outbox | None, now_ns: Callable[[], int]) -> None:
        self._queues = queues
        self._send = send
        self._store = store
        self._last_token = TOKENS + now_ns()  # above all tokens of previous managers
        self._by_token: dict[int, _Deletion] = {}  # waiting for the answer of the send worker
        self._by_record: dict[bytes, _Deletion] = {}  # waiting for the answer of the store worker
        self._questions: dict[int, _Question] = {}
        self.recent: dict[str, int] = {}
        """The topics of the last RECENT_MAX deletions, and the positions below which their records are deleted."""

    def begin(self, topic: str, below: int | None = None) -> trio.Event:
        """Begin a deletion, directly after the send worker was told of it. Records at `below` and above it stay.
        Returns: an event, set when the files are removed."""
        deletion = _Deletion(topic, recreated_at=below)
        self._last_token += 1
        token = self._last_token
        if below is not None:  # first, so that a repetition by another manager has the same bound
            self._queues.delete_units(topic, below)
        self._queues.delete_queues(topic)
        self._by_token[token] = deletion
        self._ask_position(token)
        return deletion.done

    def begin_below(self, topic: str, below: int) -> None:
        """Delete the topic's messages below a position, as the master of this slave did. The topic stays."""
        self._last_token += 1
        self._delete_units(_Deletion(topic), below, self._last_token)

    async def position(self) -> int:
        """Wait for the end of the log at the time when the send worker has taken all that it was told so far."""
        self._last_token += 1
        question = self._questions[self._last_token] = _Question()
        self._ask_position(self._last_token)
        await question.is_answered.wait()
        return question.position

    def _ask_position(self, token: int) -> None:
        self._send.put(WorkerMessage.POSITION, POSITION.write(token=token), always=True)

    def ask_positions_again(self) -> None:
        """The send worker was restarted: answers of the previous one may be lost. A later position is as good, because
        nothing is accepted for a deleted topic until it is created again."""
        for token in (*self._by_token, *self._questions):
            self._ask_position(token)

    def created(self, topic: str) -> None:
        """A topic is about to be created, or changed. The messages that it will get are not deleted."""
        for deletion in self._by_token.values():
            if deletion.topic == topic and deletion.recreated_at is None:
                deletion.recreated_at = self._queues.published_phy_offset

    def position_is(self, record: bytes) -> bool:
        """Handle a PUT_RESULT. Returns False if it belongs to a put. A result for a previous manager is dropped."""
        position = PUT_RESULT.read(record)
        token = position.token
        if token < TOKENS:
            return False
        question = self._questions.pop(token, None)
        if question is not None:
            question.position = position.phy_offset
            question.is_answered.set()
        deletion = self._by_token.pop(token, None)
        if deletion is not None:
            known = (position.phy_offset, deletion.recreated_at)
            self._delete_units(deletion, min(at for at in known if at is not None), token)
        return True

    def _delete_units(self, deletion: _Deletion, below: int, token: int) -> None:
        self._queues.delete_units(deletion.topic, below)
        self.recent.pop(deletion.topic, None)
        self.recent[deletion.topic] = below
        if len(self.recent) > RECENT_MAX:
            del self.recent[next(iter(self.recent))]
        if self._store is None:
            return deletion.done.set()
        record = encode_clean_topic(deletion.topic, token)
        self._by_record[record] = deletion
        self._store.put(WorkerMessage.CLEAN_TOPIC, record, always=True)

    def cleaned(self, record: bytes) -> None:
        deletion = self._by_record.pop(record, None)
        if deletion is not None:
            deletion.done.set()

    def ask_store_again(self) -> None:
        """Repeat all requests after a restart of the store worker, because requests that it had read may be lost."""
        for record in self._by_record:
            if self._store is not None:
                self._store.put(WorkerMessage.CLEAN_TOPIC, record, always=True)
