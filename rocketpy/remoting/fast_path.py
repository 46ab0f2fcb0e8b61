"""The interface between the fast path (C) and the slow path (Python): values of the ring messages of
csrc/ipc/worker_messages.h.

The send and pull workers serve requests that need no decision. All other sends and pulls arrive here as a SendRequest
or PullRequest. The broker answers them, or hands them back through a FastPath, checked and changed where needed. The
broker owns the tables, and sends every change to the workers in order through the same FastPath.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Protocol

import attrs

from rocketpy.values import Value

from .abc import Channel
from .command import FLAG_ONEWAY, RemotingCommand
from .frame import SerializeType
from .headers.send import EndTransactionRequestHeader


@attrs.frozen(eq=False, repr=False)
class SendRequest(Value):
    """A send as decoded by the codec, from either header form, unescaped. Properties are without WAIT and without
    CLUSTER."""

    channel: Channel
    opaque: int
    code: int
    version: int
    received_ms: int  # monotonic
    is_oneway: bool
    is_rocketmq: bool  # answer in the ROCKETMQ serialisation
    is_batch: bool
    wait_store: bool
    has_wait: bool  # the client gave WAIT
    topic: str
    producer_group: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    message_flag: int
    reconsume_times: int
    max_reconsume_times: int | None
    unit_mode: bool
    properties: bytes
    body: bytes
    raw: bytes = attrs.field(repr=False)  # the ring message, to pass it back unchanged
    is_timer: bool = False  # a property asks for a later delivery; the send worker sees to it


@attrs.frozen(eq=False, repr=False)
class PullRequest(Value):
    channel: Channel
    opaque: int
    code: int
    version: int
    is_oneway: bool
    is_rocketmq: bool
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_ms: int
    subscription: str
    sub_version: int
    expression_type: str
    raw: bytes = attrs.field(repr=False)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class Traffic(Value):
    """The messages that sends have stored in a queue, or that pulls of a group have got from it, since the last
    report."""

    topic: str
    queue_id: int
    group: str | None = None  # None: stored by sends
    messages: int
    bytes: int
    requests: int  # sends, or pulls that got messages
    wait_ms: int = 0  # of these pulls together: from their arrival to the answer, unless they were suspended
    behind_bytes: int = 0  # of the last pull: from its last message to the end of the log


@attrs.frozen
class Delivery:
    """The delivery of a delayed message: it is stored again in its real topic. Offsets increase from message to message
    of a level."""

    level: int  # from 1 on
    phy_offset: int  # of the delayed message
    queue_offset: int  # its offset in the queue of its level


@attrs.frozen(eq=False, repr=False)
class DueMessages(Value):
    """Delayed messages of one level that are due, in the order of its queue."""

    level: int
    queue_offset: int  # of the first
    places: Sequence[tuple[int, int]]  # log offset and size of each record


class NotDelivered(Enum):
    """Why the send worker has not delivered a message."""

    NOT_IN_MEMORY = 1  # its record has to be read from the disk
    UNUSUAL = 2  # it needs a decision, or nothing can be stored now: FastPath.put says why


@attrs.frozen(eq=False, repr=False)
class Delivered(Value):
    """The answer of the send worker to DueMessages."""

    count: int  # delivered, from the first on
    stopped_by: NotDelivered | None  # why the next one is not; None: all are delivered


@attrs.frozen
class FilterPlace:
    """The place of a subscription's filter bits (csrc/ipc/worker_messages.h, rp_filter_place)."""

    id: int  # never given twice
    mark: int  # number of its filter mark
    bit_count: int  # of all filter bits of a message
    positions: tuple[int, ...]


