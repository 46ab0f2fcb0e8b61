"""RingFastPath: each compiled worker is told the tables that it needs, in order, and again after a restart."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path import filter_messages
from rocketpy.broker.fast_path.filter_messages import FILTER, SUBSCRIPTION
from rocketpy.native.core import lib
from rocketpy.reactor import worker_messages
from rocketpy.reactor.outbox import RECORDS_PER_FLUSH
from rocketpy.reactor.worker_messages import (
    TABLES_END,
    WorkerMessage,
)
from rocketpy.remoting.fast_path import FilterPlace
from tests.support.fast_path_desk import ChannelLog, Desk, announce, change_topic, send_request


def test_each_process_is_told_what_it_needs_in_order(desk: Desk) -> None:
    announce(desk.fast_path)
    assert desk.queues.log == [(b"T", 0), (b"T", 1), (b"T", 2)]
    assert desk.kinds("send") == [WorkerMessage.TOPIC, WorkerMessage.BROKER, WorkerMessage.TABLES_END]
    topic, group, subscription, broker, _ = desk.told("pull")
    flags = lib.RP_TOPIC_SLOW
    assert topic == (
        WorkerMessage.TOPIC,
        worker_messages.encode_topic("T", flags=flags, perm=6, read_queue_nums=2, write_queue_nums=3),
    )
    flags = lib.RP_GROUP_CONSUME_ENABLE | lib.RP_GROUP_ONLINE
    assert group == (WorkerMessage.GROUP, worker_messages.encode_group("G", flags=flags, which_broker_when_slow=1))
    assert subscription == (
        WorkerMessage.SUBSCRIPTION,
        filter_messages.encode_subscription("G", "T", flags=0, sub_version=5, tags=["TagA", "TagB"]),
    )
    assert broker == (WorkerMessage.BROKER, worker_messages.BROKER.write(6, 1000, 1))


@pytest.mark.parametrize(
    ("expression_type", "sub_string", "flags"),
    [("TAG", "*", "ALL"), ("TAG", "", "ALL"), ("", "*", "ALL"), ("SQL92", "a > 1", "SLOW")],
)
def test_subscriptions_without_tags(desk: Desk, expression_type: str, sub_string: str, flags: str) -> None:
    """Fault: A subscription to ` || ` or ` * ` selected other messages in the manager than in the pull worker.
    Holds: trap, code sets come from the heartbeat."""
    desk.fast_path.subscription_changed("G", "T", expression_type=expression_type, sub_string=sub_string, sub_version=1)
    wanted = filter_messages.encode_subscription(
        "G", "T", flags=getattr(lib, f"RP_SUBSCRIPTION_{flags}"), sub_version=1
    )
    assert desk.told("pull") == [(WorkerMessage.SUBSCRIPTION, wanted)]


@pytest.mark.parametrize(("sub_string", "tags"), [(" * ", ["*"]), (" || ", [])])
def test_an_expression_without_tags_does_not_select_all(desk: Desk, sub_string: str, tags: list[str]) -> None:
    """As in the reference, and as a pull that brings the same expression is read."""
    desk.fast_path.subscription_changed("G", "T", expression_type="TAG", sub_string=sub_string, sub_version=1)
    wanted = filter_messages.encode_subscription("G", "T", flags=0, sub_version=1, tags=tags)
    assert desk.told("pull") == [(WorkerMessage.SUBSCRIPTION, wanted)]


def test_a_restarted_worker_is_told_everything_that_holds_and_nothing_that_went(desk: Desk) -> None:
    announce(desk.fast_path)
    desk.fast_path.topic_changed("U", perm=6, read_queue_nums=1, write_queue_nums=1, multi_tag=False)
    desk.fast_path.topic_removed("T")
    desk.fast_path.subscription_removed("G", "T")
    desk.fast_path.group_removed("G")
    desk.told("send")
    desk.told("pull")
    desk.blocks["pull"].begin(1)
    assert desk.kinds("send") == []
    again = desk.told("pull")
    assert [kind for kind, _ in again] == [WorkerMessage.BROKER, WorkerMessage.TOPIC, WorkerMessage.TABLES_END]
    assert again[1][1].endswith(b"U")
    assert desk.kinds("pull") == []


def test_removals_are_marked(desk: Desk) -> None:
    desk.fast_path.topic_removed("T")
    ((_, record),) = desk.told("send")
    assert record == worker_messages.encode_topic("T", flags=lib.RP_TABLE_REMOVE)


def test_a_restarted_worker_is_told_large_tables_in_steps_and_what_changes_meanwhile_behind_them(desk: Desk) -> None:
    """Fault: A restarted worker was told all tables in one step of the manager's loop."""

    def change(topic: str, perm: int = 6) -> None:
        desk.fast_path.topic_changed(topic, perm=perm, read_queue_nums=1, write_queue_nums=1, multi_tag=False)

    topics = [f"topic-{n:04}" for n in range(2 * RECORDS_PER_FLUSH + 100)]
    for topic in topics:
        change(topic)
    desk.fast_path.tables_end()
    for name in ("send", "pull"):
        desk.told(name)
    desk.blocks["send"].begin(1)
    assert desk.fast_path.turn(), "there is more to do at once"
    change(topics[-1], perm=2)  # not told yet
    change(topics[0], perm=2)  # told
    desk.fast_path.topic_removed(topics[-2])
    request = send_request(ChannelLog())
    desk.fast_path.resend(request, queue_id=0)
    first = list(iter(desk.readers["send"].read, None))
    assert 0 < len(first) <= RECORDS_PER_FLUSH
    told = first + desk.told("send")
    assert not desk.fast_path.turn()
    removal = worker_messages.encode_topic(topics[-2], flags=lib.RP_TABLE_REMOVE)
    entries = {record[worker_messages.TOPIC.size :]: record for kind, record in told if kind == WorkerMessage.TOPIC}
    assert entries.pop(topics[-2].encode()) == removal
    assert entries == {
        topic.encode(): worker_messages.encode_topic(
            topic, flags=0, perm=2 if topic in (topics[0], topics[-1]) else 6, read_queue_nums=1, write_queue_nums=1
        )
        for topic in topics
        if topic != topics[-2]
    }
    kinds = [kind for kind, _ in told]
    assert kinds[-2:] == [WorkerMessage.SEND, WorkerMessage.TABLES_END]


