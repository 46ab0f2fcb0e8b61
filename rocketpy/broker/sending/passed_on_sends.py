"""Sends that reach a slave are passed on to the master of its group, and the master's answers back.

After a planned change of the master, clients send to the former one until they ask for the route again: official
clients do that every 30 s, and neither an error nor an answer makes them do it sooner. With automatic failover such a
send is passed on, so that no send fails. It is acknowledged when the master has acknowledged it, with the master's
answer. A send that cannot be passed on within KEEP_S is refused with SERVICE_NOT_AVAILABLE.

The sends of a connection go one batch after the other, so they keep their order. Until the master has taken one send of
a batch series, batches have one send: otherwise a later send could be taken although an earlier one was refused.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import ConnectionLost, RequestTimeout, RocketError
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import SendRequest
from rocketpy.remoting.headers.send import PASSED_ON_FIELD, SendMessageRequestHeader

from .. import replies
from ..clock import Clock
from ..property_edits import with_values
from ..replies import push_reply
from .pending_sends import PendingSend, PendingSends

KEEP_S = 2.5  # as RP_SEND_KEEP_MS of send.h: clients wait for 3 s by default
FINISH_S = 0.5  # for answers of the master, when this process is to leave
PAUSE_S = 0.02  # until the master is asked again that refuses, or is looked for again
BATCH_MAX = 32
PASSED_ON = 0x40000000  # of the request's version: it was passed on once, and goes no further (RP_VERSION_PASSED_ON)


class PassingClient(Protocol):
    """The part of transport's RemotingClient that is used here."""

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]: ...