@attrs.frozen(eq=False, repr=False)
class MessageToPut(Value):
    """An internal put: a message that the broker has created or changed. It is stored unchanged."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes  # the property string, including CLUSTER if it applies
    message_flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store: bool = True
    delivery: Delivery | None = None  # stored once, even if it is put several times
    ends_timer: int | None = None  # number of a timer that it cancels or moves; stored only if that one is pending


class TransactionEnd(IntEnum):
    """An action that ends or renews a half message (RP_END_*). END_TRANSACTION has the first two values."""

    COMMIT = 8
    ROLLBACK = 12
    DISCARD = 1  # store it in TRANS_CHECK_MAX_TIME_TOPIC, whose queue 0 must be there
    UNREADABLE = 2  # end it without a look at its record
    RENEW = 3  # store it again at the end of the half queue, where it stays open


@attrs.frozen
class EndTransaction:
    """An end that the manager itself asks for. It is stored once, even if it is asked for several times."""

    action: TransactionEnd
    queue_offset: int  # of the half message
    phy_offset: int


class HalfStates(Protocol):
    """Which half messages are open, by their offset in the half queue (csrc/store/transactions/half_states.h)."""

    @property
    def base(self) -> int:
        """Every half message below it has ended."""

    def move_base(self, base: int) -> None:
        """Every half message below `base` has ended; a smaller one than before changes nothing."""

    def is_open(self, offset: int) -> bool: ...

    def next_open(self, start: int, end: int) -> int:
        """The first open offset in [start, end), or `end`."""

    def count_open(self, start: int, end: int) -> int: ...


class NoHalfStates:
    """Half states of a broker in which there is no half message."""

    base = 0

    def move_base(self, base: int) -> None:
        """Do nothing: there is no half message."""

    def is_open(self, offset: int) -> bool:
        return False

    def next_open(self, start: int, end: int) -> int:
        return end

    def count_open(self, start: int, end: int) -> int:
        return 0


class TimerState(IntEnum):
    """The state of a timer before the put that was to end it."""

    PENDING = 0  # nothing: the put could end it
    GONE = 1  # it was delivered, or there is none with this number
    CHANGED = 2  # it was cancelled or moved lately
    RENEWED = 3  # it was stored again lately, under another number (docs/adr/0110)


@attrs.frozen(eq=False, repr=False)
class PutResult(Value):
    """Result of a put. `code` is the response code: 0, 10, 11, 12 mean stored. Without a record `size` is 0."""

    code: int
    phy_offset: int = -1
    queue_id: int = 0
    queue_offset: int = -1
    size: int = 0
    store_timestamp_ms: int = 0
    message_id: str = ""
    timer_state: TimerState = TimerState.PENDING  # of a put that ends a timer; else PENDING

    @property
    def is_stored(self) -> bool:
        return self.code in (0, 10, 11, 12)

    @property
    def may_be_stored(self) -> bool:
        """Return True if the master has stored the message and was not certain any more that it is the master."""
        return self.code == 14 and self.size > 0

    @property
    def is_final_refusal(self) -> bool:
        """Return True if the put can never be stored: its queue was deleted, or it does not fit the format or a log
        file."""
        return self.code in (13, 17)


class PutUnderWay(Protocol):
    """A put that has begun."""

    async def wait(self) -> PutResult:
        """Wait for the result, including flush (and slave), like a client's send."""


class Completion(Protocol):
    """The end of work that continues even if nobody waits for it."""

    def is_set(self) -> bool: ...

    async def wait(self) -> None: ...