@pytest.mark.parametrize("name", ["send", "pull"])
def test_a_restarted_worker_serves_after_what_changed_while_it_was_told_the_tables(desk: Desk, name: str) -> None:
    """Otherwise it would serve with an older permission until its ring has room again.
    Fault: A worker restarted during a change of the broker's permission could serve with the old one."""
    for n in range(2 * RECORDS_PER_FLUSH):
        change_topic(desk.fast_path, f"T{n}")
    desk.fast_path.broker_changed(permission=6, max_message_size=1, reject_transactions=False)
    desk.fast_path.tables_end()
    desk.told(name)
    desk.blocks[name].begin(1)
    assert desk.fast_path.turn(), "there is more to do at once"
    desk.fast_path.broker_changed(permission=4, max_message_size=1, reject_transactions=False)
    change_topic(desk.fast_path, "T0", perm=4)
    told = desk.told(name)
    assert told[-1][0] == WorkerMessage.TABLES_END
    of_broker = [worker_messages.BROKER.read(record) for kind, record in told if kind == WorkerMessage.BROKER]
    permissions = [each.permission for each in of_broker]
    assert permissions == [6, 4]
    assert told[-2][1].endswith(b"T0") and [kind for kind, _ in told].count(WorkerMessage.TABLES_END) == 1


def test_a_worker_that_is_restarted_twice_is_told_once(desk: Desk) -> None:
    for n in range(2 * RECORDS_PER_FLUSH):
        desk.fast_path.topic_changed(f"T{n}", perm=6, read_queue_nums=1, write_queue_nums=1, multi_tag=False)
    desk.told("pull")
    for epoch in (1, 2):
        desk.blocks["pull"].begin(epoch)
        desk.fast_path.turn()
    assert len(desk.told("pull")) <= RECORDS_PER_FLUSH + 2 * RECORDS_PER_FLUSH + 1


def test_a_large_send_passes_while_a_restarted_worker_is_told_the_tables(desk: Desk) -> None:
    change_topic(desk.fast_path, "T")
    desk.told("send")
    desk.fast_path._send.outbox.put_all(iter([(WorkerMessage.TOPIC, b"")]))
    channel = ChannelLog()
    desk.fast_path.resend(send_request(channel, body=bytes(50_000)), queue_id=0)
    assert desk.kinds("send")[-1] == WorkerMessage.SEND and not channel.pushed


PLACE = FilterPlace(id=9, mark=3, bit_count=112, positions=(47, 102, 45))


def test_a_subscription_with_a_program_is_told_with_its_filter_bits(desk: Desk) -> None:
    desk.fast_path.subscription_changed(
        "G", "T", expression_type="SQL92", sub_string="a > 1", sub_version=5, program=b"code", place=PLACE
    )
    ((kind, record),) = desk.told("pull")
    fixed = SUBSCRIPTION.read(record)
    assert (kind, fixed.flags, fixed.tag_count) == (WorkerMessage.SUBSCRIPTION, lib.RP_SUBSCRIPTION_ALL, 0)
    assert record[SUBSCRIPTION.size :] == b"GTcode"
    assert (fixed.place.id, fixed.place.mark, fixed.place.bit_count) == (9, 3, 112)
    assert list(fixed.place.positions)[: fixed.place.count] == [47, 102, 45]


def test_the_store_worker_is_told_of_filters_and_of_their_end_and_told_again(desk: Desk) -> None:
    """All filters first: it writes no filter bits before it knows all of them."""
    desk.fast_path.filter_changed("G", "T", program=b"code", place=PLACE)
    desk.fast_path.filter_changed("H", "T", program=b"more", place=PLACE)
    desk.fast_path.tables_end()
    desk.fast_path.filter_removed("H", "T")
    kinds = [kind for kind, _ in desk.all_told("store")]
    assert kinds == [WorkerMessage.FILTER] * 3 + [WorkerMessage.TABLES_END, WorkerMessage.FILTER]
    desk.blocks["store"].begin(1)
    told = desk.all_told("store")
    assert [kind for kind, _ in told] == [WorkerMessage.FILTER] * 2 + [WorkerMessage.TABLES_END]
    cleared, kept, end = (record for _, record in told)
    assert FILTER.read(cleared).topic_size == 0  # those of a previous manager
    assert kept[FILTER.size :] == b"GTcode" and FILTER.read(kept).place.mark == 3
    assert TABLES_END.read(end).epoch == desk.blocks["store"].epoch
