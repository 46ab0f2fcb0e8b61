"""The table of producers: by group in turn, by client id until its last group has gone."""

from __future__ import annotations

from rocketpy.broker.managers.client_channel import CHANNEL_EXPIRED_MS, ClientChannelInfo, LastHeartbeat
from rocketpy.broker.managers.producer import ProducerManager
from rocketpy.remoting.work import result_of
from tests.support.slow_path import FakeChannel, FakeClock


def info(client_id: str, channel: FakeChannel, clock: FakeClock, access_key: str = "") -> ClientChannelInfo:
    return ClientChannelInfo(
        channel, client_id, "JAVA", 409, LastHeartbeat(clock.monotonic_ms(), clock.now_ms()), access_key
    )


def test_a_client_is_found_until_its_last_group_is_gone() -> None:
    clock, channel = FakeClock(), FakeChannel(1)
    producers = ProducerManager(clock)
    for group in ("P1", "P2"):
        for _ in range(2):
            producers.register(group, info("a", channel, clock))
    producers.unregister("P1", 1)
    assert producers.find_channel("a") is channel
    producers.unregister("P2", 1)
    assert producers.find_channel("a") is None and producers.groups == {}


def test_the_connection_heard_last_is_the_one_of_the_client() -> None:
    """Numbers of connections say nothing about their age: a selector gives a free slot again.
    Fault: After a reconnect on a lower slot, replies of request-reply went to the old connection."""
    clock, old, new = FakeClock(), FakeChannel(900), FakeChannel(5)
    producers = ProducerManager(clock)
    for channel in (old, new):
        for group in ("P1", "P2"):
            producers.register(group, info("a", channel, clock))
    assert producers.find_channel("a") is new
    producers.register("P1", info("a", old, clock))
    assert producers.find_channel("a") is old, "it is alive, and the other one was not heard since"
    producers.connection_closed(900)
    assert producers.find_channel("a") is new


def test_the_newest_connection_of_a_client_counts() -> None:
    clock, old, new = FakeClock(), FakeChannel(1), FakeChannel(2)
    producers = ProducerManager(clock)
    producers.register("P", info("a", old, clock))
    producers.register("P", info("a", new, clock))
    assert producers.find_channel("a") is new
    producers.connection_closed(1)
    assert producers.find_channel("a") is new
    producers.connection_closed(2)
    assert producers.find_channel("a") is None


def test_a_channel_that_changes_its_client_id_is_found_by_the_new_one() -> None:
    clock, channel = FakeClock(), FakeChannel(1)
    producers = ProducerManager(clock)
    producers.register("P", info("a", channel, clock))
    producers.register("P", info("b", channel, clock))
    assert producers.find_channel("a") is None and producers.find_channel("b") is channel


def test_members_take_turns() -> None:
    clock, channels = FakeClock(), [FakeChannel(i) for i in (1, 2, 3)]
    producers = ProducerManager(clock)
    assert producers.available_channel("P") is None
    for channel in channels:
        producers.register("P", info(f"c{channel.connection}", channel, clock))
    seen = [producers.available_channel("P") for _ in range(3)]
    assert {id(channel) for channel in seen} == {id(channel) for channel in channels}


def test_silent_producers_are_swept() -> None:
    clock, channel = FakeClock(), FakeChannel(1)
    producers = ProducerManager(clock)
    producers.register("P", info("a", channel, clock))
    clock.advance(CHANNEL_EXPIRED_MS + 1)
    assert result_of(producers.sweep()) == [channel]
    assert producers.groups == {} and producers.find_channel("a") is None


def test_a_client_id_belongs_to_the_account_that_came_first() -> None:
    """Fault: Any account got the replies to the client whose id it named in a heartbeat."""
    clock, old, new, stranger = FakeClock(), FakeChannel(1), FakeChannel(2), FakeChannel(3)
    producers = ProducerManager(clock)
    producers.register("P", info("a", old, clock, "owner"))
    for group in ("P", "Q"):
        producers.register(group, info("a", stranger, clock, "stranger"))
    assert producers.find_channel("a") is old
    producers.register("P", info("a", new, clock, "owner"))
    assert producers.find_channel("a") is new
    producers.connection_closed(1)
    assert producers.find_channel("a") is new
    producers.connection_closed(2)
    assert producers.find_channel("a") is stranger
    producers.connection_closed(3)
    assert producers.find_channel("a") is None and producers.groups == {}


def test_a_connection_may_change_its_account() -> None:
    clock, channel = FakeClock(), FakeChannel(1)
    producers = ProducerManager(clock)
    for group, key in (("P", "old"), ("Q", "old"), ("P", "new"), ("Q", "new")):
        producers.register(group, info("a", channel, clock, key))
        assert producers.find_channel("a") is channel
    producers.connection_closed(1)
    assert producers.find_channel("a") is None and producers.groups == {}