class FastPath(Protocol):
    """The slow path's way to the send, pull and store workers. All calls are ordered and none blocks: while a ring is
    full, messages wait in a bounded backlog."""

    def topic_changed(
        self,
        topic: str,
        *,
        perm: int,
        read_queue_nums: int,
        write_queue_nums: int,
        multi_tag: bool,
        no_send: bool = False,
        slow: bool = False,
    ) -> None:
        """Add or change a topic; its queues are added to the control block first."""

    def topic_removed(self, topic: str) -> None: ...

    def last_delivery(self, level: int) -> Delivery | None:
        """The last delivery of the level that was stored since the start of the broker, by this or a previous
        manager."""

    @property
    def half_states(self) -> HalfStates: ...

    async def end_transaction(self, end: EndTransaction) -> PutResult:
        """End a half message. Returns the code of the answer to END_TRANSACTION; no other field of the result is
        meaningful."""

    def pass_end(self, request: RemotingCommand, header: EndTransactionRequestHeader, channel: Channel) -> bool:
        """Pass a client's END_TRANSACTION to the send worker, which answers it. Returns False: there is no room."""

    def store_settings_changed(self, changes: Mapping[str, str]) -> None:
        """Send changed settings (Java key to text, checked) to the store worker."""

    def delete_queues(self, topic: str, below: int | None = None) -> Completion:
        """Remove the topic as `topic_removed`, and delete its queues; messages at log offset `below` and above it stay.
        Complete when the files are removed."""

    def delete_messages(self, topic: str, below: int) -> None:
        """Delete the topic's messages below a log offset; the topic stays."""

    @property
    def recent_deletions(self) -> Mapping[str, int]:
        """Topics whose messages were deleted lately, and the log offsets below which."""

    async def clean_expired_queues(self) -> None:
        """Remove the files of queues whose records were all deleted from the log; returns when that is done."""

    def group_changed(
        self,
        group: str,
        *,
        consume_enable: bool,
        consume_broadcast_enable: bool,
        broker_id: int,
        which_broker_when_consume_slowly: int,
        is_online: bool,
        is_broadcasting: bool,
    ) -> None: ...

    def group_removed(self, group: str) -> None: ...

    def subscription_changed(
        self,
        group: str,
        topic: str,
        *,
        expression_type: str,
        sub_string: str,
        sub_version: int,
        program: bytes | None = None,
        place: FilterPlace | None = None,
    ) -> None:
        """`program`: of a SQL92 expression; without it the slow path refuses its pulls. `place`: of its filter bits."""

    def subscription_removed(self, group: str, topic: str) -> None: ...

    def filter_changed(self, group: str, topic: str, *, program: bytes, place: FilterPlace) -> None:
        """Write filter bits of this subscription for the messages that are dispatched from now on."""

    def filter_removed(self, group: str, topic: str) -> None: ...

    def broker_changed(self, *, permission: int, max_message_size: int, reject_transactions: bool) -> None:
        """Send the current brokerPermission, maxMessageSize and rejectTransactionMessage to the workers."""

    def tables_end(self) -> None:
        """All table entries are sent: the send and pull workers may start to serve. A new send worker may when the slow
        path has returned the sends of the previous one."""

    async def deliver(self, due: DueMessages) -> Delivered:
        """Store delayed messages in their topics, up to the first that needs the caller. A message that was delivered
        before counts, and is not stored again."""

    async def position(self) -> int:
        """Wait for the end of the log at the time when the send worker has taken all that it was told so far."""

    def resend(
        self,
        request: SendRequest,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        properties: bytes | None = None,
        sys_flag: int | None = None,
    ) -> None:
        """Hand a checked send back; the fast path stores it and answers the client.

        `properties` given: stored exactly as given; else the request's, with CLUSTER appended.
        """

    def complete(self, request: SendRequest) -> None:
        """The slow path has finished a send: it was handed back, put or answered. Called once per SendRequest, at the
        end, so that the fast path serves later sends of the connection again (RP_MSG_COMPLETED)."""

    def repull(self, request: PullRequest, program: bytes | None = None) -> None:
        """Hand a pull back after its group was created; the fast path validates it again. `program`: of the SQL92
        expression that it brings."""

    def begin_put(self, message: MessageToPut) -> PutUnderWay:
        """Begin an internal put, after all earlier ones; the caller waits for its result, once."""

    async def put(self, message: MessageToPut) -> PutResult:
        """begin_put, and wait for the result."""


class SlowPath(Protocol):
    """The requests of the fast path that the broker serves. No call blocks; the sends of one connection keep their
    order."""

    def slow_send(self, request: SendRequest) -> None:
        """Validate a send; ends in exactly one `FastPath.complete(request)`, at once or later."""

    def slow_pull(self, request: PullRequest) -> None:
        """Answer a pull that cannot be served, or create its group and pass it back."""

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int, received_ms: int) -> None:
        """Handle a COMMIT_OFFSET message: the offset that a pull carried, which arrived at `received_ms` (monotonic).

        Such messages are a few milliseconds late: an update that has arrived meanwhile is newer.
        """

    def count_traffic(self, traffic: Traffic) -> None:
        """Handle a TRAFFIC message, for statistics."""

    def finish(self) -> bool:
        """End what waits for another process; called in every turn before this one leaves. Returns: whether every send
        is answered."""

    def connection_closing(self, connection: int) -> None:
        """The connection was closed while a request of it is being served; `connection_closed` follows after that."""

    def connection_closed(self, connection: int) -> None: ...

    def drop_connections(self, is_gone: Callable[[int], bool]) -> Iterator[None]:
        """Drop connections whose selector process has died without sending CLOSED; one per step."""


def command_of(request: SendRequest | PullRequest) -> RemotingCommand:
    """Convert a request of the fast path to the command that is to be answered."""
    return RemotingCommand(
        request.code,
        request.opaque,
        flag=FLAG_ONEWAY if request.is_oneway else 0,
        serialize_type=SerializeType.ROCKETMQ if request.is_rocketmq else SerializeType.JSON,
    )
