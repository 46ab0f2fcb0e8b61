"""Message trace of a client: tells in the trace topic what was sent and what handlers made of messages.

Nothing waits for traces, since they are worth less than what they are about. They gather for half a second. They are
dropped when too many wait or when they cannot be sent; a line in the log says how many.
Source: RocketMQ 4.9 `AsyncTraceDispatcher`, `SendMessageTraceHookImpl`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping

import attrs

from rocketpy import aio
from rocketpy.errors import MessageInvalid, RocketError
from rocketpy.logs import LogLimit
from rocketpy.message import properties as names
from rocketpy.message.host import format_host
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.names import without_namespace
from rocketpy.message.trace import EndTransaction, MessageKind, Pub, SubAfter, SubBefore, TraceRecord
from rocketpy.remoting.headers.send import EndTransactionRequestHeader

from .cluster.lifetime import Open
from .messages import Message
from .options import ClientOptions, ProducerOptions
from .results import SendResult
from .sending.send_loop import SendBudget, SendLoop
from .sending.sender import OutgoingMessage, Sender

logger = logging.getLogger(__name__)

WAITING_MAX = 4096  # records
BODY_MAX = 118_000  # bytes of a trace message; Java's
KEYS_MAX = 16_000  # bytes; the properties of a message must be less than 32 768
GATHER_S = 0.5
LAST_FLUSH_S = 0.5  # how long leaving waits for traces
SEND_TIMEOUT_S, SEND_ATTEMPTS = 5.0, 3
GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"
STATES_OF_JAVA = {8: "COMMIT_MESSAGE", 12: "ROLLBACK_MESSAGE", 0: "UNKNOW"}  # by commitOrRollback


@attrs.define(eq=False)
class TraceWriter:
    """Sends trace records in the background, over the client's own connections."""

    topic: str
    sends: SendLoop
    namespace: str = ""  # left out of the records
    _waiting: deque[TraceRecord] = attrs.field(factory=deque)
    _written: aio.Event = attrs.field(factory=aio.Event)
    _log_limit: LogLimit = attrs.field(factory=LogLimit)

    @classmethod
    def opened(cls, opened: Open, group: str, kind: str, options: ClientOptions) -> TraceWriter | None:
        """The writer of an open client, with its task; None unless the options ask for one.

        Args:
            kind: PRODUCE or CONSUME, for the name of the producer group that Java uses.
        """
        if not options.trace:
            return None
        own = ProducerOptions.of_client(options)
        sender = Sender(opened.instance, f"{GROUP_PREFIX}{group}-{kind}-1", own, opened.next_id)
        writer = cls(options.trace_topic, SendLoop(sender, own, opened.instance.rng), options.namespace_in_use)
        opened.nursery.start_soon(writer.run)
        return writer

    def write(self, records: Iterable[TraceRecord]) -> None:
        """Keep records to be sent soon. Never waits."""
        for record in records:
            if len(self._waiting) >= WAITING_MAX:
                self._dropped(1, f"{WAITING_MAX} are waiting")
                continue
            self._waiting.append(shown(record, self.namespace))
        self._written.set()

    async def run(self) -> None:
        while True:
            await self._written.wait()
            self._written = aio.Event()
            await aio.sleep(GATHER_S)
            await self.flush()

    async def close(self) -> None:
        """Send what waits, within a time."""
        with aio.move_on_after(LAST_FLUSH_S):
            await self.flush()

    async def flush(self) -> None:
        """Send what waits; what cannot be sent is dropped."""
        while self._waiting:
            message, count = self._next_message()
            try:
                outgoing = self.sends.sender.prepare(message)
                await self.sends.send(outgoing, SendBudget(SEND_TIMEOUT_S, SEND_ATTEMPTS, aio.now_s()))
            except RocketError as error:
                self._dropped(count, str(error))

    def _next_message(self) -> tuple[Message, int]:
        """As many of the waiting records as one message may hold, and their number; at least one."""
        body, keys, keys_size, count = bytearray(), dict[str, None](), 0, 0
        while self._waiting:
            record = self._waiting[0]
            text = record.encode().encode()
            new = [key for key in (record.msg_id, *record.keys.split(names.KEY_SEPARATOR)) if key and key not in keys]
            size = sum(len(key.encode()) + 1 for key in new)
            if count and (len(body) + len(text) > BODY_MAX or keys_size + size > KEYS_MAX):
                break
            self._waiting.popleft()
            body += text
            keys.update(dict.fromkeys(new))
            keys_size += size
            count += 1
        return Message(self.topic, bytes(body), keys=tuple(keys)), count

    def _dropped(self, count: int, why: str) -> None:
        if told := self._log_limit.take(count=count):
            logger.warning("%d trace records for topic %s were dropped: %s", told, self.topic, why)


def shown(record: TraceRecord, namespace: str) -> TraceRecord:
    """Return a record with the names that users know, as the reference writes them."""
    if not namespace:
        return record
    record = attrs.evolve(record, group=without_namespace(record.group, namespace))
    if isinstance(record, SubBefore | SubAfter):
        return record
    return attrs.evolve(record, topic=without_namespace(record.topic, namespace))


def sends_of(group: str, message: OutgoingMessage, result: SendResult, begin_ms: int, cost_ms: int) -> list[Pub]:
    """The traces of a send, one per message of a batch; none if the broker does not want any."""
    if not result.trace_on:
        return []
    offset_ids = result.offset_msg_id.split(",")
    return [
        Pub(
            timestamp_ms=begin_ms,
            region_id=result.region_id,
            group=group,
            topic=message.topic,
            msg_id=msg_id,
            tags=message.properties.get(names.TAGS, ""),
            keys=message.properties.get(names.KEYS, ""),
            store_host=_store_host(offset_ids[0]),
            body_size=len(message.body),
            cost_ms=cost_ms,
            kind=_kind(message),
            offset_msg_id=offset_ids[min(index, len(offset_ids) - 1)],
            is_success=True,
        )
        for index, msg_id in enumerate(message.msg_id.split(","))
    ]


def end_of(
    header: EndTransactionRequestHeader,
    topic: str,
    properties: Mapping[str, str],
    store_host: str,
    region_id: str,
    now_ms: int,
) -> EndTransaction:
    """The trace of what a producer tells the broker about a transaction.

    Source: RocketMQ 4.9 `EndTransactionTraceHookImpl`.
    """
    return EndTransaction(
        timestamp_ms=now_ms,
        region_id=region_id,
        group=header.producer_group,
        topic=topic,
        msg_id=header.msg_id or "",
        tags=properties.get(names.TAGS, ""),
        keys=properties.get(names.KEYS, ""),
        store_host=store_host,
        kind=MessageKind.TRANSACTION_COMMIT,
        transaction_id=header.transaction_id or header.msg_id or "",
        state=STATES_OF_JAVA[header.commit_or_rollback],
        is_checked=header.from_transaction_check,
    )


def _kind(message: OutgoingMessage) -> MessageKind:
    if message.properties.get(names.TRAN_MSG) == "true":
        return MessageKind.TRANSACTION_HALF
    return MessageKind.DELAY if names.DELAY in message.properties else MessageKind.NORMAL


def _store_host(offset_msg_id: str) -> str:
    try:
        return format_host(decode_offset_message_id(offset_msg_id).store_host)
    except MessageInvalid:
        return ""
