"""The loop of the manager and of each query worker: reads rings, runs requests in pools of trio tasks, writes answers.

    doorbell -> drain rings in batches -> COMMAND: pool by request code -> Processor -> reply ring of the selector
                                       -> SEND, PULL, COMMIT_OFFSET: SlowPath    PUT_RESULT, CLEANED: FastPath
                                       -> CLOSED: SlowPath, once the connection's requests are served
                                       -> SERVED: a line of the request log, when all else of the turn is done

Bounds: a pool's queue, in requests and bytes (full: SYSTEM_BUSY at once), detached requests (detached.py), an outbox
per selector (channel.py), a batch per ring and turn, lines of the request log (dropped and counted).
Order: the requests of one connection reach their pool in order; a pool of one task also serves them in order.
Faults: an exception of a request, a ring message or the end of a connection ends there: it is answered with an error,
counted and logged at a limited rate (faults.py). Only a fault of the loop itself ends the process.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import LocalProtocolError, RocketError
from rocketpy.faults import Faults
from rocketpy.logs import serving
from rocketpy.native.core import lib
from rocketpy.remoting.abc import Channel, Detached, Preparation, Response, Rest
from rocketpy.remoting.answers import OVERLOAD, error_response, not_supported, too_old
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import SlowPath, command_of
from rocketpy.remoting.frame import REQUEST_HEADER_SIZE_MAX
from rocketpy.remoting.limits import PoolLoad
from rocketpy.remoting.request_log import ServedRequest

from .channel import Gateway
from .connections import ServedConnection, ServedConnections
from .crashed_request import REQUESTS
from .detached import DetachedRequests
from .handlers import AccessGuard, Handlers
from .pool_queue import PoolQueue
from .pools import QUERY, PoolTable
from .preparations import FailedRest, Preparations
from .ring import RingReader, WorkerBlock
from .watched_request import R, watched
from .worker_messages import (
    Origin,
    WorkerMessage,
    connection_of,
    decode_commit_offset,
    decode_origin,
    decode_pull,
    decode_send,
    decode_served,
    decode_traffic,
    frame_of,
    name_of,
    unchecked,
)
from .worker_spec import BEAT_MAX_S

DONE_AT_ONCE = frozenset({WorkerMessage.CLOSED, WorkerMessage.COMMIT_OFFSET})
"""Messages that are complete after `_take` and harmless when repeated. They are released after `_take`, so that a crash
loses none of them. All others are released before, because they could crash the restarted process again."""
BATCH_RECORDS = 256  # messages of one ring per turn, then other rings and the pools run
BATCH_NS = 10_000_000  # time of the first ring in a turn, and of all others together: heartbeats and rings wait so long
LINES_PER_TURN, LINES_MAX = 32, 1_024  # of the request log; LINES_MAX: that wait for their turn
CHECK_TIMEOUT_S = 60.0  # of a long check, in turns with those of others
STOP_TURN_S = 0.01  # while the last requests are being served
AWAY_NS = int((BEAT_MAX_S + 1.0) * 1e9)  # a loop that has not turned for this long was paused: it turns for each beat


@attrs.define(eq=False)
class _Job:
    request: RemotingCommand
    connection: ServedConnection
    received_ns: int
    size: int = 0  # bytes that it counts while it waits
    checked_version: int | None = None  # of the accounts, by which it was allowed; None: not checked
    rest: Rest | None = None  # what is left of it when it has been prepared

    @property
    def sender(self) -> int:
        return self.connection.channel.connection


@attrs.define(eq=False, kw_only=True)
class RequestServer:
    """Serves the requests of one worker until its block is ordered to stop and everything is answered.

    Args:
        pools: those that have tasks in this worker.
    """

    block: WorkerBlock
    inputs: Sequence[RingReader]
    gateway: Gateway
    pools: PoolTable
    handlers: Handlers
    now_ns: Callable[[], int] = time.monotonic_ns
    detached: DetachedRequests = attrs.field(init=False, factory=DetachedRequests)
    _preparations: Preparations = attrs.field(init=False, factory=Preparations)
    connections: ServedConnections = attrs.field(init=False)
    _queues: dict[str, PoolQueue[_Job]] = attrs.field(init=False, factory=dict)
    _in_service: int = attrs.field(init=False, default=0)
    _numbers: Iterator[int] = attrs.field(init=False, factory=partial(itertools.count, 1))  # sends, pulls in Python
    _lines: deque[ServedRequest] = attrs.field(init=False, factory=deque)  # of the request log, for what C has served
    _inline: int = attrs.field(init=False, default=0)  # requests that were served without a task
    _refused: Faults = attrs.field(init=False, factory=lambda: Faults(name="refused"))  # errors of clients
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _first: int = attrs.field(init=False, default=0)  # of `inputs`, in the next turn
    _turned_ns: int = attrs.field(init=False, default=0)
    _there_since_ns: int = attrs.field(init=False, default=0)  # from here requests wait: to be down is no overload

    def __attrs_post_init__(self) -> None:
        self.connections = ServedConnections(self.gateway, self.handlers.slow_path, self._preparations.cancel)

    async def run(self, beat_s: float = BEAT_MAX_S) -> None:
        """Serve until stopped. This nursery owns the tasks of the pools and of detached requests.

        Args:
            beat_s: seconds between two heartbeats of a worker without work.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for pool in self.pools.pools:
                queue = self._queues[pool.name] = PoolQueue[_Job](pool)
                for _ in range(pool.tasks):
                    nursery.start_soon(self._serve_pool, queue)
            await self._pump(beat_s)
            self.gateway.wake()
            for queue in self._queues.values():
                queue.close()

    def loads(self) -> dict[str, PoolLoad]:
        """Return the load of each pool's queue, for statistics."""
        now_ns = self.now_ns()
        return {name: queue.load(now_ns) for name, queue in self._queues.items()}

    # -- ring messages

    async def _pump(self, beat_s: float) -> None:
        while True:
            moved = self.turn()
            if moved:
                await trio.lowlevel.checkpoint()
                continue
            if self.block.stop:
                if self._is_drained():
                    return
                if self._in_service == self.detached.count + sum(queue.held for queue in self._queues.values()):
                    self.detached.stop()
                    self._preparations.stop()
            self.block.prepare_sleep(naps=self.gateway.has_unhurried)
            if all(reader.is_empty() for reader in self.inputs):
                now_s = trio.current_time()
                # At an even second: duties of this loop wake up then (transport/duties.py).
                rest_s = STOP_TURN_S if self.block.stop else beat_s - now_s % beat_s
                with trio.move_on_at(now_s + min(rest_s, self.gateway.rest_s(self.now_ns()))):
                    await trio.lowlevel.wait_readable(self.block.doorbell)
            else:
                await trio.lowlevel.checkpoint()
            self.block.awake()

    def turn(self) -> bool:
        """Read a batch from every ring, and write out backlogs. Returns False if no task has got work, and there is
        nothing to continue.

        Rings take turns to be the first, and a ring that takes all its time leaves the others theirs: one connection
        can fill a ring with requests that take long.
        """
        taken, inline = 0, self._inline
        now_ns = self.now_ns()
        if now_ns - self._turned_ns > AWAY_NS:
            self._there_since_ns = now_ns
        self._turned_ns = now_ns
        begin_ns = now_ns
        self._first = (self._first + 1) % max(1, len(self.inputs))
        for reader in (*self.inputs[self._first :], *self.inputs[: self._first]):
            end_ns = max(now_ns + BATCH_NS, begin_ns + BATCH_NS // len(self.inputs))
            for _ in range(BATCH_RECORDS):
                found = reader.look()
                if found is None:
                    break
                taken += 1
                kind, record = found
                if kind not in DONE_AT_ONCE:
                    reader.release()
                try:
                    self.block.serve(connection_of(record) if kind in REQUESTS else 0)
                    self._take(kind, record)
                except Exception as exc:
                    self.gateway.faults.report(f"ring message {name_of(kind)}", exc)
                if kind in DONE_AT_ONCE:
                    reader.release()
                if (begin_ns := self.now_ns()) > end_ns:
                    break
        moved = self.gateway.deaths.turn(self.connections.drop_gone) or taken > self._inline - inline
        self.block.serve(0)
        serving.set(None)
        # While heartbeats keep coming, nap again: they are then read together, without a wake-up for each.
        self.gateway.flush(now_ns, expects_more=self._inline > inline)
        if (fast_path := self.handlers.fast_path) is not None and fast_path.turn():
            moved = True
        moved = self._write_lines() or moved
        self.block.beat(self.now_ns())
        if self.handlers.slow_path is None:  # show the load where the manager, which answers for statistics, can see it
            self.block.show(lib.RP_COUNT_WAITING, len(self._queues[QUERY]))
            self.block.show(lib.RP_COUNT_WAITING_SINCE_NS, self._queues[QUERY].since_ns)
        self.block.add(lib.RP_COUNT_LOOPS)
        return moved

    def _keep_line(self, record: bytes) -> None:
        """Keep a SERVED for `_write_lines`: many of them must not delay the messages behind them."""
        if len(self._lines) < LINES_MAX:
            self._lines.append(decode_served(record))
        else:
            self.block.add(lib.RP_COUNT_REQUEST_LOG_DROPPED)

    def _write_lines(self) -> bool:
        """Write lines of the request log. Returns True if some are left."""
        for _ in range(min(LINES_PER_TURN, len(self._lines))):
            self._lines.popleft().log()
        return bool(self._lines)

    def _is_drained(self) -> bool:
        slow_path, fast_path = self.handlers.slow_path, self.handlers.fast_path
        return (
            (slow_path is None or slow_path.finish())
            and self._in_service == 0
            and (fast_path is None or fast_path.is_idle())
            and all(reader.is_empty() for reader in self.inputs)  # after the fast path, which writes to them
            and self.gateway.is_empty()
        )

    def _take(self, kind: int, record: bytes) -> None:
        slow_path, fast_path, on_settings = self.handlers.slow_path, self.handlers.fast_path, self.handlers.on_settings
        if kind in (WorkerMessage.HEARTBEAT, WorkerMessage.COMMAND):
            self._take_command(decode_origin(record), record)
        elif kind == WorkerMessage.CLOSED:
            self.connections.close(decode_origin(record).connection)
        elif kind == WorkerMessage.SEND and slow_path is not None:
            self._take_send(slow_path, record)
        elif kind == WorkerMessage.PULL and slow_path is not None:
            self._take_pull(slow_path, record)
        elif kind == WorkerMessage.COMMIT_OFFSET and slow_path is not None:
            slow_path.commit_offset(*decode_commit_offset(record))
        elif kind == WorkerMessage.TRAFFIC and slow_path is not None:
            slow_path.count_traffic(decode_traffic(record))
        elif kind == WorkerMessage.SERVED:
            self._keep_line(record)
        elif kind == WorkerMessage.PUT_RESULT and fast_path is not None:
            fast_path.put_finished(record)
        elif kind == WorkerMessage.SETTINGS and on_settings is not None:
            on_settings(record)
        elif kind == WorkerMessage.CLEANED and fast_path is not None:
            fast_path.cleaned(record)
        else:
            raise LocalProtocolError(f"worker {self.block.name} does not know ring messages of type {kind}")

    def _sampled(self, request: R, origin: Origin) -> R:
        """Have every Nth send and pull that is answered here logged."""
        every = self.handlers.request_log_sample
        if not every or next(self._numbers) % every:
            return request
        return watched(request, origin, self.gateway, self.now_ns)

    def _take_send(self, slow_path: SlowPath, record: bytes) -> None:
        record, frame, is_counted = unchecked(record, WorkerMessage.SEND)
        origin, fast_path = decode_origin(record), self.handlers.fast_path
        request = self._sampled(decode_send(record, self.connections.channel(origin)), origin)
        serving.set((request.channel.connection, request.opaque))
        try:
            if fast_path is not None:
                fast_path.send_arrived(request)
            if frame is not None:
                self._check_fast(frame, request.channel, request.topic, request.producer_group, is_counted)
            slow_path.slow_send(request)
        except Exception as exc:
            self._fail(command_of(request), request.channel.push, exc)
            if fast_path is not None:
                fast_path.complete(request)

    def _take_pull(self, slow_path: SlowPath, record: bytes) -> None:
        record, frame, is_counted = unchecked(record, WorkerMessage.PULL)
        origin = decode_origin(record)
        request = self._sampled(decode_pull(record, self.connections.channel(origin)), origin)
        serving.set((request.channel.connection, request.opaque))
        try:
            if frame is not None:
                self._check_fast(frame, request.channel, request.topic, request.consumer_group, is_counted)
            slow_path.slow_pull(request)
        except Exception as exc:
            self._fail(command_of(request), request.channel.push, exc)

    def _check_fast(self, frame: bytes, channel: Channel, topic: str, group: str, is_counted: bool) -> None:
        if (access := self.handlers.access) is not None:
            request = RemotingCommand.decode(frame, header_size_max=REQUEST_HEADER_SIZE_MAX)
            access.check_fast(request, channel.peer.host, topic, group, is_counted=is_counted)

    # -- commands

    def _take_command(self, origin: Origin, record: bytes) -> None:
        if origin.connection in self.gateway.unasked.cut:
            return
        try:
            request = RemotingCommand.decode(frame_of(record), header_size_max=REQUEST_HEADER_SIZE_MAX)
        except RocketError as exc:
            self.block.add(lib.RP_COUNT_FRAMES_BAD)
            self._refused.report("reading a command", f"{origin.peer} is disconnected: {exc}")
            self.gateway.close(origin.connection)
            self._distrust(origin)
            return
        if request.is_response:
            if not self.gateway.answered(origin.connection, request):
                self._take_unasked(origin)
            return
        self._submit(_Job(request, self.connections.of_command(origin), origin.received_ns))

    def _take_unasked(self, origin: Origin) -> None:
        """A response to nothing."""
        if self.gateway.deaths.is_gone(origin.connection):
            return  # no CLOSED would end its count
        self._distrust(origin)
        if self.gateway.unasked.add(origin.connection):
            self._refused.report(
                "reading a response", f"{origin.peer} is disconnected: it has sent too many responses to no request"
            )
            self.gateway.close(origin.connection)

    def _distrust(self, origin: Origin) -> None:
        if self.handlers.access is not None:
            self.handlers.access.distrust(origin.peer.host)

    def _serve_inline(self, job: _Job) -> bool:
        """Serve a request whose connection has no other one in service, if that takes no task. The others wait for
        their turn. Returns True also if it was refused, or failed: that was the answer."""
        serve, access, channel = (
            self.handlers.inline.get(job.request.code),
            self.handlers.access,
            job.connection.channel,
        )
        if serve is None or job.connection.in_service or job.connection.is_closed:
            return False
        try:
            if access is not None:
                if access.is_long(job.request):
                    return False
                self._check(access, job)
            response = serve(job.request, channel)
            if response is not None and not job.request.is_oneway:
                self.gateway.write_unhurried(channel.connection, response.answering(job.request), self._turned_ns)
            self._inline += response is not None
        except Exception as exc:
            self._fail(job.request, channel.push, exc)
            return True
        return response is not None

    def _submit(self, job: _Job) -> None:
        if self._serve_inline(job):
            return
        job.size = job.request.held_size
        queue = self._queues[self.pools.pool_for(job.request.code).name]
        if not queue.put(job):
            self.block.add(lib.RP_COUNT_BUSY)
            self._answer(job, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, OVERLOAD))
            return
        job.connection.in_service += 1
        self._in_service += 1

    async def _serve_pool(self, queue: PoolQueue[_Job]) -> None:
        while (job := await queue.take()) is not None:
            rest: Detached | Preparation | None = None
            self.block.serve(job.connection.channel.connection)
            serving.set((job.connection.channel.connection, job.request.opaque))
            try:
                rest = await self._serve(queue, job)
                if isinstance(rest, Detached):
                    self._detach(job, rest, queue.pool.name)
            except Exception as exc:
                self._fail(job.request, job.connection.channel.push, exc)
            finally:
                self.block.serve(0)
                serving.set(None)
                if isinstance(rest, Preparation) and self._nursery is not None:
                    self._preparations.begin(self._nursery, queue, job, rest)
                else:
                    self.connections.leave(job.connection)
                    self._in_service -= 1

    async def _serve(self, queue: PoolQueue[_Job], job: _Job) -> Detached | Preparation | None:
        """Answer a request; what is returned waits for another process, or for work elsewhere."""
        request, channel = job.request, job.connection.channel
        if job.connection.is_closed and queue.pool.served_by == QUERY:
            return None  # it would only have read, for a client that is gone
        waited_ms = (self.now_ns() - max(job.received_ns, self._there_since_ns)) // 1_000_000
        wait_max_ms = None if request.is_oneway else queue.pool.wait_max_ms  # nobody repeats a oneway request
        if wait_max_ms is not None and waited_ms > wait_max_ms:
            self.block.add(lib.RP_COUNT_BUSY)
            self._answer(job, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, too_old(waited_ms, len(queue))))
            queue.keep_turn(job.sender)  # those behind it that are too old as well do not wait for one turn each
            return None
        access = self.handlers.access
        if access is not None and job.checked_version != access.version and not isinstance(job.rest, FailedRest):
            if not access.is_long(request):
                self._check(access, job)
            elif queue.pool.tasks == 1 and request.code in self.handlers.processors:
                return Preparation(partial(self._checked, access, job), CHECK_TIMEOUT_S)  # it would keep all waiting
            else:
                await self._check_long(access, job)
        processor = self.handlers.processors.get(request.code)
        if processor is None or (channel.is_vip and queue.pool.main_port_only):
            self._answer(job, not_supported(request.code))
            return None
        response: Response = await (processor.process(request, channel) if job.rest is None else job.rest())
        if isinstance(response, Detached | Preparation):
            return response
        if response is not None:
            self._answer(job, response)
        return None

    def _check(self, access: AccessGuard, job: _Job) -> None:
        version, is_counted = access.version, job.checked_version is not None
        access.check(job.request, job.connection.channel.peer.host, is_counted=is_counted)
        job.checked_version = version

    async def _check_long(self, access: AccessGuard, job: _Job) -> None:
        version, is_counted = access.version, job.checked_version is not None
        await access.check_long(job.request, job.connection.channel.peer.host, is_counted=is_counted)
        job.checked_version = version

    async def _checked(self, access: AccessGuard, job: _Job) -> Rest:
        """Check a long request outside of its pool; the rest is to serve it."""
        await self._check_long(access, job)
        processor = self.handlers.processors[job.request.code]
        return partial(processor.process, job.request, job.connection.channel)

    # -- requests that wait for another process

    def _detach(self, job: _Job, rest: Detached, pool: str) -> None:
        assert self._nursery is not None
        if not self.detached.enter(rest, job.connection.channel.connection, job.size, pool):
            self.block.add(lib.RP_COUNT_BUSY)
            self._answer(job, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, OVERLOAD))
            return
        self._in_service += 1
        self._nursery.start_soon(self._finish, job, rest, pool)

    async def _finish(self, job: _Job, rest: Detached, pool: str) -> None:
        channel = job.connection.channel
        serving.set((channel.connection, job.request.opaque))
        try:
            response = await self.detached.run(rest)
            if response is None:
                why = "the broker stops" if self.block.stop else f"no outcome in {rest.timeout_s:g} s"
                response = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{job.request.name}: {why}")
            self._answer(job, response)
        except Exception as exc:
            self._fail(job.request, channel.push, exc)
        finally:
            self.detached.leave(rest, channel.connection, job.size, pool)
            self._in_service -= 1

    def _answer(self, job: _Job, response: RemotingCommand) -> None:
        if not job.request.is_oneway:
            job.connection.channel.push(response.answering(job.request))

    def _fail(self, request: RemotingCommand, push: Callable[[RemotingCommand], None], exc: Exception) -> None:
        """A handler raised an exception."""
        response = error_response(request, exc, self.gateway.faults)
        if not request.is_oneway:
            push(response.answering(request))
