"""A slave's copy of its master's tables: two brokers without processes, one asks the other."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.broker.managers.topics_position import saved_position
from rocketpy.broker.slaves.slave_synchronize import LOOK_S, NOT_SUPPORTED_S, PAUSE_MAX_S, PAUSE_MIN_S, deleted_below
from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError, StoreError
from rocketpy.message.names import TRANS_GROUP, TRANS_HALF_TOPIC
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.offset import LogMark
from rocketpy.remoting.bodies.topic import DELETED_BELOW, TopicConfig
from rocketpy.remoting.command import RemotingCommand
from tests.support.copied_tables import MASTER, Pair, at_once


class Unknown:
    """A broker that does not know the request."""

    async def process(self, request: RemotingCommand, channel: object) -> RemotingCommand:
        return RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "unknown")


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_topics_and_groups_with_their_versions(pair: Pair) -> None:
    master, slave = pair.master.services, pair.slave.services
    master.topics.update(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=2, perm=4))
    master.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    pair.run()
    assert pair.codes == [21, 43, 45, 201, 30_002]
    assert slave.topics.select("T") == master.topics.select("T")
    assert slave.groups.select("G") == master.groups.select("G")
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.data_version == master.groups.data_version
    assert not slave.topics.file.is_dirty and not slave.groups.file.is_dirty
    told = pair.slave.fast_path.named("topic_changed")
    assert told
    pair.run()
    assert pair.slave.fast_path.named("topic_changed") == told  # the versions are equal: nothing is done again


def test_a_slave_saves_up_to_where_it_knows_all_topics(pair: Pair) -> None:
    """Messages that come after the question may be of topics that the answer does not have."""
    store, topics = pair.slave.store, pair.slave.services.topics
    path = topics.file.path
    pair.after_answer = lambda: setattr(store, "end", store.end + 1)
    store.end = 500
    pair.master.services.topics.update(TopicConfig(topic_name="T"))
    pair.run()
    assert list(json.loads(path.read_text()).items())[-1] == ("phyOffset", 500)
    pair.after_answer = lambda: None
    store.end = 700
    pair.run()
    assert topics.position.below == 700 and not topics.file.is_dirty, "a table that is the same is not saved each time"
    text = path.read_bytes()
    trio.run(pair.slave.broker.topics_of_log.keep)
    assert saved_position(path)[1] == 700 and path.read_bytes() == text


def test_a_topic_for_which_there_is_no_room_does_not_hold_up_the_position(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new master would have no room for it either. The topic is tried again, and the table is not saved each time.
    Fault: One topic without room on a slave had its table saved five times a second."""
    pair.run()
    topics = pair.slave.services.topics
    pair.master.services.topics.update(TopicConfig(topic_name="T"))
    with monkeypatch.context() as patch:
        patch.setattr(topics._tables, "topic", no_room)
        for pair.slave.store.end in (5_000, 5_500):
            pair.run()
            assert topics.position.below == pair.slave.store.end
        assert topics.file.changes == 0 and topics.select("T") is None
    pair.run()
    assert topics.select("T") is not None and topics.file.changes == 1


def no_room(config: TopicConfig) -> None:
    raise StoreError("no room")


def test_what_the_master_removes_is_removed_with_its_queues(pair: Pair) -> None:
    master, slave = pair.master.services, pair.slave.services
    master.topics.update(TopicConfig(topic_name="T"))
    master.groups.update(SubscriptionGroupConfig(group_name="G"))
    pair.run()
    master.topics.delete("T")
    master.groups.delete("G")
    pair.run()
    assert slave.topics.select("T") is None and slave.groups.select("G") is None
    assert pair.slave.fast_path.named("delete_queues") == [("T", 4096)]
    assert slave.topics.select("TBW102") is not None and slave.groups.select("TOOLS_CONSUMER") is not None


def has_orders(pair: Pair) -> bool:
    """Whether the slave still has what `give_orders` gave it, and was not told to delete anything."""
    services, fast_path = pair.slave.services, pair.slave.fast_path
    assert not fast_path.named("delete_queues")
    return services.topics.select("Orders") is not None and services.groups.select("G") is not None


def give_orders(pair: Pair) -> None:
    pair.slave.services.topics.update(TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4))
    pair.slave.services.groups.update(SubscriptionGroupConfig(group_name="G"))


def test_a_master_that_is_not_followed_takes_nothing_away(pair: Pair) -> None:
    """An empty master, which the replicator does not follow: this store has messages that it lacks.
    Fault: A slave removed its topics and their queues after its master had lost its store."""
    give_orders(pair)
    pair.followed = ""
    pair.copy.found(MASTER, "10.0.0.9:10912")
    pair.run()
    assert has_orders(pair) and not pair.codes


def test_what_comes_when_the_master_is_followed_no_more_is_not_taken(pair: Pair) -> None:
    def halt() -> None:
        pair.followed = ""

    give_orders(pair)
    pair.after_answer = halt
    pair.run()
    assert has_orders(pair) and pair.codes == [21]


