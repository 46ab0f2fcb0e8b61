"""`remoting.fast_path.FastPath` over rings: from the manager to the send, pull and store workers.

Each of them has one ordered outbox, so a table entry always arrives before the request that needs it. All current
entries are kept here as records and are sent again to a restarted send or pull worker, which begins with empty tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.config.properties import format_mapping
from rocketpy.message.tags import expression_tags
from rocketpy.native.core import lib
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.ring import Ring, RingReader, WorkerBlock
from rocketpy.reactor.worker_messages import (
    BROKER,
    TABLES_END,
    WorkerMessage,
    connection_of,
    encode_clean_expired,
    encode_completed,
    encode_end_of_client,
    encode_group,
    encode_topic,
    owner_of_pull,
    resolve_pull,
    resolve_send,
    token_of,
)
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.answers import OVERLOAD
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import (
    Delivered,
    Delivery,
    DueMessages,
    EndTransaction,
    FilterPlace,
    HalfStates,
    MessageToPut,
    NoHalfStates,
    NotDelivered,
    PullRequest,
    PutResult,
    SendRequest,
)
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.send import EndTransactionRequestHeader

from .filter_messages import encode_expression, encode_filter, encode_subscription
from .internal_puts import InternalPut, InternalPuts
from .queue_deletion import QueueDeletions, QueueTable
from .shared_memory import DeliveryMarks

TableKey = tuple[str, str]
# The order in which a restarted worker is told. By kind, so that no step looks at what the worker does not take.
TABLES = (
    WorkerMessage.BROKER,
    WorkerMessage.TOPIC,
    WorkerMessage.GROUP,
    WorkerMessage.SUBSCRIPTION,
    WorkerMessage.SETTINGS,
    WorkerMessage.FILTER,
)
NO_EPOCH = 0  # of no worker: they count from 1


Link = tuple[WorkerBlock, Outbox]


@attrs.frozen(eq=False)
class WorkerLinks:
    """The rings between the manager and the workers of the fast path."""

    send: Link
    pulls: Sequence[Link]  # in the order of csrc/ipc/worker.h
    store: Link | None  # for cleaning; None in tests without one
    queries: Sequence[Link] = ()  # they learn of changed settings only
    sends: RingReader | None = None  # by which the send worker diverts sends to the manager; None in tests without one
    requests: Sequence[Ring] = ()  # from decoders to the send and pull workers


@attrs.define(eq=False)
class _FastPathProcess:
    """The way to one send, pull or store worker."""

    block: WorkerBlock
    outbox: Outbox
    takes: frozenset[int]
    epoch: int = attrs.field(init=False)
    owes_end: bool = attrs.field(init=False, default=False)  # it waits for its end mark: it, or the manager, is new
    is_told: bool = attrs.field(init=False, default=True)  # all entries are on their way to it

    def __attrs_post_init__(self) -> None:
        self.epoch = self.block.epoch


class RingFastPath:
    """The manager's way to the send, pull and store workers.

    Args:
        queues: the queue entries of the control block. store_host: brokerIP1 and listenPort, for message ids.
        delivered: delivery marks of delayed messages; None in tests without them. half_states: of half messages; None
        in tests without them.
    """

    def __init__(
        self,
        workers: WorkerLinks,
        *,
        queues: QueueTable,
        store_host: tuple[str, int],
        delivered: DeliveryMarks | None = None,
        half_states: HalfStates | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        common = {WorkerMessage.TOPIC, WorkerMessage.BROKER}
        send, store, sends = workers.send, workers.store, workers.sends
        self._send = _FastPathProcess(*send, frozenset(common))
        of_pulls = frozenset(common | {WorkerMessage.GROUP, WorkerMessage.SUBSCRIPTION})
        self._pulls = [_FastPathProcess(*pull, of_pulls) for pull in workers.pulls]
        queried = [_FastPathProcess(*query, frozenset({WorkerMessage.SETTINGS})) for query in workers.queries]
        self._with_tables = [self._send, *self._pulls, *queried]
        self._store = None if store is None else _FastPathProcess(*store, frozenset({WorkerMessage.FILTER}))
        self._with_end = [self._send, *self._pulls, *(stores := [] if self._store is None else [self._store])]
        self._all = [*self._with_tables, *stores]
        self._queues = queues
        self._tables: dict[int, dict[TableKey, bytes]] = {kind: {} for kind in TABLES}
        self._puts = InternalPuts(self._send.outbox, store_host, now_ns)
        self._deletions = QueueDeletions(queues, send[1], None if store is None else store[1], now_ns)
        self.delete_messages, self.recent_deletions = self._deletions.begin_below, self._deletions.recent
        self.position = self._deletions.position
        self._expired: trio.Event | None = None  # set when CLEAN_EXPIRED is answered
        self._store_settings: dict[str, str] = {}  # changed since the start of the manager
        self._delivered = delivered
        self.half_states = half_states or NoHalfStates()
        self._sends, self._requests = sends, workers.requests
        self._sends_from = 0 if sends is None else sends.position
        self._are_tables_whole = False
        self._incomplete: dict[int, tuple[int, int]] = {}  # connection -> (sends on the slow path, token of the last)
        self._enter(WorkerMessage.FILTER, "", "", encode_filter("", ""))  # removes those of the previous manager

    # -- tables

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
        self._deletions.created(topic)
        self._queues.add_queues(topic.encode(), max(read_queue_nums, write_queue_nums))
        flags = multi_tag * lib.RP_TOPIC_MULTI_TAG | no_send * lib.RP_TOPIC_NO_SEND | slow * lib.RP_TOPIC_SLOW
        record = encode_topic(
            topic, flags=flags, perm=perm, read_queue_nums=read_queue_nums, write_queue_nums=write_queue_nums
        )
        self._enter(WorkerMessage.TOPIC, topic, "", record)

    def topic_removed(self, topic: str) -> None:
        self._remove(WorkerMessage.TOPIC, topic, "", encode_topic(topic, flags=lib.RP_TABLE_REMOVE))

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
    ) -> None:
        flags = (
            consume_enable * lib.RP_GROUP_CONSUME_ENABLE
            | consume_broadcast_enable * lib.RP_GROUP_BROADCAST_ENABLE
            | is_online * lib.RP_GROUP_ONLINE
            | is_broadcasting * lib.RP_GROUP_BROADCASTING
        )
        record = encode_group(
            group, flags=flags, broker_id=broker_id, which_broker_when_slow=which_broker_when_consume_slowly
        )
        self._enter(WorkerMessage.GROUP, group, "", record)

    def group_removed(self, group: str) -> None:
        self._remove(WorkerMessage.GROUP, group, "", encode_group(group, flags=lib.RP_TABLE_REMOVE))

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
        is_tag = expression_type in ("", "TAG")
        tags = expression_tags(sub_string) if is_tag else None
        flags = lib.RP_SUBSCRIPTION_ALL if tags is None else 0
        if not is_tag and program is None:
            flags = lib.RP_SUBSCRIPTION_SLOW
        record = encode_subscription(
            group, topic, flags=flags, sub_version=sub_version, tags=tags or (), program=program or b"", place=place
        )
        self._enter(WorkerMessage.SUBSCRIPTION, group, topic, record)

    def subscription_removed(self, group: str, topic: str) -> None:
        record = encode_subscription(group, topic, flags=lib.RP_TABLE_REMOVE)
        self._remove(WorkerMessage.SUBSCRIPTION, group, topic, record)

    def filter_changed(self, group: str, topic: str, *, program: bytes, place: FilterPlace) -> None:
        self._enter(WorkerMessage.FILTER, group, topic, encode_filter(group, topic, program=program, place=place))

    def filter_removed(self, group: str, topic: str) -> None:
        self._remove(WorkerMessage.FILTER, group, topic, encode_filter(group, topic, flags=lib.RP_TABLE_REMOVE))

    def broker_changed(self, *, permission: int, max_message_size: int, reject_transactions: bool) -> None:
        record = BROKER.write(
            permission=permission, max_message_size=max_message_size, reject_transactions=reject_transactions
        )
        self._enter(WorkerMessage.BROKER, "", "", record)

    def tables_end(self) -> None:
        self._are_tables_whole = True
        for process in self._with_end:
            process.owes_end = True
        self._end_tables_where_due()
        if self._send.owes_end:  # one that is not new learns at once which sends the previous manager has lost
            self._put_tables_end(self._send, epoch=NO_EPOCH)

    def _enter(self, kind: WorkerMessage, name: str, second: str, record: bytes) -> None:
        self._tables[kind][name, second] = record
        self._tell(kind, record)

    def _remove(self, kind: WorkerMessage, name: str, second: str, record: bytes) -> None:
        self._tables[kind].pop((name, second), None)
        self._tell(kind, record)

    def _tell(self, kind: WorkerMessage, record: bytes) -> None:
        for process in self._all:
            if kind in process.takes:
                process.outbox.put(kind, record, always=True)

    def _repeat_tables(self, process: _FastPathProcess) -> None:
        """A restarted worker has empty tables: send all entries again, in steps, and the end mark last.

        The end mark lets it serve its codecs. It stands after the changes made while the worker was told: a permission
        that was taken away must not be used again. A restarted send worker does not know which connections have sends
        at the manager. So it gets the mark when all of those have been returned; otherwise later sends would overtake
        them. The same holds when the manager was restarted, because the send worker may have been too.
        """
        process.owes_end, process.is_told = process in self._with_end, False
        process.outbox.put_all(self._entries(process))

    def _entries(self, process: _FastPathProcess) -> Iterator[tuple[int, bytes]]:
        """Yield the entries that the tables hold when its turn comes; later changes are told after them."""
        for kind, table in self._tables.items():
            for key in list(table) if kind in process.takes else ():
                record = table.get(key)
                if record is not None:
                    yield kind, record
        process.is_told = True

    def _end_tables_where_due(self) -> None:
        for process in self._with_end:
            is_due = self._are_tables_whole and process.owes_end and process.is_told
            if is_due and (process is not self._send or self._is_completed()):
                process.owes_end = False
                self._put_tables_end(process, process.epoch)

    def _is_completed(self) -> bool:
        """All sends that the send worker left to the manager have been returned."""
        return not self._incomplete and (self._sends is None or self._sends.is_empty())

    def _put_tables_end(self, process: _FastPathProcess, epoch: int) -> None:
        record = TABLES_END.write(sends_from=self._sends_from, epoch=epoch)
        process.outbox.put(WorkerMessage.TABLES_END, record, always=True)

    # -- requests

    def resend(
        self,
        request: SendRequest,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        properties: bytes | None = None,
        sys_flag: int | None = None,
    ) -> None:
        record = resolve_send(request, topic=topic, queue_id=queue_id, properties=properties, sys_flag=sys_flag)
        if not self._send.outbox.put(WorkerMessage.SEND, record):
            self._refuse(request)

    def send_arrived(self, request: SendRequest) -> None:
        """A send has arrived on the slow path; it will be completed."""
        connection = connection_of(request.raw)
        count, last = self._incomplete.get(connection, (0, 0))
        self._incomplete[connection] = count + 1, max(last, token_of(request.raw))

    def complete(self, request: SendRequest) -> None:
        connection = connection_of(request.raw)
        count, last = self._incomplete.pop(connection, (1, token_of(request.raw)))
        if count > 1:
            self._incomplete[connection] = count - 1, last
            return
        self._send.outbox.put(WorkerMessage.COMPLETED, encode_completed(request.raw, last), always=True)
        self._end_tables_where_due()

    def repull(self, request: PullRequest, program: bytes | None = None) -> None:
        owner = owner_of_pull(request.raw, len(self._pulls))
        if program is not None:
            record = encode_expression(request.raw, program)
            if not self._pulls[owner].outbox.put(WorkerMessage.EXPRESSION, record):
                return self._refuse(request)
        if not self._pulls[owner].outbox.put(WorkerMessage.PULL, resolve_pull(request)):
            self._refuse(request)

    def _refuse(self, request: SendRequest | PullRequest) -> None:
        if request.is_oneway:
            return
        response = RemotingCommand.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        response.opaque = request.opaque
        response.serialize_type = SerializeType.ROCKETMQ if request.is_rocketmq else SerializeType.JSON
        request.channel.push(response)

    def last_delivery(self, level: int) -> Delivery | None:
        return None if self._delivered is None else self._delivered.last(level)

    def begin_put(self, message: MessageToPut) -> InternalPut:
        return self._puts.begin(message)

    async def put(self, message: MessageToPut) -> PutResult:
        return await self._puts.begin(message).wait()

    async def deliver(self, due: DueMessages) -> Delivered:
        result = await self._puts.begin(due).wait()
        if result.code == ResponseCode.SUCCESS:
            return Delivered(len(due.places), None)
        is_answered = result.queue_offset >= due.queue_offset  # it is not, if the send worker was restarted meanwhile
        is_cold = is_answered and result.code == ResponseCode.SYSTEM_BUSY
        reason = NotDelivered.NOT_IN_MEMORY if is_cold else NotDelivered.UNUSUAL
        return Delivered(max(0, result.queue_offset - due.queue_offset), reason)

    async def end_transaction(self, end: EndTransaction) -> PutResult:
        return await self._puts.begin(end).wait()

    def pass_end(self, request: RemotingCommand, header: EndTransactionRequestHeader, channel: Channel) -> bool:
        record = encode_end_of_client(request, header, channel, time.monotonic_ns())
        return self._send.outbox.put(WorkerMessage.END_TRANSACTION, record)

    def store_settings_changed(self, changes: Mapping[str, str]) -> None:
        self._store_settings.update(changes)
        self._tell_store_settings()
        self._enter(WorkerMessage.SETTINGS, "", "", self._settings_record())

    def _tell_store_settings(self) -> None:
        if self._store is not None and self._store_settings:
            self._store.outbox.put(WorkerMessage.SETTINGS, self._settings_record(), always=True)

    def _settings_record(self) -> bytes:
        return format_mapping(self._store_settings).encode()

    def delete_queues(self, topic: str, below: int | None = None) -> trio.Event:
        self.topic_removed(topic)  # may be a repetition: the previous manager may have died before it
        return self._deletions.begin(topic, below)

    async def clean_expired_queues(self) -> None:
        if self._store is None:
            return
        if self._expired is None:
            self._expired = trio.Event()
            self._store.outbox.put(WorkerMessage.CLEAN_EXPIRED, encode_clean_expired(), always=True)
        await self._expired.wait()

    # -- the server's side

    def put_finished(self, record: bytes) -> None:
        """Handle a PUT_RESULT: the result of a put, or the position that a deletion has requested."""
        if not self._deletions.position_is(record):
            self._puts.finished(record)

    def cleaned(self, record: bytes) -> None:
        """Handle a CLEANED; `record` is the request that it answers."""
        self._deletions.cleaned(record)
        if self._expired is not None and record == encode_clean_expired():
            self._expired.set()
            self._expired = None

    def turn(self) -> bool:
        """Write out backlogs, and check whether a send or pull worker was restarted. Returns True if there is more to
        write at once."""
        is_busy = False
        for process in self._with_tables:
            if process.block.epoch != process.epoch:
                process.epoch = process.block.epoch
                self._repeat_tables(process)
                if process is self._send:
                    self._puts.send_process_replaced()
                    self._deletions.ask_positions_again()
            is_busy = process.outbox.flush() or is_busy
        self._end_tables_where_due()
        if self._store is not None:
            if self._store.block.epoch != self._store.epoch:
                self._store.epoch = self._store.block.epoch
                self._repeat_tables(self._store)
                self._tell_store_settings()
                self._deletions.ask_store_again()
                if self._expired is not None:
                    self._store.outbox.put(WorkerMessage.CLEAN_EXPIRED, encode_clean_expired(), always=True)
            self._store.outbox.flush()
        return is_busy

    def is_idle(self) -> bool:
        """All backlogs are empty, no put waits for its result, and no request waits for a send or pull worker."""
        return (
            self._puts.is_empty()
            and all(process.outbox.is_empty() for process in self._all)
            and all(ring.depth_bytes == 0 for ring in self._requests)
        )
