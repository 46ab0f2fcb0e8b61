"""An exception at the first line of a processor, a callback or a duty: its request is answered with an error, all
others are served as if nothing had happened.

The manager is put together as in processes/workers/manager.py: the broker behind the rings of the reactor. The test
plays the send, pull and store workers, the name servers and the log.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import BrokerSettings
from rocketpy.reactor import worker_messages
from rocketpy.reactor.handlers import Handlers
from rocketpy.reactor.pools import broker_pools
from rocketpy.reactor.worker_messages import WorkerMessage
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import SendRequest
from tests.support import ring_messages
from tests.support.failing_duties import Broken, failing_duties
from tests.support.request_bench import CONNECTION, Bench, complete
from tests.support.slow_path import SlowPathRig

CODES = sorted(int(code) for code in RequestCode)
ROUNDS = 2
# The codes that fail together: the rows and the columns of a square. Any other code is served in one of the two.
SIDE = math.isqrt(len(CODES) - 1) + 1
GROUPS = [
    *(tuple(CODES[at : at + SIDE]) for at in range(0, len(CODES), SIDE)),
    *(tuple(CODES[at::SIDE]) for at in range(SIDE)),
]


def fail(*_: object, **__: object) -> None:
    raise Broken("injected")


@attrs.define
class FastPath:
    """What the server asks of RingFastPath, with nothing behind it."""

    results: int = 0
    completed: int = 0

    def send_arrived(self, request: SendRequest) -> None: ...

    def complete(self, request: SendRequest) -> None:
        self.completed += 1

    def put_finished(self, record: bytes) -> None:
        self.results += 1

    def cleaned(self, record: bytes) -> None:
        self.results += 1

    def turn(self) -> None: ...

    def is_idle(self) -> bool:
        return True


class Failing:
    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        raise Broken("injected")


@attrs.define(eq=False)
class Manager:
    bench: Bench
    rig: SlowPathRig
    fast_path: FastPath = attrs.field(factory=FastPath)

    @classmethod
    def open(cls, root: Path) -> Manager:
        rig = SlowPathRig(root)
        pools = broker_pools(BrokerSettings())
        manager = cls(Bench.open(pools.pools, {}, reply_bytes=1 << 20), rig)
        server, fast_path = manager.bench.server, manager.fast_path
        server.pools, server.gateway.faults, server.connections.slow_path = pools, rig.broker.faults, rig.broker
        server.handlers = Handlers(
            processors=dict(rig.processors),
            slow_path=rig.broker,
            fast_path=fast_path,  # type: ignore[arg-type]  # a stand-in with the methods that are used
        )
        return manager

    @property
    def faults(self) -> dict[str, int]:
        return dict(self.rig.broker.faults.counts)

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                self.rig.broker._slow_send.open(nursery)
                await scene()
                nursery.cancel_scope.cancel()

        self.bench.run(main)

    async def answers(self) -> dict[int, int]:
        """Request code -> response code of one request of each code, all at once."""
        found: dict[int, int] = {}
        for code in CODES:
            self.bench.request(code, code)
        while len(found) < len(CODES):  # some wait for a file
            await complete()
            found |= {answer.opaque: answer.code for answer in self.bench.commands()}
        return found


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager.open(tmp_path)
    yield made
    made.bench.close()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[int, int]:
    """What each code is answered when nothing fails."""
    manager, found = Manager.open(tmp_path_factory.mktemp("healthy")), dict[int, int]()

    async def scene() -> None:
        found.update(await manager.answers())

    manager.play(scene)
    manager.bench.close()
    assert found.keys() == set(CODES) and not manager.faults
    return found


@pytest.mark.parametrize("failing", GROUPS, ids=lambda codes: RequestCode(codes[0]).name)
def test_processors_that_fail(manager: Manager, healthy: dict[int, int], failing: tuple[int, ...]) -> None:
    server = manager.bench.server
    processors = {**server.handlers.processors, **dict.fromkeys(failing, Failing())}
    server.handlers = attrs.evolve(server.handlers, processors=processors)

    async def scene() -> None:
        for _ in range(ROUNDS):
            assert await manager.answers() == healthy | dict.fromkeys(failing, ResponseCode.SYSTEM_ERROR)
        assert manager.faults == {RequestCode(code).name: ROUNDS for code in failing}

    manager.play(scene)


def test_each_code_fails_while_any_other_is_served() -> None:
    for code in CODES:
        served = set[int]().union(*({*CODES} - {*group} for group in GROUPS if code in group))
        assert served == {*CODES} - {code}


def messages(bench: Bench) -> dict[str, tuple[WorkerMessage, bytes, int | None]]:
    """Callback -> a message that leads to it, and the opaque that is to be answered."""
    send = ring_messages.send(bench.origin(), opaque=9)
    return {
        "slow_send": (WorkerMessage.SEND, send, 9),
        "slow_pull": (WorkerMessage.PULL, ring_messages.pull(bench.origin(), opaque=8), 8),
        "commit_offset": (WorkerMessage.COMMIT_OFFSET, ring_messages.commit_offset(), None),
        "connection_closed": (WorkerMessage.CLOSED, ring_messages.origin_record(bench.origin()), None),
        "put_finished": (WorkerMessage.PUT_RESULT, ring_messages.put_result(0), None),
        "cleaned": (WorkerMessage.CLEANED, worker_messages.encode_clean_topic("T", 1), None),
        "send_arrived": (WorkerMessage.SEND, send, 9),
    }


@pytest.mark.parametrize(
    "name", ["slow_send", "slow_pull", "commit_offset", "connection_closed", "put_finished", "cleaned", "send_arrived"]
)
def test_a_callback_that_fails(
    manager: Manager, healthy: dict[int, int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner = manager.rig.broker if hasattr(manager.rig.broker, name) else manager.fast_path
    monkeypatch.setattr(type(owner), name, fail)
    kind, message, opaque = messages(manager.bench)[name]

    async def scene() -> None:
        for _ in range(ROUNDS):
            manager.bench.write(kind, message)
            await complete()
            answered = [(one.opaque, one.code) for one in manager.bench.commands()]
            assert answered == ([] if opaque is None else [(opaque, ResponseCode.SYSTEM_ERROR)])
            assert await manager.answers() == healthy
        assert sum(manager.faults.values()) == ROUNDS

    manager.play(scene)


@pytest.mark.parametrize("table", ["consumers", "producers"])
def test_a_table_that_cannot_forget_a_connection_keeps_no_other_from_it(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    services, told = manager.rig.services, list[int]()
    other = services.producers if table == "consumers" else services.consumers
    monkeypatch.setattr(type(getattr(services, table)), "connection_closed", fail)
    monkeypatch.setattr(type(other), "connection_closed", lambda _, connection: told.append(connection))

    async def scene() -> None:
        manager.bench.closed()
        await complete()
        assert told == [CONNECTION]

    manager.play(scene)


def duty_names(root: Path) -> list[str]:
    return [duty.name for duty in SlowPathRig(root).broker.duties()]


DUTIES = duty_names(Path("/nonexistent"))


@pytest.mark.parametrize("name", DUTIES)
def test_a_duty_that_fails(tmp_path: Path, name: str) -> None:
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876")
    duties, calls = failing_duties(rig.broker.duties(), name)
    rig.broker.duties = lambda: duties  # type: ignore[method-assign]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            await trio.sleep(9.5)
            assert (await rig.ask(RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS
            assert calls[name] == 10 and rig.broker.faults.counts == {name: 10}
            assert all(calls.values())
            await rig.broker.stop()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("failing", range(6))
def test_a_table_that_cannot_be_saved_at_the_end_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    rig = SlowPathRig(tmp_path)
    saved: list[Path] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            for file in rig.broker._files:
                file.changed()
            broken = rig.broker._files[failing]
            monkeypatch.setattr(broken, "_pieces", fail)
            await rig.broker.stop()
            saved.extend(file.path for file in rig.broker._files if file.path.exists())
            assert broken.path not in saved and len(saved) == len(rig.broker._files) - 1

    trio.run(main)
