"""Requests pass access control before they are served: commands, and sends and pulls that are marked UNCHECKED."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import RequestRefused
from rocketpy.native.core import lib
from rocketpy.reactor.pools import Pool
from rocketpy.reactor.worker_messages import PULL_REQUEST, SEND_REQUEST, WorkerMessage, unchecked
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, SendRequest
from tests.support import ring_messages
from tests.support.request_bench import OTHER, Bench, Handler, complete

UNCHECKED = lib.RP_REQUEST_UNCHECKED
HOST = "127.0.0.1"


@attrs.define(eq=False)
class Guard:
    """Refuses what `refuses` names."""

    refuses: bool = False
    asked: list[tuple[object, ...]] = attrs.field(factory=list)
    counted: list[bool] = attrs.field(factory=list)
    gate: trio.Event | None = None  # requests of code 2 are long, and are checked when it opens
    version: int = 0  # of the accounts

    def check(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        self.counted.append(is_counted)
        self._decide(request.code, host)

    def is_long(self, request: RemotingCommand) -> bool:
        return self.gate is not None and request.code == 2

    async def check_long(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        assert self.gate is not None
        await self.gate.wait()
        self.counted.append(is_counted)
        self._decide(request.code, host)

    def check_fast(self, request: RemotingCommand, host: str, topic: str, group: str, *, is_counted: bool) -> None:
        self.counted.append(is_counted)
        self._decide(request.code, host, request.body, request.ext_fields, topic, group)

    def distrust(self, host: str) -> None:
        self.asked.append((host,))

    def _decide(self, *asked: object) -> None:
        self.asked.append(asked)
        if self.refuses:
            raise RequestRefused(1, "AclException: no")


async def ok(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    return RemotingCommand.response(0)


PROCESSORS: dict[int, Handler] = {1: ok}


def guarded(open_bench: Callable[..., Bench], *, refuses: bool = False) -> tuple[Bench, Guard]:
    bench, guard = open_bench(PROCESSORS), Guard(refuses)
    bench.server.handlers = attrs.evolve(bench.server.handlers, access=guard)
    return bench, guard


def served(bench: Bench, *records: tuple[WorkerMessage, bytes]) -> list[RemotingCommand]:
    """The answers to messages between workers."""
    answers: list[RemotingCommand] = []

    async def scene() -> None:
        for kind, record in records:
            bench.write(kind, record)
        await complete()
        answers.extend(bench.commands())

    bench.run(scene)
    return answers


def command(code: int, *, oneway: bool = False) -> tuple[WorkerMessage, bytes]:
    request = RemotingCommand.request(code, oneway=oneway)
    return WorkerMessage.COMMAND, ring_messages.origin_record(Bench.origin()) + request.encode()[4:]


def header_of(code: int, body: bytes) -> bytes:
    """Descriptor and header of the frame of a request."""
    frame = RemotingCommand.request(code, body=body, ext_fields={"b": "T", "a": "G"}).encode()
    return frame[4 : len(frame) - len(body)]


def send(body: bytes = b"body", **fields: int) -> bytes:
    """A SEND that is not certainly allowed, as the codec writes it."""
    return ring_messages.send(Bench.origin(), body, flags=UNCHECKED, **fields) + header_of(310, body)


def pull(body: bytes = b"odd") -> bytes:
    return ring_messages.pull(Bench.origin(), flags=UNCHECKED) + header_of(11, body) + body


@pytest.mark.parametrize("code", [1, 99])
@pytest.mark.parametrize("oneway", [False, True])
def test_a_command_is_checked_before_it_is_served(open_bench: Callable[..., Bench], code: int, oneway: bool) -> None:
    """Also one of a code that nobody serves."""
    bench, guard = guarded(open_bench, refuses=True)
    answers = [(answer.code, answer.remark) for answer in served(bench, command(code, oneway=oneway))]
    assert answers == ([] if oneway else [(1, "AclException: no")])
    assert guard.asked == [(code, HOST)]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("refuses", [False, True])
def test_others_are_served_while_a_long_request_is_checked(
    open_bench: Callable[..., Bench], tasks: int, refuses: bool
) -> None:
    """Fault: The loop of the manager parsed heartbeats of 2 MiB for access control; all others waited for seconds."""
    guard = Guard(gate=trio.Event())
    bench = open_bench({1: ok, 2: ok}, (Pool(name="x", codes=(1, 2), tasks=tasks, queue_max=10),))
    bench.server.handlers = attrs.evolve(bench.server.handlers, access=guard)

    async def scene() -> None:
        bench.request(2, 10)
        bench.request(1, 20, connection=OTHER)
        await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(20, 0)]
        guard.refuses = refuses
        assert guard.gate is not None
        guard.gate.set()
        await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(10, int(refuses))]
        assert guard.asked == [(1, HOST), (2, HOST)], "each is checked once"

    bench.run(scene)


@pytest.mark.parametrize("is_changed", [False, True])
def test_an_allowed_request_that_waits_is_checked_again_if_accounts_change(
    open_bench: Callable[..., Bench], is_changed: bool
) -> None:
    """Fault: A heartbeat that had been allowed was served up to 31 s after its account was removed."""
    gate, guard, served = trio.Event(), Guard(), []

    async def serve(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        served.append(request.opaque)
        await gate.wait()
        return RemotingCommand.response(0)

    pools = (Pool(name="client", codes=(1, 34), tasks=1, queue_max=10),)
    bench = open_bench({1: serve, 34: serve}, pools, inline={34: lambda request, channel: None}, access=guard)

    async def scene() -> None:
        bench.request(1, 10)
        await complete()
        bench.request(34, 20, connection=OTHER)  # allowed at once, then it waits for the only task
        await complete()
        assert [code for code, *_ in guard.asked] == [1, 34]
        guard.refuses, guard.version = True, int(is_changed)
        gate.set()
        await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(10, 0), (20, int(is_changed))]
        assert served == ([10] if is_changed else [10, 20])
        assert guard.counted == ([False, False, True] if is_changed else [False, False]), "its account pays once"

    bench.run(scene)


def test_a_long_request_that_was_allowed_and_waits_is_checked_again_if_accounts_change(
    open_bench: Callable[..., Bench],
) -> None:
    guard, gate, served = Guard(gate=trio.Event()), trio.Event(), []

    async def serve(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        served.append(request.opaque)
        await gate.wait()
        return RemotingCommand.response(0)

    bench = open_bench({1: serve, 2: serve}, (Pool(name="x", codes=(1, 2), tasks=1, queue_max=10),), access=guard)

    async def scene() -> None:
        bench.request(2, 10)
        await complete()
        bench.request(1, 20, connection=OTHER)
        await complete()
        assert guard.gate is not None
        guard.gate.set()  # it is allowed, and waits for the only task
        await complete()
        assert served == [20]
        guard.refuses, guard.version = True, 1
        gate.set()
        await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(20, 0), (10, 1)]
        assert (served, guard.counted) == ([20], [False, False, True])

    bench.run(scene)


def test_an_allowed_command_is_served(open_bench: Callable[..., Bench]) -> None:
    bench, _ = guarded(open_bench)
    assert [answer.code for answer in served(bench, command(1))] == [0]


def test_an_unchecked_send_is_checked_with_the_body_that_is_stored(open_bench: Callable[..., Bench]) -> None:
    bench, guard = guarded(open_bench)
    served(bench, (WorkerMessage.SEND, send()), (WorkerMessage.PULL, pull()))
    fields = {"b": "T", "a": "G"}
    assert guard.asked == [(310, HOST, b"body", fields, "T", "G"), (11, HOST, b"odd", fields, "T", "G")]
    told = [one for one in bench.slow_path.told if isinstance(one, SendRequest | PullRequest)]
    assert [one.raw for one in told] == [
        ring_messages.send(Bench.origin(), b"body"),
        ring_messages.pull(Bench.origin()),
    ]


def test_a_refused_send_or_pull_is_answered_and_goes_no_further(open_bench: Callable[..., Bench]) -> None:
    bench, _ = guarded(open_bench, refuses=True)
    answers = served(bench, (WorkerMessage.SEND, send(opaque=5)), (WorkerMessage.PULL, pull()))
    assert [(answer.opaque, answer.remark) for answer in answers] == [(5, "AclException: no"), (0, "AclException: no")]
    assert not any(isinstance(one, SendRequest | PullRequest) for one in bench.slow_path.told)


def test_a_checked_record_stays_as_it_is() -> None:
    record = ring_messages.send(Bench.origin(), b"body")
    assert unchecked(record, WorkerMessage.SEND) == (record, None, True)
    assert SEND_REQUEST.read(unchecked(send(), WorkerMessage.SEND)[0]).flags == 0
    assert PULL_REQUEST.read(unchecked(pull(), WorkerMessage.PULL)[0]).flags == 0


def test_the_guard_is_told_what_the_limits_of_its_account_have(open_bench: Callable[..., Bench]) -> None:
    bench, guard = guarded(open_bench)
    flags = UNCHECKED | lib.RP_REQUEST_COUNTED
    counted = ring_messages.send(Bench.origin(), b"body", flags=flags) + header_of(310, b"body")
    served(bench, (WorkerMessage.SEND, send()), (WorkerMessage.SEND, counted), (WorkerMessage.PULL, pull()))
    assert guard.counted == [False, True, False]
    assert SEND_REQUEST.read(unchecked(counted, WorkerMessage.SEND)[0]).flags == 0
