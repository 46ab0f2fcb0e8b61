"""A restarted manager knows the clients that were online when the previous one died."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketpy.broker.broker import BrokerController
from rocketpy.broker.managers.client_channel import CHANNEL_EXPIRED_MS, ClientChannelInfo, LastHeartbeat
from rocketpy.broker.managers.client_journal import ClientJournal
from rocketpy.broker.managers.consumer import COMES_BACK_MS
from rocketpy.broker.memory.manager_memory import ManagerMemory
from rocketpy.errors import RequestRefused
from rocketpy.remoting.abc import Peer
from tests.support.slow_path import NOW_MS, FakeChannel, SlowPathRig


class Lives(SlowPathRig):
    """A broker of which the manager dies, again and again."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.memory = ManagerMemory.private()
        self.channels: dict[int, FakeChannel] = {}
        self.gone: set[int] = set()
        self.die()

    def die(self) -> None:
        """The manager is restarted; the objects of the previous one are forgotten."""
        self.fast_path.calls.clear()
        self.broker = BrokerController(
            self.settings,
            self.store,
            self.fast_path,
            self.name_servers,
            attrs.evolve(self.process(), memory=self.memory),
        )
        self.broker.load(self.open_channel, self.gone.__contains__)
        self.services, self.processors = self.broker.services, self.broker.processors()

    def open_channel(self, connection: int, peer: Peer, is_vip: bool) -> FakeChannel:
        return self.channels.setdefault(connection, FakeChannel(connection, peer, is_vip))

    def beat(self, client_id: str, connection: int, **more: Any) -> None:
        channel = self.open_channel(connection, Peer("10.0.0.1", 4000 + connection % 1000), False)
        trio.run(lambda: self.heartbeat(client_id, channel=channel, **more))
        self.tell_members()

    def leave(self, connection: int, fields: dict[str, str]) -> None:
        channel = self.open_channel(connection, Peer("10.0.0.1", 4000 + connection % 1000), False)
        trio.run(lambda: self.ask(35, fields, channel=channel))

    def state(self) -> dict[str, Any]:
        """All that clients and send and pull workers can see of the tables."""
        groups = {}
        for name in ("G", "H"):
            entry = self.services.consumers.group(name)
            if entry is not None:
                members = sorted(
                    (info.client_id, info.connection, str(info.channel.peer)) for info in entry.channels.values()
                )
                groups[name] = (entry.consume_type, entry.message_model, entry.subscriptions, members)
        producers = {
            group: sorted((info.client_id, info.connection) for info in infos)
            for group, infos in self.services.producers.groups.items()
        }
        return {"groups": groups, "producers": producers, "size": self.services.consumers.size}


def test_members_subscriptions_and_producers_are_there_at_once(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "TagA"}, producer="P")
    lives.beat("b", 2, group="G", topics={"T": "TagA", "U": "*"}, sub_version=7)
    before = lives.state()
    lives.die()
    assert lives.state() == before
    told = lives.fast_path.named("subscription_changed")
    assert [(group, topic, what["sub_version"]) for group, topic, what in told] == [("G", "T", 7), ("G", "U", 7)]
    trio.run(lives.services.groups.announce)
    assert dict(lives.fast_path.named("group_changed"))["G"]["is_online"] is True
    assert trio.run(lambda: lives.ask(38, {"consumerGroup": "G"})).code == 0
    assert not lives.channels[1].pushed[2:], "nobody is told of a change that is none"


def test_any_history_is_found_again(tmp_path: Path) -> None:
    for seed in range(5):
        choose = random.Random(seed)
        lives = Lives(tmp_path / str(seed))
        for step in range(80):
            connection = choose.randrange(1, 7)
            what = choose.randrange(6)
            if what < 3:
                topics = dict.fromkeys(choose.sample(["T", "U", "V"], choose.randrange(1, 4)), "*")
                more = {"producer": choose.choice(["P", "R"])} if choose.random() < 0.5 else {}
                lives.beat(
                    f"client-{connection % 4}",
                    connection,
                    group=choose.choice(["G", "H"]),
                    topics=topics,
                    model=choose.choice(["CLUSTERING", "BROADCASTING"]),
                    sub_version=step,
                    **more,
                )
            elif what == 3:
                lives.broker.connection_closed(connection)
            elif what == 4:
                fields = {"clientID": "", "consumerGroup": choose.choice(["G", "H"]), "producerGroup": "P"}
                lives.leave(connection, fields)
            else:
                before = lives.state()
                lives.die()
                assert lives.state() == before, f"seed {seed}, step {step}"