def test_removing_ends_when_the_master_is_followed_no_more(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def delete_queues(topic: str, below: int) -> None:
        deleted.append(topic)
        pair.followed = ""

    deleted: list[str] = []
    give_orders(pair)
    pair.slave.services.topics.update(TopicConfig(topic_name="T"))
    version = pair.slave.services.topics.data_version
    monkeypatch.setattr(pair.copy, "_delete_queues", delete_queues)
    pair.run()
    assert len(deleted) == 1 and pair.codes == [21]
    assert pair.slave.services.topics.data_version != pair.master.services.topics.data_version != version


@pytest.mark.parametrize("answer", [b"{}", b'{"dataVersion":{"counter":9}}', b'{"topicConfigTable":null}', b"[]"])
def test_an_answer_without_a_table_removes_nothing(pair: Pair, answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    give_orders(pair)
    pair.answer = answer
    pair.run()
    assert has_orders(pair) and "the answer has no topicConfigTable" in caplog.text
    for copy, table in ((pair.copy._copy_groups, "subscriptionGroupTable"), (pair.copy._copy_offsets, "offsetTable")):
        with pytest.raises(RocketError, match=f"the answer has no {table}"):
            trio.run(copy, MASTER)
    assert has_orders(pair)


def test_records_that_came_after_the_question_outlive_the_removal(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be of a topic of the same name that the master has created again.
    Fault: A slave could lose new messages of a topic that its master deleted and created again."""
    ends = iter([500, 900])
    statistics = pair.slave.store.statistics

    def later() -> Any:
        return SimpleNamespace(published_phy_offset=next(ends), min_phy_offset=statistics().min_phy_offset)

    monkeypatch.setattr(pair.slave.store, "statistics", later)
    pair.slave.services.topics.update(TopicConfig(topic_name="T"))
    pair.run()
    assert pair.slave.fast_path.named("delete_queues") == [("T", 500)]


def test_a_topic_that_was_deleted_and_created_again_between_two_rounds(pair: Pair) -> None:
    """Its tables are as before; its old messages must go from the slave as well.
    Fault: A slave kept old messages of a topic deleted and recreated between two rounds of copies."""
    pair.master.services.topics.update(TopicConfig(topic_name="T"))
    pair.run()
    pair.master.services.topics.delete("T")
    pair.master.services.topics.update(TopicConfig(topic_name="T"))
    pair.master.fast_path.recent_deletions = {"T": 4096, "Later": 4097}
    pair.run()
    pair.run()
    assert pair.slave.fast_path.named("delete_messages") == [("T", 4096)]  # the log has not got to 4097
    assert pair.slave.services.topics.select("T") is not None
    pair.master.fast_path.recent_deletions = {"T": 4096 - 1}  # the master's manager has forgotten, and tells another
    pair.run()
    assert len(pair.slave.fast_path.named("delete_messages")) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"T":"1"}', '{"T":-1}', '{"T":true}', '{"T":1.5}'])
def test_deletions_that_are_none(text: str) -> None:
    assert deleted_below(RemotingCommand.response(ext_fields={DELETED_BELOW: text})) == {}


def test_offsets_and_the_progress_of_delay_levels(pair: Pair) -> None:
    master, slave = pair.master.services, pair.slave.services
    master.offsets.commit("G", "T", 0, 7)
    master.offsets.commit("G", "T", 1, 9)
    slave.offsets.commit("G", "T", 0, 100)  # overwritten, as by the reference
    slave.offsets.commit("own", "T", 0, 5)
    for queue_id in (0, 1):
        pair.slave.store.fill("T", queue_id, 10)
    master.schedule.follow(LogMark(offset_table={1: 90, 4: 2}))
    pair.run()
    assert slave.offsets.query_all("G", "T") == {0: 7, 1: 9} and slave.offsets.query("own", "T", 0) == 5
    assert len(slave.offsets) == 3
    assert slave.schedule.document() == {"offsetTable": {1: 90, 4: 2}} and slave.schedule.file.is_dirty


FILTERS = {"enable_property_filter": True, "enable_calc_filter_bit_map": True, "enable_consume_queue_ext": True}


def subscription(expression: str, version: int) -> dict[str, SubscriptionData]:
    return {"T": SubscriptionData(topic="T", sub_string=expression, expression_type="SQL92", sub_version=version)}


def test_the_progress_of_transactions_waits_for_the_slaves_log(pair: Pair) -> None:
    """It says that half messages have ended: where the log lacks their ends, they have to be asked about."""
    master, slave = pair.master.services, pair.slave.services
    pair.master.store.end = pair.master.store.durable = 5000
    master.transactions.progress.propose(7, 6)
    pair.run()
    assert slave.offsets.query_all(TRANS_GROUP, TRANS_HALF_TOPIC) == {}
    pair.slave.store.end = pair.slave.store.durable = 5000
    pair.run()
    assert slave.offsets.query_all(TRANS_GROUP, TRANS_HALF_TOPIC) == {0: 7}
    assert slave.transactions.progress.newest == master.transactions.progress.newest


def test_filters_of_groups_that_are_not_connected_here(tmp_path: Path) -> None:
    pair = Pair(tmp_path, **FILTERS)
    ours, theirs = pair.slave.services.filters, pair.master.services.filters
    theirs.register("G", subscription("a > 1", 5))
    pair.run()
    copied = ours.find("G", "T")
    assert copied is not None and (copied.expression, copied.client_version, copied.is_dead) == ("a > 1", 5, False)
    assert pair.slave.fast_path.named("filter_changed") and not ours.file.is_dirty
    theirs.register("G", subscription("a > 2", 6))
    theirs.unregister("G")
    pair.run()
    copied = ours.find("G", "T")
    assert copied is not None and copied.expression == "a > 2" and copied.is_dead


def test_filters_are_sent_again_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path, **FILTERS)
    pair.master.services.filters.register("G", subscription("a > 1", 5))
    pair.run()
    followed: list[object] = []

    async def follow(document: object, is_online: object) -> None:
        followed.append(document)

    monkeypatch.setattr(pair.slave.services.filters, "follow", follow)
    pair.run()
    assert not followed
    pair.master.services.filters.register("G", subscription("a > 2", 6))
    pair.run()
    assert len(followed) == 1


def test_what_a_consumer_says_here_is_newer_than_the_masters_filter(tmp_path: Path) -> None:
    pair = Pair(tmp_path, **FILTERS)
    pair.slave.services.filters.register("G", subscription("a > 9", 7))
    pair.master.services.filters.register("G", subscription("a > 1", 5))
    pair.run()
    kept = pair.slave.services.filters.find("G", "T")
    assert kept is not None and (kept.expression, kept.client_version) == ("a > 9", 7)


def test_a_master_without_the_request_for_filters_is_left_alone_for_a_while(pair: Pair) -> None:
    del pair.master.processors[30_002]
    pair.master.processors[30_002] = Unknown()  # type: ignore[assignment]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.copy.run)
            await trio.sleep(60)
            assert pair.codes.count(30_002) == 1 and pair.codes.count(201) > 10
            await trio.sleep(NOT_SUPPORTED_S)
            assert pair.codes.count(30_002) == 2
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_master_that_does_not_answer_changes_nothing(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.is_down = True
    topics = pair.slave.services.topics.topics
    pair.run()
    pair.run()
    assert pair.slave.services.topics.topics == topics and pair.codes == [21, 21]
    assert caplog.text.count("cannot copy a table of the master") == 1


def test_the_log_line_about_a_refusal_is_bounded(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A master that refused a table with a long remark wrote all of it to the log of its slave."""
    pair.refusal = "no\n<0>" + "x" * 10_000
    pair.run()
    (line,) = [record.getMessage() for record in caplog.records if "cannot copy a table" in record.getMessage()]
    assert len(line) < 1000 and "GET_ALL_TOPIC_CONFIG: code 1, no\\n<0>xxx" in line


def test_a_topic_that_has_no_room_here_is_left_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.master.services.topics.update(TopicConfig(topic_name="T"))
    pair.master.services.topics.update(TopicConfig(topic_name="U"))

    def topic_changed(topic: str, **fields: Any) -> None:
        if topic == "T":
            raise StoreError("no room")

    monkeypatch.setattr(pair.slave.fast_path, "topic_changed", topic_changed, raising=False)
    pair.run()
    topics = pair.slave.services.topics
    assert topics.select("T") is None and topics.select("U") is not None
    assert topics.data_version != pair.master.services.topics.data_version
    monkeypatch.undo()
    pair.slave.name_servers.invoke = pair._invoke  # type: ignore[method-assign]
    pair.run()  # there is room now
    assert topics.select("T") is not None and topics.data_version == pair.master.services.topics.data_version


def test_without_a_master_nothing_is_asked(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.copy.found(None, None)
    assert pair.copy.master is None


def test_it_is_repeated_and_at_once_when_the_log_brings_a_queue(pair: Pair) -> None:
    """Holds: trap, tables of a slave drift."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.copy.run)
            await trio.sleep(PAUSE_MIN_S / 2)
            assert pair.codes.count(43) == 1
            pair.slave.store.fill("new", 0, 1)
            await trio.sleep(PAUSE_MIN_S / 4 + 0.1)
            assert pair.codes.count(43) == 2
            await trio.sleep(PAUSE_MAX_S)
            assert pair.codes.count(43) >= 3
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("is_old", [False, True])
def test_topics_and_groups_follow_at_once_even_if_a_round_is_long(
    pair: Pair, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from a master that would send the whole tables five times a second."""
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)  # else the clock jumps while a thread saves
    pair.is_old = is_old

    async def main() -> None:
        master, slave = pair.master.services, pair.slave.services
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.copy.run)
            await trio.sleep(PAUSE_MIN_S / 2)
            master.topics.update(TopicConfig(topic_name="T"))
            master.groups.update(SubscriptionGroupConfig(group_name="G"))
            await trio.sleep(2 * LOOK_S)
            assert (slave.topics.select("T") is None, slave.groups.select("G") is None) == (is_old, is_old)
            assert slave.topics.file.is_dirty is False and pair.codes.count(43) == 1
            await trio.sleep(PAUSE_MIN_S)
            assert slave.topics.select("T") is not None and slave.groups.select("G") is not None
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