@attrs.define(eq=False)
class PassedOnSends:
    """The sends that a slave of a group passes on to its master. One per broker.

    Args:
        pending: of the slow path, with its bounds.
        refuse: answers a send with a code and a remark.
        master: the master's address for requests; None: it is not known.
    """

    _client: PassingClient
    _clock: Clock
    _pending: PendingSends
    _refuse: Callable[[SendRequest, int, str], None]
    _master: Callable[[], str | None]
    _waiting: dict[int, deque[PendingSend]] = attrs.field(factory=dict)  # by connection, behind a batch under way
    _finish_at: float | None = attrs.field(init=False, default=None)  # of trio's clock; None: not to finish
    _asking: set[trio.CancelScope] = attrs.field(init=False, factory=set)

    def take(self, send: PendingSend, tasks: trio.Nursery) -> None:
        """Pass a send on, behind the earlier ones of its connection."""
        connection = send.request.channel.connection
        queue = self._waiting.get(connection)
        if queue is not None:
            queue.append(send)
            return
        self._waiting[connection] = deque([send])
        tasks.start_soon(self._pass_all, connection)

    def finish(self) -> None:
        """Before this process leaves: refuse what the master does not take at once, and wait FINISH_S for answers. A
        connection may outlive the process (docs/adr/0114), so a send without an answer would wait in vain."""
        if self._finish_at is None:
            self._finish_at = trio.current_time() + FINISH_S
            for scope in self._asking:
                scope.deadline = self._finish_at

    async def _pass_all(self, connection: int) -> None:
        queue, batch_max, was_refused = self._waiting[connection], 1, False
        try:
            while queue:
                batch = [queue.popleft() for _ in range(min(len(queue), batch_max))]
                try:
                    was_refused = not await self._pass(batch, was_refused)
                    batch_max = 1 if was_refused else BATCH_MAX
                except Exception as exc:
                    for send in batch:
                        self._pending.fail(send.request, exc)
                finally:
                    for send in batch:
                        self._pending.end(send)
        finally:
            del self._waiting[connection]
            for send in queue:  # the manager is stopping
                self._pending.end(send)

    async def _pass(self, batch: list[PendingSend], was_refused: bool) -> bool:
        """Pass sends on until each is answered or too old. Before this process leaves each is tried once, and none of a
        connection of which the one before was refused. Returns: whether the master has taken all."""
        left, has_taken_all, is_refused = batch, True, was_refused
        while left:
            late = [send for send in left if self._left_s(send) <= 0 or self._is_over(is_refused)]
            for send in late:
                self._refuse(send.request, ResponseCode.SERVICE_NOT_AVAILABLE, replies.NOT_PASSED_ON)
            left = [send for send in left if send not in late]
            has_taken_all = has_taken_all and not late
            if left:
                left, all_taken = await self._ask(left)
                is_refused = True
                has_taken_all = has_taken_all and all_taken
            if left and not self._is_over(is_refused):
                await trio.sleep(PAUSE_S)
        return has_taken_all

    async def _ask(self, batch: list[PendingSend]) -> tuple[list[PendingSend], bool]:
        """Ask the master once. Returns: the sends that were not sent, or not taken because it is not master; and True
        if it has taken all.

        Sends whose answers are lost may be stored: they are refused, because only the producer knows if a second copy
        is welcome. A master whose lease has ended says the same of a send that it has stored: its answer is passed on.
        """
        master = self._master()
        if master is None:
            return batch, False
        requests = [_request(send.request) for send in batch]
        try:
            answers = await self._invoke(master, requests, min(map(self._left_s, batch)))
        except (ConnectionLost, RequestTimeout):
            for send in batch:
                self._refuse(send.request, ResponseCode.SERVICE_NOT_AVAILABLE, replies.NOT_PASSED_ON)
            return [], False
        except RocketError:
            return batch, False
        left, all_taken = [], True
        for send, answer in zip(batch, answers, strict=True):
            is_fenced = answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            all_taken = all_taken and not is_fenced
            if is_fenced and answer.remark != replies.PERHAPS_STORED:
                left.append(send)
            else:
                fields = (answer.ext_fields or {}) | {PASSED_ON_FIELD: "true"}
                push_reply(send.request, answer.code, answer.remark, fields)
        return left, all_taken

    async def _invoke(
        self, master: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]:
        """Raises RequestTimeout also when this process is to leave and cannot wait any longer."""
        with trio.CancelScope(deadline=math.inf if self._finish_at is None else self._finish_at) as scope:
            self._asking.add(scope)
            try:
                return await self._client.invoke_all(master, requests, timeout_s)
            finally:
                self._asking.discard(scope)
        raise RequestTimeout(f"no answer of {master} before this process leaves")

    def _is_over(self, is_refused: bool) -> bool:
        """Return True if this process is to leave and passes no more sends on."""
        if self._finish_at is None:
            return False
        return is_refused or self._master() is None or trio.current_time() >= self._finish_at

    def _left_s(self, send: PendingSend) -> float:
        return KEEP_S - (self._clock.monotonic_ms() - send.request.received_ms) / 1000


def _request(request: SendRequest) -> RemotingCommand:
    """The request as the client has made it; the reply, if there is to be one, goes through this broker."""
    wait = {"WAIT": "true" if request.wait_store else "false"} if request.has_wait else {}
    header = SendMessageRequestHeader(
        producer_group=request.producer_group,
        topic=request.topic,
        default_topic=request.default_topic,
        default_topic_queue_nums=request.default_topic_queue_nums,
        queue_id=request.queue_id,
        sys_flag=request.sys_flag,
        born_timestamp_ms=request.born_timestamp_ms,
        flag=request.message_flag,
        properties=with_values(request.properties, **wait).decode("utf-8", "surrogateescape"),
        reconsume_times=request.reconsume_times,
        unit_mode=request.unit_mode,
        max_reconsume_times=request.max_reconsume_times,
        batch=request.is_batch,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if request.is_batch else RequestCode.SEND_MESSAGE_V2
    return attrs.evolve(
        RemotingCommand.request(code, header.to_v2(), request.body), version=request.version | PASSED_ON
    )
