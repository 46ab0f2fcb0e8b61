"""The reactor's side of a manager process: rings in, pools of trio tasks, answers out.

    doorbell -> drain rings in batches -> COMMAND: pool by request code -> Processor -> reply ring of the selector
                                       -> SEND, PULL, COMMIT_OFFSET: SlowLane    PUT_RESULT, CLEANED: HotLane
                                       -> CLOSED: listeners, once the connection's requests are served

Bounds: a pool's queue (full: SYSTEM_BUSY at once), an outbox per selector (channel.py), a batch per ring and turn.
Order: the requests of one connection reach their pool in order; a pool of one task also serves them in order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import LocalProtocolError, RocketError
from rocketpy.native.core import lib
from rocketpy.remoting.abc import ConnectionListener, Processor
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.hot_lane import SlowLane

from .channel import Gateway, RingChannel
from .dispatch import SERVED_ON_MAIN_PORT_ONLY, DispatchTable, Pool
from .hot_lane import RingHotLane
from .ring import Ring, RingReader, WorkerBlock
from .stage import ORIGIN, Origin, Stage, decode_commit_offset, decode_origin, decode_pull, decode_send

BATCH_RECORDS = 256  # of one ring, before the others and the pools have their turn
TURN_S = 1.0
STOP_TURN_S = 0.01  # while the last requests are being served
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Connection:
    """One that has sent commands: kept until CLOSED has come and its last request is served."""

    channel: RingChannel
    in_service: int = 0
    is_closed: bool = False


@attrs.frozen(eq=False)
class _Job:
    request: RemotingCommand
    connection: _Connection
    received_ns: int


@attrs.define(eq=False)
class _Queue:
    pool: Pool
    send: trio.MemorySendChannel[_Job]
    receive: trio.MemoryReceiveChannel[_Job]


@attrs.define(eq=False, kw_only=True)
class ProcessorServer:
    """Serves one manager process until its block is ordered to stop and everything is answered.

    Args:
        processors: by request code; a code that is not here is answered REQUEST_CODE_NOT_SUPPORTED.
        slow_lane: takes what the hot lane leaves to Python; None in managers other than the first.
        manager: this process's number; it runs the pools that live there.
        drain_after: rings of the hot processes; while they hold anything, more may be left to us, so we do not leave.
    """

    block: WorkerBlock
    inputs: Sequence[RingReader]
    gateway: Gateway
    processors: Mapping[int, Processor]
    table: DispatchTable = attrs.field(factory=DispatchTable)
    manager: int = 0
    slow_lane: SlowLane | None = None
    hot_lane: RingHotLane | None = None
    listeners: Sequence[ConnectionListener] = ()
    drain_after: Sequence[Ring] = ()
    now_ns: Callable[[], int] = time.monotonic_ns
    _connections: dict[int, _Connection] = attrs.field(init=False, factory=dict)
    _queues: dict[str, _Queue] = attrs.field(init=False, factory=dict)
    _in_service: int = attrs.field(init=False, default=0)

    async def run(self) -> None:
        """Serve; the nursery of the pools' tasks lives here."""
        async with trio.open_nursery() as nursery:
            for pool in self.table.pools_of_manager(self.manager):
                queue = _Queue(pool, *trio.open_memory_channel[_Job](pool.queue_max))
                self._queues[pool.name] = queue
                for _ in range(pool.tasks):
                    nursery.start_soon(self._serve_pool, queue)
            await self._pump()
            for queue in self._queues.values():
                queue.send.close()

    def queue_depths(self) -> dict[str, tuple[int, int]]:
        """Requests that wait and their bound, by pool; for statistics."""
        return {name: (len_of(queue), queue.pool.queue_max) for name, queue in self._queues.items()}

    # -- records

    async def _pump(self) -> None:
        while True:
            moved = self.turn()
            if moved:
                await trio.lowlevel.checkpoint()
                continue
            if self.block.stop and self._is_drained():
                return
            self.block.prepare_sleep()
            if all(reader.is_empty() for reader in self.inputs):
                with trio.move_on_after(STOP_TURN_S if self.block.stop else TURN_S):
                    await trio.lowlevel.wait_readable(self.block.doorbell)
            self.block.awake()

    def turn(self) -> bool:
        """Take a batch from every ring and move what waits to go out; False: there was nothing to take."""
        moved = False
        for reader in self.inputs:
            for _ in range(BATCH_RECORDS):
                found = reader.read()
                if found is None:
                    break
                moved = True
                self._take(*found)
        self.gateway.flush()
        if self.hot_lane is not None:
            self.hot_lane.turn()
        self.block.beat(self.now_ns())
        self.block.add(lib.RP_COUNT_LOOPS)
        return moved

    def _is_drained(self) -> bool:
        return (
            self._in_service == 0
            and all(ring.depth_bytes == 0 for ring in self.drain_after)
            and all(reader.is_empty() for reader in self.inputs)
            and self.gateway.is_empty()
            and (self.hot_lane is None or self.hot_lane.is_idle())
        )

    def _take(self, kind: int, record: bytes) -> None:
        if kind == Stage.COMMAND:
            self._take_command(decode_origin(record), record)
        elif kind == Stage.CLOSED:
            self._take_closed(decode_origin(record).connection)
        elif kind == Stage.SEND and self.slow_lane is not None:
            self._take_send(self.slow_lane, record)
        elif kind == Stage.PULL and self.slow_lane is not None:
            self._take_pull(self.slow_lane, record)
        elif kind == Stage.COMMIT_OFFSET and self.slow_lane is not None:
            self.slow_lane.commit_offset(*decode_commit_offset(record))
        elif kind == Stage.PUT_RESULT and self.hot_lane is not None:
            self.hot_lane.put_finished(record)
        elif kind == Stage.CLEANED and self.hot_lane is not None:
            self.hot_lane.cleaned(record)
        else:
            raise LocalProtocolError(f"{self.block.name} cannot take a stage record of type {kind}")

    def _channel(self, origin: Origin) -> RingChannel:
        """The channel of a request that came through the hot lane. Not kept: CLOSED may have come before it."""
        known = self._connections.get(origin.connection)
        return known.channel if known else self._new_channel(origin)

    def _new_channel(self, origin: Origin) -> RingChannel:
        return RingChannel(origin.connection, origin.peer, origin.listener != 0, self.gateway)

    def _take_send(self, lane: SlowLane, record: bytes) -> None:
        request = decode_send(record, self._channel(decode_origin(record)))
        if self.hot_lane is not None:
            self.hot_lane.took(request)
        try:
            lane.slow_send(request)
        except Exception as exc:
            answer = RemotingCommand(request.code, request.opaque, flag=2 if request.is_oneway else 0)
            self._fail(answer, request.channel.push, exc)
            if self.hot_lane is not None:
                self.hot_lane.settle(request)

    def _take_pull(self, lane: SlowLane, record: bytes) -> None:
        request = decode_pull(record, self._channel(decode_origin(record)))
        try:
            lane.slow_pull(request)
        except Exception as exc:
            answer = RemotingCommand(request.code, request.opaque, flag=2 if request.is_oneway else 0)
            self._fail(answer, request.channel.push, exc)

    # -- commands

    def _take_command(self, origin: Origin, record: bytes) -> None:
        size = len(record) - ORIGIN.size
        try:
            request = RemotingCommand.decode(size.to_bytes(4, "big") + record[ORIGIN.size :])
        except RocketError as exc:
            _log.warning("%s sent what is no command and is disconnected: %s", origin.peer, exc)
            self.gateway.close(origin.connection)
            return
        if request.is_response:
            self.gateway.answered(origin.connection, request)
            return
        connection = self._connections.get(origin.connection)
        if connection is None:
            connection = self._connections[origin.connection] = _Connection(self._new_channel(origin))
        self._submit(_Job(request, connection, origin.received_ns))

    def _submit(self, job: _Job) -> None:
        name = self.table.pool_for(job.request.code).name
        queue = self._queues.get(name) or next(iter(self._queues.values()))  # odd spellings all come to manager 0
        try:
            queue.send.send_nowait(job)
        except trio.WouldBlock:
            self.block.add(lib.RP_COUNT_BUSY)
            self._answer(job, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, OVERLOAD))
            return
        job.connection.in_service += 1
        self._in_service += 1

    async def _serve_pool(self, queue: _Queue) -> None:
        async for job in queue.receive:
            try:
                await self._serve(queue, job)
            finally:
                self._in_service -= 1
                job.connection.in_service -= 1
                if job.connection.is_closed and job.connection.in_service == 0:
                    self._tell_closed(job.connection.channel.connection)

    async def _serve(self, queue: _Queue, job: _Job) -> None:
        request, channel = job.request, job.connection.channel
        waited_ms = (self.now_ns() - job.received_ns) // 1_000_000
        if queue.pool.wait_max_ms is not None and waited_ms > queue.pool.wait_max_ms:
            self.block.add(lib.RP_COUNT_BUSY)
            remark = (
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {waited_ms}ms, size of queue: {len_of(queue)}"
            )
            self._answer(job, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark))
            return
        processor = self.processors.get(request.code)
        if processor is None or (channel.is_vip and request.code in SERVED_ON_MAIN_PORT_ONLY):
            remark = f" request type {request.code} not supported"
            self._answer(job, RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            response = await processor.process(request, channel)
            if response is not None:
                self._answer(job, response)
        except Exception as exc:
            self._fail(request, channel.push, exc)

    def _answer(self, job: _Job, response: RemotingCommand) -> None:
        if not job.request.is_oneway:
            job.connection.channel.push(response.answering(job.request))

    def _fail(self, request: RemotingCommand, push: Callable[[RemotingCommand], None], exc: Exception) -> None:
        """A handler raised: our own errors say what to reply, anything else is a bug worth its traceback."""
        if isinstance(exc, RocketError):
            response = RemotingCommand.response(exc.response_code, str(exc))
        else:
            _log.error("%s failed", request.name, exc_info=exc)
            response = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
        if not request.is_oneway:
            push(response.answering(request))

    # -- the end of connections

    def _take_closed(self, number: int) -> None:
        self.gateway.closed(number)
        connection = self._connections.get(number)
        if connection is not None:
            connection.is_closed = True
            if connection.in_service > 0:
                return  # a heartbeat that still waits must not enter the client after it has been removed
        self._tell_closed(number)

    def _tell_closed(self, number: int) -> None:
        self._connections.pop(number, None)
        for listener in self.listeners:
            listener.connection_closed(number)
        if self.slow_lane is not None:
            self.slow_lane.connection_closed(number)


def len_of(queue: _Queue) -> int:
    """Requests that wait in a queue."""
    return queue.send.statistics().current_buffer_used
