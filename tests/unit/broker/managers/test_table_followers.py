"""A synchronous master acknowledges changes of topics and groups when its slaves have saved them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.managers.table_followers import (
    FOLLOWERS_MAX,
    FOLLOWS_S,
    TABLE_VERSION,
    WAIT_S,
    TableFollowers,
    version_text,
)
from rocketpy.codes import RequestCode
from rocketpy.config import BrokerRole
from rocketpy.networks import parse_networks
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import CREATE_TOPIC, FakeChannel, SlowPathRig

TOPICS, GROUPS = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
SLAVE = Peer("10.0.0.7", 4001)


def version(counter: int) -> DataVersion:
    return DataVersion(counter=counter, timestamp_ms=1000 + counter)


def timed(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test by a clock that jumps to the next deadline."""

    @functools.wraps(test)
    def run() -> None:
        trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))

    return run


class Master:
    """Its versions are those of the test."""

    def __init__(self) -> None:
        self.counter = 5
        versions = {int(code): lambda: version(self.counter) for code in (TOPICS, GROUPS)}
        self.followers = TableFollowers(versions, parse_networks("10.0.0.0/24"))

    def asks(self, counter: int, code: int = TOPICS, peer: Peer = SLAVE) -> bool:
        request = RemotingCommand.request(code, ext_fields={TABLE_VERSION: version_text(version(counter))})
        return self.followers.has_version(request, FakeChannel(1, peer))

    async def waited_s(self, code: int = TOPICS) -> float:
        begun_s = trio.current_time()
        await self.followers.wait(code)
        return trio.current_time() - begun_s


@timed
async def test_nobody_is_waited_for_if_nobody_follows() -> None:
    assert await Master().waited_s() == 0


@timed
async def test_a_change_waits_until_the_slave_names_its_version() -> None:
    master = Master()
    assert not master.asks(4) and master.asks(5)
    assert await master.waited_s() == 0
    master.counter = 6
    async with trio.open_nursery() as nursery:

        async def slave() -> None:
            await trio.sleep(0.2)
            assert not master.asks(5)
            await trio.sleep(0.2)
            assert master.asks(6)

        nursery.start_soon(slave)
        assert await master.waited_s() == pytest.approx(0.4)
    assert await master.waited_s(GROUPS) == 0, "it has not asked for groups"


@timed
async def test_the_wait_is_bounded_and_a_silent_slave_is_forgotten() -> None:
    master = Master()
    master.asks(4)
    assert await master.waited_s() == pytest.approx(WAIT_S)
    await trio.sleep(FOLLOWS_S)
    assert await master.waited_s() == 0


@timed
async def test_strangers_and_crowds_are_not_waited_for() -> None:
    master = Master()
    assert master.asks(5, peer=Peer("192.168.0.1", 1)), "the answer is the same for everybody"
    master.asks(0, peer=Peer("192.168.0.1", 2))
    assert await master.waited_s() == 0
    for port in range(FOLLOWERS_MAX):
        master.asks(5, peer=Peer("10.0.0.8", port))
    master.asks(1)
    assert await master.waited_s() == 0


@pytest.mark.parametrize("text", ["", "x", "1.", ".", "9" * 400])
def test_a_version_that_is_none_is_an_old_one(text: str) -> None:
    async def main() -> None:
        master = Master()
        request = RemotingCommand.request(TOPICS, ext_fields={TABLE_VERSION: text})
        assert not master.followers.has_version(request, FakeChannel(1, SLAVE))
        assert await master.waited_s() == pytest.approx(WAIT_S)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_a_topic_is_acknowledged_when_its_slave_has_it(
    tmp_path: Path, role: BrokerRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an asynchronous group at once."""

    async def at_once(work: Callable[..., object], *arguments: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)  # else the clock jumps while a thread saves
    rig = SlowPathRig(tmp_path, broker_role=role, ha_addresses="10.0.0.0/24")
    topics = rig.services.topics

    async def ask(known: DataVersion | None) -> RemotingCommand:
        fields = {} if known is None else {TABLE_VERSION: version_text(known)}
        answer: RemotingCommand = await rig.ask(TOPICS, fields)
        return answer

    async def main() -> float:
        assert (await ask(topics.data_version)).body == b"{}"
        whole = await ask(None)
        assert whole.body and b"topicConfigTable" in whole.body
        begun_s = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def slave() -> None:
                await trio.sleep(0.3)
                assert (await ask(topics.data_version)).body == b"{}"

            nursery.start_soon(slave)
            assert (await rig.ask(17, CREATE_TOPIC)).code == 0
            took_s = trio.current_time() - begun_s
        assert topics.select("T") is not None
        return took_s

    took_s = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert took_s == pytest.approx(0.3 if role is BrokerRole.SYNC_MASTER else 0.0, abs=0.05)