def test_a_connection_that_closed_while_it_was_served_is_not_found_again(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"})
    lives.beat("b", 2, group="G", topics={"T": "*"})
    lives.broker.connection_closing(2)
    lives.beat("b", 2, group="G", topics={"T": "*"}, producer="P")  # what was being served
    lives.die()
    entry = lives.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["a"] and lives.services.producers.groups == {}
    lives.tell_members()
    assert [command.code for command in lives.channels[1].pushed[-1:]] == [40], "the rest is told"
    lives.die()
    assert lives.services.consumers.group("G") is not None, "once is enough"


def test_members_stay_when_their_selector_dies_until_they_had_the_time_to_come_back(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"}, producer="P")
    lives.beat("b", 2, group="G", topics={"T": "*"})
    before = notices(lives)
    lives.gone.update((1, 2))
    for _ in lives.broker.drop_connections(lives.gone.__contains__):
        pass
    assert lives.services.producers.groups == {}, "a producer has no part in anything that others share"
    lives.beat("a", 3, group="G", topics={"T": "*"})
    for manager in range(2):
        entry = lives.services.consumers.group("G")
        assert entry is not None and sorted(entry.client_ids) == ["a", "b"], f"manager {manager}"
        assert notices(lives) == before, "for the group nothing has changed"
        lives.die()
    lives.clock.advance(COMES_BACK_MS + 1)
    lives.beat("a", 3, group="G", topics={"T": "*"})
    trio.run(lives.broker._sweep_clients)
    entry = lives.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["a"]
    assert notices(lives) == before + 1, "one member is left, and told"


def test_a_request_that_was_under_way_when_its_selector_died_ends_no_membership(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"})
    lives.gone.add(1)
    lives.broker.connection_closed(1)
    assert lives.services.consumers.group("G") is not None


def notices(lives: Lives) -> int:
    lives.tell_members()
    return sum(command.code == 40 for channel in lives.channels.values() for command in channel.pushed)


def test_nobody_is_swept_because_a_manager_died(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"})
    lives.clock.advance(CHANNEL_EXPIRED_MS - 1)
    lives.die()
    lives.clock.advance(CHANNEL_EXPIRED_MS)
    trio.run(lives.broker._sweep_clients)
    assert not lives.channels[1].is_closed


def test_a_heartbeat_that_says_nothing_new_writes_nothing(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"}, producer="P")
    before = bytes(lives.memory.clients)
    lives.clock.advance(30_000)
    lives.beat("a", 1, group="G", topics={"T": "*"}, producer="P")
    assert bytes(lives.memory.clients) == before


def test_the_end_of_the_last_member_leaves_nothing_behind(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"}, producer="P")
    lives.broker.connection_closing(1)
    lives.broker.connection_closed(1)
    assert lives.memory.clients_journal().entries == {}


def test_all_that_a_group_says_is_found_again(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    subscription = {
        "topic": "T",
        "subString": "a || b",
        "subVersion": 1763779816000,
        "expressionType": "TAG",
        "tagsSet": ["a", "b"],
        "codeSet": [97, 98],
        "classFilterMode": True,
    }
    consumer = {
        "groupName": "G",
        "consumeType": "CONSUME_ACTIVELY",
        "messageModel": "BROADCASTING",
        "consumeFromWhere": "CONSUME_FROM_TIMESTAMP",
        "subscriptionDataSet": [subscription, {"topic": "U"}],
    }
    channel = lives.open_channel(1, Peer("10.0.0.1", 4001), False)
    trio.run(lambda: lives.ask(34, None, {"clientID": "a", "consumerDataSet": [consumer]}, channel=channel))
    before = lives.services.consumers.group("G")
    lives.die()
    after = lives.services.consumers.group("G")
    assert before is not None and after is not None
    assert after.description == before.description and after.description[3]


def test_large_groups_cannot_make_a_restarted_manager_forget_the_others(tmp_path: Path) -> None:
    """Fault: Heartbeats with megabytes of subscriptions made a restarted manager forget all clients."""
    lives = Lives(tmp_path)
    lives.beat("a", 1, group="G", topics={"T": "*"})
    for number in range(20):
        lives.beat("b", 2, group=f"L{number}", topics={f"T{n}-{'x' * 50}": "*" for n in range(30)})
    size = lives.broker.table_sizes()[-1]
    assert size.what == "bytes of online clients" and size.refused > 0
    assert size.entries is not None and 0 < size.entries < size.maximum
    lives.die()
    known = [group for group in ("G", *(f"L{n}" for n in range(20))) if lives.services.consumers.group(group)]
    assert "G" in known and 2 < len(known) < 20
    lives.broker.connection_closed(2)
    lives.beat("c", 3, group="L19", topics={f"T{n}-{'x' * 50}": "*" for n in range(30)})
    lives.die()
    assert lives.services.consumers.group("L19"), "there is room again"


def test_a_client_of_many_groups_is_written_down_once_per_step_not_once_per_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of it names all of its groups.
    Fault: A client of 2048 groups stalled the manager for 1.6 s when it closed."""
    lives = Lives(tmp_path)
    written: list[int] = []
    write = ClientJournal._client
    monkeypatch.setattr(
        ClientJournal, "_client", lambda self, connection: (written.append(connection), write(self, connection))
    )
    lives.die()
    groups = 120
    body = {
        "clientID": "a",
        "consumerDataSet": [{"groupName": f"G{n}", "subscriptionDataSet": []} for n in range(groups)],
        "producerDataSet": [{"groupName": f"P{n}"} for n in range(groups)],
    }

    def beat(connection: int) -> None:
        channel = lives.open_channel(connection, Peer("10.0.0.1", 4000), False)
        assert trio.run(lambda: lives.ask(34, None, body, channel=channel)).code == 0

    beat(1)
    assert written == [1, 1], "by consumers and by producers"
    before = lives.state()
    lives.die()
    assert lives.state() == before
    written.clear()
    beat(2)  # the same client, on another connection
    assert written.count(1) == 1 and written.count(2) == 2
    written.clear()
    lives.broker.connection_closed(1)
    assert set(written) <= {1} and len(written) <= 2
    written.clear()
    lives.clock.advance(CHANNEL_EXPIRED_MS + 1)
    trio.run(lives.broker._sweep_clients)
    assert len(written) <= 2 and lives.services.consumers.group("G0") is None
    beat(3)
    written.clear()
    lives.broker.connection_closed(3)
    assert written == [3, 3]
    lives.die()
    assert lives.state() == {"groups": {}, "producers": {}, "size": 0}


def test_a_heartbeat_that_fails_midway_is_written_down_as_far_as_it_came(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    register = lives.services.consumers.register

    def failing(group: str, *args: Any, **kwargs: Any) -> bool:
        if group == "H":
            raise RequestRefused(1, "no room")
        return register(group, *args, **kwargs)

    lives.services.consumers.register = failing  # type: ignore[method-assign]
    body = {"clientID": "a", "consumerDataSet": [{"groupName": name, "subscriptionDataSet": []} for name in "GH"]}
    channel = lives.open_channel(1, Peer("10.0.0.1", 4000), False)
    assert trio.run(lambda: lives.ask(34, None, body, channel=channel)).code == 1
    lives.die()
    entry = lives.services.consumers.group("G")
    assert entry is not None and entry.client_ids == ["a"]


def test_accounts_of_clients_are_kept(tmp_path: Path) -> None:
    lives, channel = Lives(tmp_path), FakeChannel(1)
    for key in ("first", "second"):
        info = ClientChannelInfo(channel, "a", "JAVA", 409, LastHeartbeat(lives.clock.monotonic_ms(), NOW_MS), key)
        lives.services.producers.register("P", info)
        lives.services.producers.changes.tell()
    lives.die()
    assert [info.access_key for info in lives.services.producers.members("P")] == ["second"]
