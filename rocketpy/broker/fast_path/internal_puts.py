"""Internal puts: messages that the manager itself stores through the send worker, and their results.

Puts are stored in the order in which they begin, not in the order in which tasks wait for them. So two messages of one
connection that are stored in another topic (delayed messages, dead letters) keep their order. At most PUTS_MAX are in
flight; later ones wait here in order. Callers bound how many can wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import LocalProtocolError
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.worker_messages import (
    WorkerMessage,
    decode_put_result,
    encode_deliver,
    encode_end,
    encode_put,
    with_token,
)
from rocketpy.remoting.fast_path import DueMessages, EndTransaction, MessageToPut, PutResult

logger = logging.getLogger(__name__)

PUTS_MAX = 4096
PUT_TIMEOUT_S = 15.0  # longer than any flush or replication timeout: then the send worker is dead


@attrs.define(eq=False)
class InternalPut:
    """One put. `wait()` returns its result, once."""

    kind: WorkerMessage
    record: bytes  # the ring message without its token
    name: str  # for the log
    queue_id: int
    is_repeatable: bool  # to repeat it stores nothing twice
    _owner: InternalPuts
    token: int = attrs.field(init=False, default=0)  # 0: not sent yet
    _finished: trio.Event = attrs.field(init=False, factory=trio.Event)
    _result: PutResult | None = attrs.field(init=False, default=None)

    def finish(self, result: PutResult) -> None:
        self._result = result
        self._finished.set()

    async def wait(self) -> PutResult:
        """Wait for the result. SYSTEM_BUSY: not sent, the send worker is too slow. SYSTEM_ERROR: no result within
        PUT_TIMEOUT_S, because the send worker died; the message may have been stored."""
        try:
            with trio.move_on_after(PUT_TIMEOUT_S):
                await self._finished.wait()
            if self._result is not None:
                return self._result
            code = ResponseCode.SYSTEM_ERROR if self.token else ResponseCode.SYSTEM_BUSY
            return PutResult(code, queue_id=self.queue_id)
        finally:
            self._owner.forget(self)


class InternalPuts:
    """All puts that have begun and not ended.

    Args:
        outbox: the way to the send worker. store_host: brokerIP1 and listenPort, for message ids.
    """

    def __init__(self, outbox: Outbox, store_host: tuple[str, int], now_ns: Callable[[], int]) -> None:
        self._outbox = outbox
        self._store_host = store_host
        self._now_ns = now_ns
        self._last_token = now_ns()  # above all tokens of previous managers, whose results may still arrive
        self._under_way: dict[int, InternalPut] = {}  # by token
        self._waiting: deque[InternalPut] = deque()

    def is_empty(self) -> bool:
        return not self._under_way and not self._waiting

    def begin(self, message: MessageToPut | EndTransaction | DueMessages) -> InternalPut:
        """Begin a put, the end of a transaction or deliveries, after all earlier ones. Never blocks.

        Raises: OverflowError (a number beyond its field); nothing has begun then.
        """
        if isinstance(message, EndTransaction):
            record, name = encode_end(message, 0, self._now_ns()), f"the end of half message {message.queue_offset}"
            put = InternalPut(WorkerMessage.END_TRANSACTION, record, name, 0, True, self)
        elif isinstance(message, DueMessages):
            record, name = encode_deliver(message, 0), f"the delayed messages of level {message.level}"
            put = InternalPut(WorkerMessage.DELIVER, record, name, message.level - 1, True, self)
        else:
            record, name = encode_put(message, 0, self._now_ns()), f"an internal message of topic {message.topic}"
            is_repeatable = message.delivery is not None or message.ends_timer is not None
            put = InternalPut(WorkerMessage.SEND, record, name, message.queue_id, is_repeatable, self)
        self._waiting.append(put)
        self._send_waiting()
        return put

    def finished(self, record: bytes) -> None:
        """Handle a PUT_RESULT. It is dropped if its put has ended."""
        token, result = decode_put_result(record, self._store_host)
        put = self._under_way.get(token)
        if put is not None:
            put.finish(result)

    def send_process_replaced(self) -> None:
        """The send worker was restarted: results of puts in flight may be lost. Deliveries of delayed messages,
        changes of timers and ends of transactions end here, because only they can be repeated without storing a
        message twice."""
        for put in self._under_way.values():
            if put.is_repeatable:
                put.finish(PutResult(ResponseCode.SYSTEM_BUSY, queue_id=put.queue_id))

    def forget(self, put: InternalPut) -> None:
        """Stop waiting for the result of a put."""
        if put.token:
            self._under_way.pop(put.token, None)
        else:
            self._waiting.remove(put)
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and len(self._under_way) < PUTS_MAX:
            put = self._waiting.popleft()
            self._last_token += 1
            put.token = self._last_token
            self._under_way[put.token] = put
            try:
                code = None if self._send(put) else ResponseCode.SYSTEM_BUSY
            except LocalProtocolError as exc:
                logger.error("cannot store %s: %s", put.name, exc)
                code = ResponseCode.MESSAGE_ILLEGAL
            if code is not None:
                put.finish(PutResult(code, queue_id=put.queue_id))

    def _send(self, put: InternalPut) -> bool:
        return self._outbox.put(put.kind, with_token(put.kind, put.record, put.token))
