"""What crosses between the fast path (C) and the slow path (Python): values of the messages between workers of
csrc/ipc/worker_messages.h.

The send and pull processes serve what needs no decision. Everything else arrives here as a SendRequest or PullRequest;
the broker answers it itself or hands it back, checked and rewritten, through a FastPath. The broker owns the tables and
tells the send and pull processes every change, in order, through the same FastPath.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import attrs

from .abc import Channel


@attrs.frozen
class SendRequest:
    """A send as the codec read it: both header forms, unescaped. Properties are without WAIT and without CLUSTER."""

    channel: Channel
    opaque: int
    code: int
    version: int
    received_ms: int  # monotonic
    is_oneway: bool
    is_rocketmq: bool  # answer in the ROCKETMQ serialisation
    is_batch: bool
    wait_store: bool
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
    raw: bytes = attrs.field(repr=False)  # the message between workers itself, for handing it back unchanged


@attrs.frozen
class PullRequest:
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


@attrs.frozen
class Delivery:
    """That a delayed message is stored again; offsets of a level's messages rise from one to the next."""

    level: int  # from 1 on
    phy_offset: int  # of the delayed message
    queue_offset: int  # its place in the queue of its level


@attrs.frozen
class MessageToPut:
    """A message of the broker's own making, or one it has rewritten: stored exactly as it stands."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes  # the property string, with CLUSTER where it belongs
    message_flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store: bool = True
    delivery: Delivery | None = None  # stored once, however often it is put


@attrs.frozen
class PutResult:
    """Outcome of a put. `code` is the response code: 0, 10, 11, 12 mean stored."""

    code: int
    phy_offset: int = -1
    queue_id: int = 0
    queue_offset: int = -1
    size: int = 0
    store_timestamp_ms: int = 0
    message_id: str = ""

    @property
    def is_stored(self) -> bool:
        return self.code in (0, 10, 11, 12)

    @property
    def is_final_refusal(self) -> bool:
        """The same put will never be stored: its queue is gone, or it does not fit the format or a log file."""
        return self.code in (13, 17)


class PutUnderWay(Protocol):
    """A put that has its place in the order."""

    async def wait(self) -> PutResult:
        """The outcome; waits for flush (and slave) as a client's send would."""


class Completion(Protocol):
    """Of something that goes on whether it is waited for or not."""

    def is_set(self) -> bool: ...

    async def wait(self) -> None: ...


class FastPath(Protocol):
    """The slow path's way to the send and pull processes. All calls are ordered; none blocks (rings that are full are
    waited for by a task of the lane, within a bound)."""

    def topic_changed(
        self,
        topic: str,
        *,
        perm: int,
        read_queue_nums: int,
        write_queue_nums: int,
        order: bool,
        multi_tag: bool,
        no_send: bool = False,
        slow: bool = False,
    ) -> None:
        """The topic exists from now on with these settings; its queues are entered in the control block first."""

    def topic_removed(self, topic: str) -> None: ...

    def last_delivery(self, level: int) -> Delivery | None:
        """The last one of the level that was stored since the broker has been running, by whichever manager."""

    def store_settings_changed(self, changes: Mapping[str, str]) -> None:
        """Settings (Java key to text, checked) that the store follows while it runs."""

    def delete_queues(self, topic: str) -> Completion:
        """Delete what the topic's queues hold, as `topic_removed`. Complete when their files are removed."""

    async def clean_expired_queues(self) -> None:
        """Have the store remove the files of queues of which the log has nothing left; returns when that is done."""

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
        self, group: str, topic: str, *, expression_type: str, sub_string: str, sub_version: int
    ) -> None: ...

    def subscription_removed(self, group: str, topic: str) -> None: ...

    def broker_changed(self, *, permission: int, max_message_size: int) -> None:
        """brokerPermission and maxMessageSize from now on."""

    def tables_end(self) -> None:
        """The tables are complete: send and pull processes may start to serve."""

    def resend(
        self,
        request: SendRequest,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        properties: bytes | None = None,
        sys_flag: int | None = None,
    ) -> None:
        """Hand a send back as checked; the fast path stores it and answers the client.

        `properties` given: stored exactly as given; else the request's, with CLUSTER appended.
        """

    def complete(self, request: SendRequest) -> None:
        """The send that was left to us is dealt with: resent, put or answered. Called once per SendRequest, last of
        all, so that the fast path takes the connection's later sends again (RP_MSG_COMPLETED)."""

    def repull(self, request: PullRequest) -> None:
        """Hand a pull back after what it lacked was created (auto-created group); validated anew by the fast path."""

    def begin_put(self, message: MessageToPut) -> PutUnderWay:
        """Store a message of our own, behind those that have begun before; the caller waits for the outcome, once."""

    async def put(self, message: MessageToPut) -> PutResult:
        """begin_put and its outcome."""


class SlowPath(Protocol):
    """What the broker takes from the fast path. Nothing blocks; the sends of one connection keep their order inside."""

    def slow_send(self, request: SendRequest) -> None:
        """Validate a send; ends in exactly one `FastPath.complete(request)`, at once or later."""

    def slow_pull(self, request: PullRequest) -> None:
        """Answer a pull that cannot be served, or create what it lacks and hand it back."""

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int, received_ms: int) -> None:
        """A COMMIT_OFFSET record: the offset that came along with a pull, which arrived at `received_ms` (monotonic).

        Such records are a few milliseconds late; what a client has told us since is newer.
        """

    def connection_closing(self, connection: int) -> None:
        """The connection has gone while a request of it is being served; `connection_closed` follows that."""

    def connection_closed(self, connection: int) -> None: ...

    def drop_connections(self, is_gone: Callable[[int], bool]) -> Iterator[None]:
        """Connections have gone without a word, with the process that owned them; one for each step."""
