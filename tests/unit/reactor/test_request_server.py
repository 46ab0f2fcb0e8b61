"""RequestServer: requests to pools and back, its bounds, its order, and the end of connections."""

from __future__ import annotations

import os
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import RequestRefused
from rocketpy.native.core import lib
from rocketpy.reactor.channel import UNHURRIED_NS
from rocketpy.reactor.pools import Pool
from rocketpy.reactor.request_server import AWAY_NS, BATCH_NS
from rocketpy.reactor.ring import STOP_LEAVE
from rocketpy.reactor.worker_messages import WorkerMessage
from rocketpy.reactor.worker_spec import BEAT_MAX_S
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, SendRequest, Traffic
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.limits import PoolLoad
from tests.support import ring_messages
from tests.support.request_bench import CONNECTION, NOW_NS, OTHER, Bench, Handler, complete


async def ok(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    return RemotingCommand.response(0, f"{channel.peer}")


async def fail(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    raise KeyError("no such thing")


async def refuse(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    raise RequestRefused(17, "topic not exist")


async def nothing(request: RemotingCommand, channel: Channel) -> None:
    return None


PROCESSORS: dict[int, Handler] = {1: ok, 2: fail, 3: refuse, 4: nothing, 11: ok}


@attrs.define
class NumberedRing:
    """A ring that is never empty; each message takes `cost_ns`."""

    cost_ns: int
    clock: list[int]
    taken: int = 0

    def look(self) -> tuple[int, bytes]:
        self.clock[0] += self.cost_ns
        return WorkerMessage.TRAFFIC, bytes(64)

    def release(self) -> None:
        self.taken += 1


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (1, (0, "127.0.0.1:4000")),
        (2, (1, "KeyError: 'no such thing'")),
        (3, (17, "topic not exist")),
        (4, None),
        (99, (3, " request type 99 not supported")),
    ],
)
@pytest.mark.parametrize("oneway", [False, True])
def test_answers(open_bench: Callable[..., Bench], code: int, answer: tuple[int, str] | None, oneway: bool) -> None:
    bench = open_bench(PROCESSORS)

    async def scene() -> None:
        bench.request(code, 42, oneway=oneway)
        await complete()
        replies = [(one.opaque, one.is_response, one.code, one.remark) for one in bench.replies()]
        assert replies == ([] if answer is None or oneway else [(42, True, *answer)])

    bench.run(scene)


def test_a_rocketmq_request_is_answered_in_kind(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench(PROCESSORS)

    async def scene() -> None:
        bench.command(RemotingCommand(1, opaque=5, serialize_type=SerializeType.ROCKETMQ))
        await complete()
        assert [one.serialize_type for one in bench.replies()] == [SerializeType.ROCKETMQ]

    bench.run(scene)


@pytest.mark.parametrize(("listener", "code"), [(0, 0), (1, 3)])
def test_pulls_are_for_the_main_port(open_bench: Callable[..., Bench], listener: int, code: int) -> None:
    """Holds: trap, no pulls at the VIP port."""
    pools = (
        Pool(name="all", tasks=1, queue_max=9),
        Pool(name="pull", codes=(11,), tasks=1, queue_max=9, main_port_only=True),
    )
    bench = open_bench(PROCESSORS, pools=pools)

    async def scene() -> None:
        bench.request(11, 1, listener=listener)
        await complete()
        assert [one.code for one in bench.replies()] == [code]

    bench.run(scene)


def test_what_is_no_command_closes_its_connection(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench(PROCESSORS)

    async def scene() -> None:
        bench.write(WorkerMessage.COMMAND, ring_messages.origin_record(bench.origin()) + b"\0\0\0\2[}")
        await complete()
        assert bench.replies() == ["close"]

    bench.run(scene)


def test_a_full_pool_answers_busy_at_once_and_a_oneway_is_dropped(open_bench: Callable[..., Bench]) -> None:
    gate = trio.Event()

    async def wait(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await gate.wait()
        return RemotingCommand.response(0)

    bench = open_bench({1: wait}, pools=(Pool(name="small", tasks=1, queue_max=4),))

    async def scene() -> None:
        bench.request(1, 0)  # in service
        await complete()
        for opaque in (1, 2, 3):  # two wait, half of the pool; one is too many of this connection
            bench.request(1, opaque)
        bench.request(1, 4, oneway=True)
        await complete()
        busy = bench.replies()
        assert [(one.opaque, one.code) for one in busy] == [(3, 2)]
        assert busy[0].remark.startswith("[OVERLOAD]")
        assert bench.server.loads() == {"small": PoolLoad(2, 4, head_wait_ms=0)}
        gate.set()
        await complete()
        assert [one.opaque for one in bench.replies()] == [0, 1, 2]
        assert bench.blocks[1].counters()[lib.RP_COUNT_BUSY] == 2

    bench.run(scene)


def test_what_has_waited_too_long_is_answered_busy(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench(PROCESSORS, pools=(Pool(name="hasty", tasks=1, queue_max=9, wait_max_ms=100),))

    async def scene() -> None:
        bench.request(1, 1, waited_ms=100)
        bench.request(1, 2, waited_ms=101)
        await complete()
        first, second = bench.replies()
        assert (first.code, second.code) == (0, 2)
        assert second.remark == (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 101ms, size of queue: 0"
        )

    bench.run(scene)


def test_a_ring_whose_requests_take_long_leaves_others_their_time(open_bench: Callable[..., Bench]) -> None:
    """Fault: Once the first ring had used its time, each other ring got one message per turn."""
    bench = open_bench(PROCESSORS)
    long, short = NumberedRing(cost_ns=60_000, clock=bench.clock), NumberedRing(cost_ns=5_000, clock=bench.clock)
    bench.server.inputs = [long, short]
    taken = []
    for _ in range(2):
        begun_ns = bench.clock[0]
        bench.server.turn()
        assert bench.clock[0] - begun_ns < 2 * BATCH_NS
        taken.append(short.taken)
    assert min(taken[0], taken[1] - taken[0]) >= 100
    assert long.taken >= 83 + 166


def test_no_wait_is_longer_however_many_requests_a_connection_has_sent(open_bench: Callable[..., Bench]) -> None:
    """Each request takes a tenth of the limit, and two connections have sent 60 and 30. Each is served in its turn as
    long as its requests are young enough; then all that have waited too long are refused before another is served.
    Fault: Pipelined admin requests were all served, however long it took, and kept the console out for minutes."""
    limit_ms, cost_ms = 1000, 100

    async def work(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        bench.clock[0] += cost_ms * 1_000_000
        return RemotingCommand.response(0)

    bench = open_bench({1: work}, pools=(Pool(name="admin", tasks=1, queue_max=999, wait_max_ms=limit_ms),))

    async def scene() -> None:
        bench.clock[0] = NOW_NS
        for opaque in range(60):
            bench.request(1, opaque)
        for opaque in range(60, 90):
            bench.request(1, opaque, connection=OTHER)
        await complete()
        replies = [one for one in bench.replies() if isinstance(one, RemotingCommand)]
        assert len({one.opaque for one in replies}) == len(replies) == 90
        assert [one.opaque for one in replies if one.code == 0] == [0, 60, 1, 61, 2, 62, 3, 63, 4, 64, 5]
        assert bench.clock[0] - NOW_NS <= (limit_ms + cost_ms) * 1_000_000

    bench.run(scene)


def test_refusals_of_one_connection_do_not_wait_for_turns_of_others(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench(PROCESSORS, pools=(Pool(name="admin", tasks=1, queue_max=999, wait_max_ms=100),))

    async def scene() -> None:
        for opaque in range(4):
            bench.request(1, opaque, waited_ms=101)
        bench.request(1, 4)
        for opaque in range(10, 14):
            bench.request(1, opaque, connection=OTHER)
        await complete()
        assert [(one.opaque, one.code) for one in bench.replies()] == [
            *((number, 2) for number in range(4)),
            *((number, 0) for number in (4, 10, 11, 12, 13)),
        ]

    bench.run(scene)


def test_a_oneway_request_is_served_however_long_it_waited(open_bench: Callable[..., Bench]) -> None:
    """Its sender is not told of a refusal, and cannot send it again."""
    bench = open_bench(PROCESSORS, pools=(Pool(name="hasty", tasks=1, queue_max=9, wait_max_ms=100),))

    async def scene() -> None:
        bench.request(1, 1, waited_ms=101, oneway=True)
        await complete()
        assert bench.replies() == [] and bench.blocks[1].counters()[lib.RP_COUNT_BUSY] == 0

    bench.run(scene)


def test_what_came_while_the_manager_was_away_has_not_waited_for_it(open_bench: Callable[..., Bench]) -> None:
    """Fault: A worker that had been away answered waiting requests with TIMEOUT_CLEAN_QUEUE."""
    bench = open_bench(PROCESSORS, pools=(Pool(name="hasty", tasks=1, queue_max=9, wait_max_ms=1500),))

    async def codes() -> list[int]:
        await complete()
        return [one.code for one in bench.replies() if isinstance(one, RemotingCommand)]

    async def scene() -> None:
        bench.request(1, 1, waited_ms=5000)  # it had to be replaced, and is there since a second
        assert await codes() == [0]
        bench.clock[0] += AWAY_NS + 1  # everything stood still
        bench.request(1, 2)
        assert await codes() == [0]
        bench.clock[0] += int(BEAT_MAX_S * 1.01e9)  # there was nothing to do between two heartbeats
        bench.request(1, 3, waited_ms=5000)
        assert await codes() == [2]

    bench.run(scene)


def test_a_pool_of_one_serves_in_order_though_its_handlers_wait(open_bench: Callable[..., Bench]) -> None:
    async def slower_first(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        for _ in range(10 - request.opaque):
            await trio.lowlevel.checkpoint()
        return RemotingCommand.response(0)

    bench = open_bench({1: slower_first})

    async def scene() -> None:
        for opaque in range(10):
            bench.request(1, opaque)
        await complete()
        assert [one.opaque for one in bench.replies()] == list(range(10))

    bench.run(scene)


def test_closed_is_told_after_the_last_request_is_served(open_bench: Callable[..., Bench]) -> None:
    gate = trio.Event()

    async def register(request: RemotingCommand, channel: Channel) -> None:
        await gate.wait()
        bench.slow_path.told.append("registered")

    bench = open_bench({34: register})

    async def scene() -> None:
        bench.request(34, 1, oneway=True)
        bench.request(34, 2, oneway=True)
        bench.closed()
        await complete()
        assert bench.slow_path.told == [f"{CONNECTION} is closing"]
        gate.set()
        await complete()
        assert bench.slow_path.told[1:] == ["registered", "registered", CONNECTION]

    bench.run(scene)


def test_a_request_is_served_at_once_if_its_connection_has_no_other_in_service(
    open_bench: Callable[..., Bench],
) -> None:
    gate, served = trio.Event(), []

    def inline(request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        served.append(request.opaque)
        if request.opaque == 8:
            raise RequestRefused(17, "no")
        return None if request.opaque == 1 else RemotingCommand.response(0, "at once")

    async def wait(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await gate.wait()
        return RemotingCommand.response(0, "by a task")

    bench = open_bench({34: wait}, inline={34: inline})

    async def scene() -> None:
        for opaque in (0, 1, 2):
            bench.request(34, opaque)
        bench.request(34, 3, oneway=True, connection=OTHER)
        bench.request(34, 4, connection=OTHER)
        await complete()
        assert [(one.opaque, one.remark) for one in bench.commands()] == [(0, "at once"), (4, "at once")]
        gate.set()
        await complete()
        assert [(one.opaque, one.remark) for one in bench.commands()] == [(1, "by a task"), (2, "by a task")]
        bench.request(34, 8)
        await complete()
        assert [(one.code, one.remark) for one in bench.commands()] == [(17, "no")]
        assert served == [0, 1, 3, 4, 8]

    bench.run(scene)


def test_responses_at_once_wake_the_selector_together(open_bench: Callable[..., Bench]) -> None:
    """A wake-up costs both processes more than the response; heartbeats of many clients come all the time."""
    bench = open_bench({1: ok}, inline={34: lambda request, channel: RemotingCommand.response(0)})
    selector = bench.blocks[2]

    def is_woken() -> bool:
        try:
            os.eventfd_read(selector.doorbell)
        except BlockingIOError:
            return False
        selector.prepare_sleep()
        return True

    async def scene() -> None:
        selector.prepare_sleep()
        for opaque in range(3):
            bench.request(34, opaque)
            await complete()
            assert not is_woken()
        assert [one.opaque for one in bench.commands()] == [0, 1, 2]
        bench.clock[0] += UNHURRIED_NS
        await trio.lowlevel.wait_readable(selector.doorbell)  # the server wakes up by itself
        assert is_woken()
        bench.request(34, 3)
        bench.request(1, 4)  # its response wakes the selector for both
        await complete()
        assert is_woken() and [one.opaque for one in bench.commands()] == [3, 4]
        bench.request(34, 5)
        await complete()

    bench.run(scene)
    assert is_woken()  # what is left when the server stops


def test_heartbeats_that_follow_one_another_are_read_together(open_bench: Callable[..., Bench]) -> None:
    """The server wakes up for the answer to the first one anyway, and finds the others then."""
    served = []

    def inline(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        served.append(manager.serving)
        return RemotingCommand.response(0)

    bench = open_bench({1: ok}, inline={34: inline})
    _, manager, selector = bench.blocks

    async def turn() -> list[int]:
        """Let the server come to the end of its nap."""
        selector.prepare_sleep()
        bench.clock[0] += UNHURRIED_NS
        await trio.lowlevel.wait_readable(selector.doorbell)
        os.eventfd_read(selector.doorbell)
        await complete()
        return [one.opaque for one in bench.commands()]

    async def scene() -> None:
        assert manager.pointer.asleep == lib.RP_ASLEEP
        bench.heartbeat(0)
        assert not manager.pointer.asleep  # rung
        await complete()
        for opaque, answered in ((1, [0, 1]), (2, [2])):
            assert manager.pointer.asleep == lib.RP_NAPPING
            bench.heartbeat(opaque)
            assert manager.pointer.asleep == lib.RP_NAPPING
            assert await turn() == answered
        bench.request(1, 3)
        assert not manager.pointer.asleep  # nothing else waits for the end of a nap
        bench.clock[0] += UNHURRIED_NS
        await complete()
        assert [one.opaque for one in bench.commands()] == [3]
        assert manager.pointer.asleep == lib.RP_ASLEEP  # no heartbeat came meanwhile

    bench.run(scene)
    assert served == [CONNECTION] * 3  # should the manager crash on one, its connection is closed


@attrs.define
class Guard:
    """Refuses the requests of code 3 and counts all."""

    seen: list[int] = attrs.field(factory=list)
    version: int = 0

    def check(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        self.seen.append(request.opaque)
        if request.opaque == 3:
            raise RequestRefused(16, "no account")

    def is_long(self, request: RemotingCommand) -> bool:
        return request.opaque == 4

    async def check_long(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        self.seen.append(-request.opaque)


def test_access_control_sees_each_request_once_also_one_that_is_not_served_at_once(
    open_bench: Callable[..., Bench],
) -> None:
    guard, served = Guard(), []

    def inline(request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        served.append(request.opaque)
        return None if request.opaque == 2 else RemotingCommand.response(0)

    bench = open_bench({34: ok}, inline={34: inline}, access=guard)

    async def scene() -> None:
        for opaque in (1, 2, 3, 4):
            bench.request(34, opaque)
            await complete()
        assert {one.opaque: one.code for one in bench.commands()} == {1: 0, 2: 0, 3: 16, 4: 0}
        assert guard.seen == [1, 2, 3, -4] and served == [1, 2]

    bench.run(scene)


def test_queries_of_a_client_that_is_gone_are_not_served(open_bench: Callable[..., Bench]) -> None:
    """Fault: 20 000 queries of a client that had left were served before another client's."""
    gate, served = trio.Event(), []

    async def query(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        served.append(request.opaque)
        await gate.wait()
        return RemotingCommand.response(0)

    bench = open_bench({33: query}, pools=(Pool(name="query", codes=(33,), served_by="query", tasks=1, queue_max=100),))

    async def scene() -> None:
        for opaque in range(50):
            bench.request(33, opaque)
        await complete()
        bench.closed()
        await complete()
        gate.set()
        await complete()
        assert served == [0]
        assert bench.slow_path.told[-1] == CONNECTION

    bench.run(scene)


def test_closed_of_a_connection_that_never_spoke_to_us_is_told_too(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({})

    async def scene() -> None:
        bench.closed()
        await complete()
        assert bench.slow_path.told == [CONNECTION]

    bench.run(scene)


# -- a selector that does not keep up


def test_beyond_its_backlog_pushes_are_dropped_and_a_lost_answer_closes(open_bench: Callable[..., Bench]) -> None:
    async def large(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(0, body=bytes(10_000))

    bench = open_bench({1: large})

    async def scene() -> None:
        channel = bench.channel()
        for _ in range(20):  # more than ring and backlog hold
            channel.push(RemotingCommand.oneway(40, body=bytes(10_000)))
        pushed = bench.server.gateway.outboxes[0].backlog_bytes
        assert 0 < pushed <= 20_000
        bench.request(1, 7)
        await complete()
        got: list[RemotingCommand | str] = []
        while more := bench.replies():
            got += more
            await complete()
        assert got[-1] == "close"
        assert 0 < len(got) - 1 < 20
        assert all(isinstance(one, RemotingCommand) and one.code == 40 for one in got[:-1])

    bench.run(scene)


def send_record(bench: Bench, *, oneway: bool = False) -> bytes:
    flags = lib.RP_REQUEST_ONEWAY if oneway else 0
    return ring_messages.send(bench.origin(), opaque=9, flags=flags)


# -- what the fast path leaves to us


def test_records_of_the_fast_path_reach_the_slow_path(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({})

    async def scene() -> None:
        bench.write(WorkerMessage.SEND, send_record(bench))
        bench.write(WorkerMessage.COMMIT_OFFSET, ring_messages.commit_offset())
        bench.write(WorkerMessage.TRAFFIC, ring_messages.traffic())
        pull = ring_messages.pull(bench.origin(), opaque=8, max_msg_nums=32, queue_offset=5)
        bench.write(WorkerMessage.PULL, pull)
        await complete()
        send, commit, traffic, pulled = bench.slow_path.told
        assert isinstance(send, SendRequest) and (send.topic, send.producer_group, send.opaque) == ("T", "G", 9)
        assert commit == ("G", "TT", 3, 77, 5)
        assert traffic == Traffic(topic="TT", queue_id=3, group="G", messages=64, bytes=900, requests=2, wait_ms=7)
        assert isinstance(pulled, PullRequest) and (pulled.subscription, pulled.queue_offset) == ("*", 5)
        assert send.channel == pulled.channel and hash(send.channel) == hash(pulled.channel)

    bench.run(scene)


@pytest.mark.parametrize("oneway", [False, True])
def test_a_slow_path_that_fails_answers_and_goes_on(open_bench: Callable[..., Bench], oneway: bool) -> None:
    bench = open_bench({})
    bench.slow_path.fail_with = RequestRefused(14, "no write")

    async def scene() -> None:
        bench.write(WorkerMessage.SEND, send_record(bench, oneway=oneway))
        await complete()
        replies = [(one.opaque, one.code, one.remark) for one in bench.replies()]
        assert replies == ([] if oneway else [(9, 14, "no write")])

    bench.run(scene)


def test_it_leaves_only_when_the_sends_of_the_slow_path_are_answered(open_bench: Callable[..., Bench]) -> None:
    """Their connections may outlive this process (docs/adr/0114): without an answer a client would wait in vain.
    Fault: A slave that became master left its passed-on sends unanswered."""
    bench = open_bench({})
    bench.slow_path.has_answered, left = False, trio.Event()

    async def scene() -> None:
        async def run() -> None:
            await bench.server.run()
            left.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            bench.blocks[1].order(STOP_LEAVE)
            await trio.sleep(0.05)
            assert not left.is_set()
            bench.slow_path.has_answered = True
            await left.wait()

    trio.run(scene)


def test_it_leaves_only_when_everything_is_answered(open_bench: Callable[..., Bench]) -> None:
    gate = trio.Event()

    async def wait(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await gate.wait()
        return RemotingCommand.response(0)

    bench = open_bench({1: wait})

    async def scene() -> None:
        for opaque in range(5):
            bench.request(1, opaque)
        bench.blocks[1].order(STOP_LEAVE)
        await complete()
        gate.set()

    bench.run(scene)
    assert [one.opaque for one in bench.replies()] == list(range(5))
