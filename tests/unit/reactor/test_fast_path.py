"""RingFastPath: tables and requests in order, tables again for a restarted worker, puts with their results."""

from __future__ import annotations

import os
from collections.abc import Iterator

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import ffi, lib
from rocketpy.reactor import filter_messages, worker_messages
from rocketpy.reactor.filter_messages import EXPRESSION, FILTER, SUBSCRIPTION
from rocketpy.reactor.internal_puts import PUT_TIMEOUT_S
from rocketpy.reactor.outbox import RECORDS_PER_FLUSH, Outbox
from rocketpy.reactor.queue_deletion import RECENT_MAX
from rocketpy.reactor.ring import Ring, RingReader, RingWriter, WorkerBlock
from rocketpy.reactor.ring_fast_path import RingFastPath
from rocketpy.reactor.worker_messages import (
    PULL_REQUEST,
    TABLES_END,
    WorkerMessage,
    decode_pull,
    encode_clean_expired,
    encode_clean_topic,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import Delivery, FastPath, FilterPlace, MessageToPut, SendRequest
from tests.support import ring_messages
from tests.support.slow_path import FakeChannel


@attrs.define
class ChannelLog:
    """A Channel that keeps what is pushed."""

    pushed: list[RemotingCommand] = attrs.field(factory=list)
    connection: int = 77

    def push(self, command: RemotingCommand) -> None:
        self.pushed.append(command)


@attrs.define
class QueueLog:
    """Entries of the control block, as the manager writes them."""

    log: list[tuple[object, ...]] = attrs.field(factory=list)
    published_phy_offset: int = 0

    def add_queue(self, topic: bytes, queue_id: int) -> None:
        self.log.append((topic, queue_id))

    def delete_queues(self, topic: str) -> None:
        self.log.append(("delete", topic))

    def delete_units(self, topic: str, below: int) -> None:
        self.log.append(("below", topic, below))


@attrs.define(eq=False)
class Desk:
    """A fast path with its three processes played by the test."""

    blocks: dict[str, WorkerBlock]
    readers: dict[str, RingReader]
    fast_path: RingFastPath
    queues: QueueLog

    @classmethod
    def open(cls) -> Desk:
        blocks = {name: WorkerBlock(name, n) for n, name in enumerate(("manager", "send", "pull", "store"))}
        rings = {name: Ring(65536, blocks["manager"], blocks[name]) for name in ("send", "pull", "store")}
        boxes = {name: Outbox(RingWriter(ring), bytes_max=40_000) for name, ring in rings.items()}
        queues = QueueLog()
        fast_path = RingFastPath(
            send=(blocks["send"], boxes["send"]),
            pulls=[(blocks["pull"], boxes["pull"])],
            store=(blocks["store"], boxes["store"]),
            queues=queues,
            store_host=("10.0.0.1", 10911),
            now_ns=lambda: 1000,
        )
        return cls(blocks, {name: RingReader(ring) for name, ring in rings.items()}, fast_path, queues)

    def told(self, name: str) -> list[tuple[int, bytes]]:
        """Records for one process since the last call, of the store those that ask for something; makes room and lets
        the fast_path move on."""
        tables = {WorkerMessage.FILTER, WorkerMessage.TABLES_END} if name == "store" else set()
        return [(kind, record) for kind, record in self.all_told(name) if kind not in tables]

    def all_told(self, name: str) -> list[tuple[int, bytes]]:
        found = []
        while True:
            record = self.readers[name].read()
            if record is None:
                self.fast_path.turn()
                record = self.readers[name].read()
                if record is None:
                    return found
            found.append(record)

    def kinds(self, name: str) -> list[int]:
        return [kind for kind, _ in self.told(name)]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk.open()
    yield desk
    for block in desk.blocks.values():
        os.close(block.doorbell)


def change_topic(fast_path: FastPath, topic: str, perm: int = 6) -> None:
    fast_path.topic_changed(topic, perm=perm, read_queue_nums=1, write_queue_nums=1, multi_tag=False)


def announce(fast_path: FastPath) -> None:
    """All kinds of table entries."""
    fast_path.topic_changed("T", perm=6, read_queue_nums=2, write_queue_nums=3, multi_tag=False, slow=True)
    fast_path.group_changed(
        "G",
        consume_enable=True,
        consume_broadcast_enable=False,
        broker_id=0,
        which_broker_when_consume_slowly=1,
        is_online=True,
        is_broadcasting=False,
    )
    fast_path.subscription_changed("G", "T", expression_type="TAG", sub_string="TagA || TagB", sub_version=5)
    fast_path.broker_changed(permission=6, max_message_size=1000, reject_transactions=True)
    fast_path.tables_end()


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


def send_request(channel: ChannelLog, *, oneway: bool = False, body: bytes = b"b") -> SendRequest:
    flags = lib.RP_REQUEST_ONEWAY if oneway else 0
    record = ring_messages.send(ring_messages.origin(77, received_ns=5), body, opaque=9, flags=flags)
    return worker_messages.decode_send(record, channel)


def test_a_restarted_worker_is_told_large_tables_in_steps_and_what_changes_meanwhile_behind_them(desk: Desk) -> None:
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
    """Otherwise it would serve with an older permission until its ring has room again."""
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


def test_a_send_comes_back_behind_the_entry_it_needs_and_is_completed_last(desk: Desk) -> None:
    request = send_request(ChannelLog())
    desk.fast_path.topic_changed("T", perm=6, read_queue_nums=1, write_queue_nums=1, multi_tag=False)
    desk.fast_path.resend(request, queue_id=0)
    desk.fast_path.complete(request)
    told = desk.told("send")
    assert [kind for kind, _ in told] == [WorkerMessage.TOPIC, WorkerMessage.SEND, WorkerMessage.COMPLETED]
    assert worker_messages.decode_origin(told[2][1]).connection == 77 and len(told[2][1]) == ffi.sizeof(
        "rp_msg_completed"
    )


def test_a_send_worker_that_was_replaced_may_go_on_when_all_earlier_sends_are_completed(desk: Desk) -> None:
    """It does not know of them; its connections' later sends would overtake them."""
    announce(desk.fast_path)
    desk.told("send")
    first, second = send_request(ChannelLog()), send_request(ChannelLog())
    desk.fast_path.took(first)
    desk.fast_path.took(second)
    desk.blocks["send"].begin(1)
    assert set(desk.kinds("send")) == {WorkerMessage.TOPIC, WorkerMessage.BROKER}
    desk.fast_path.complete(first)
    assert desk.kinds("send") == []
    desk.fast_path.complete(second)
    assert desk.kinds("send") == [WorkerMessage.COMPLETED, WorkerMessage.TABLES_END]
    assert desk.kinds("send") == []


@pytest.mark.parametrize("oneway", [False, True])
def test_a_send_that_finds_no_room_is_answered_busy_and_tables_still_pass(desk: Desk, oneway: bool) -> None:
    channel = ChannelLog()
    for _ in range(12):  # ring and backlog together hold fewer
        desk.fast_path.resend(send_request(channel, oneway=oneway, body=bytes(10_000)))
    desk.fast_path.complete(send_request(channel))
    desk.fast_path.tables_end()
    kinds = desk.kinds("send")
    assert kinds[-2:] == [WorkerMessage.COMPLETED, WorkerMessage.TABLES_END]
    lost = 12 - kinds.count(WorkerMessage.SEND)
    assert lost > 0
    assert [(one.code, one.opaque) for one in channel.pushed] == ([] if oneway else [(2, 9)] * lost)


def test_puts_get_their_own_outcomes_whatever_the_order(desk: Desk) -> None:
    async def main() -> None:
        outcomes: dict[str, object] = {}

        async def put(topic: str) -> None:
            outcomes[topic] = await desk.fast_path.put(MessageToPut(topic, 0, b"body", b""))

        async with trio.open_nursery() as nursery:
            for topic in ("a", "b"):
                nursery.start_soon(put, topic)
            await trio.testing.wait_all_tasks_blocked()
            assert not desk.fast_path.is_idle()
            asked = {}
            for _, record in desk.told("send"):
                request = ffi.cast("rp_msg_send *", ffi.from_buffer(record))
                asked[worker_messages.decode_send(record, ChannelLog()).topic] = request.token
            desk.fast_path.put_finished(ring_messages.put_result(1, 0))  # of a previous manager: nobody waits for it
            desk.fast_path.put_finished(ring_messages.put_result(asked["b"], 14))
            desk.fast_path.put_finished(ring_messages.put_result(asked["a"], 0))
        assert outcomes["a"].is_stored and outcomes["a"].message_id == "0A00000100002A9F00000000000001F4"
        assert not outcomes["b"].is_stored and outcomes["b"].code == 14
        assert desk.fast_path.is_idle()

    trio.run(main)


def test_a_put_without_an_outcome_ends(desk: Desk) -> None:
    async def main() -> None:
        before = trio.current_time()
        result = await desk.fast_path.put(MessageToPut("a", 3, b"", b""))
        assert (result.code, result.is_stored, result.queue_id) == (1, False, 3)
        assert trio.current_time() - before == pytest.approx(PUT_TIMEOUT_S)
        assert desk.fast_path.is_idle() or desk.kinds("send")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_delivery_ends_when_the_send_worker_was_replaced(desk: Desk) -> None:
    async def main() -> None:
        put = desk.fast_path.begin_put(MessageToPut("T", 0, b"", b"", delivery=Delivery(1, 2, 3)))
        desk.blocks["send"].begin(1)
        desk.fast_path.turn()
        assert (await put.wait()).code == 2

    trio.run(main)


def test_a_put_that_finds_no_room_says_so(desk: Desk) -> None:
    async def main() -> None:
        while desk.fast_path._send.outbox.put(WorkerMessage.COMPLETED, bytes(10_000)):
            pass
        assert (await desk.fast_path.put(MessageToPut("a", 0, bytes(10_000), b""))).code == 2

    trio.run(main)


def answer_position(desk: Desk, record: bytes, phy_offset: int) -> None:
    token = worker_messages.POSITION.read(record).token
    desk.fast_path.put_finished(ring_messages.put_result(token, phy_offset=phy_offset))


def test_a_deletion_with_a_bound_leaves_what_is_above(desk: Desk) -> None:
    """A slave cannot know when the topic was created again; what came after its question may belong to the new one."""
    announce(desk.fast_path)
    desk.told("send")
    desk.fast_path.delete_queues("T", 600)
    assert desk.queues.log[-2:] == [("below", "T", 600), ("delete", "T")]  # another manager repeats it with this bound
    answer_position(desk, desk.told("send")[-1][1], 700)
    assert desk.queues.log[-1] == ("below", "T", 600)


def test_the_last_deletions_are_known_and_can_be_repeated_elsewhere(desk: Desk) -> None:
    announce(desk.fast_path)
    desk.told("send")
    for number in range(RECENT_MAX + 5):
        desk.fast_path.delete_messages(f"T{number}", 100 + number)
    assert not desk.told("send"), "the topic stays"
    assert desk.queues.log[-1] == ("below", f"T{RECENT_MAX + 4}", 104 + RECENT_MAX)
    assert desk.told("store")[-1][0] == WorkerMessage.CLEAN_TOPIC
    assert next(iter(desk.fast_path.recent_deletions.items())) == ("T5", 105)
    assert len(desk.fast_path.recent_deletions) == RECENT_MAX


def test_a_deletion_covers_what_send_has_stored_before_it_knew(desk: Desk) -> None:
    announce(desk.fast_path)
    desk.told("send")
    desk.fast_path.topic_removed("T")
    first, second = desk.fast_path.delete_queues("T"), desk.fast_path.delete_queues("T")
    told = desk.told("send")
    assert [kind for kind, _ in told] == [WorkerMessage.TOPIC] * 2 + [
        WorkerMessage.POSITION,
        WorkerMessage.TOPIC,
        WorkerMessage.POSITION,
    ]
    position, other = told[2][1], told[4][1]
    assert desk.told("store") == []
    assert desk.queues.log[-2:] == [("delete", "T")] * 2  # not readable from here on
    answer_position(desk, position, 700)
    answer_position(desk, position, 700)  # of a send worker that has died, and of the restarted one
    assert desk.queues.log[-1] == ("below", "T", 700)
    ((asked_for, asked),) = desk.told("store")
    assert asked_for == WorkerMessage.CLEAN_TOPIC and not first.is_set()
    answer_position(desk, other, 800)
    desk.fast_path.cleaned(asked)
    desk.fast_path.cleaned(asked)  # once more: nobody waits
    assert first.is_set() and not second.is_set()
    ((_, asked),) = desk.told("store")
    desk.fast_path.cleaned(asked)
    assert second.is_set()


def test_messages_of_a_topic_that_is_created_again_before_the_position_is_known_stay(desk: Desk) -> None:
    """The send worker may accept them under the old entry, which it still has, and they lie below its position."""
    desk.queues.published_phy_offset = 300
    change_topic(desk.fast_path, "T")
    desk.fast_path.delete_queues("T")
    positions = [record for kind, record in desk.told("send") if kind == WorkerMessage.POSITION]
    desk.queues.published_phy_offset = 500
    change_topic(desk.fast_path, "U")
    change_topic(desk.fast_path, "T")
    desk.queues.published_phy_offset = 600
    change_topic(desk.fast_path, "T", perm=2)
    desk.fast_path.delete_queues("T")
    positions += [record for kind, record in desk.told("send") if kind == WorkerMessage.POSITION]
    for record in positions:
        answer_position(desk, record, 700)
    assert [entry for entry in desk.queues.log if entry[0] == "below"] == [("below", "T", 500), ("below", "T", 700)]
    change_topic(desk.fast_path, "T")
    desk.fast_path.delete_queues("T")
    ((_, record),) = [told for told in desk.told("send") if told[0] == WorkerMessage.POSITION]
    answer_position(desk, record, 900)
    assert desk.queues.log[-1] == ("below", "T", 900), "a creation before the deletion does not bound it"


def test_a_send_worker_that_was_replaced_is_asked_for_positions_again(desk: Desk) -> None:
    """The previous one may have died with the answer in its hands: then the deletion would never end."""
    change_topic(desk.fast_path, "U")
    desk.fast_path.tables_end()
    desk.fast_path.delete_queues("T")
    (asked,) = [told for told in desk.told("send") if told[0] == WorkerMessage.POSITION]
    desk.blocks["send"].begin(1)
    again = desk.told("send")
    assert [kind for kind, _ in again] == [WorkerMessage.TOPIC, WorkerMessage.POSITION, WorkerMessage.TABLES_END]
    assert again[1] == asked
    answer_position(desk, asked[1], 700)
    assert desk.queues.log[-1] == ("below", "T", 700)
    desk.blocks["send"].begin(2)
    assert WorkerMessage.POSITION not in desk.kinds("send")


def test_a_large_send_passes_while_a_restarted_worker_is_told_the_tables(desk: Desk) -> None:
    change_topic(desk.fast_path, "T")
    desk.told("send")
    desk.fast_path._send.outbox.put_all(iter([(WorkerMessage.TOPIC, b"")]))
    channel = ChannelLog()
    desk.fast_path.resend(send_request(channel, body=bytes(50_000)), queue_id=0)
    assert desk.kinds("send")[-1] == WorkerMessage.SEND and not channel.pushed


def test_a_store_worker_that_was_replaced_is_asked_again(desk: Desk) -> None:
    """The previous one may have died with the request in its hands; doing it twice does no harm."""
    done = desk.fast_path.delete_queues("T")
    (removed, _), (_, position) = desk.told("send")
    assert removed == WorkerMessage.TOPIC  # whatever the previous manager has told
    answer_position(desk, position, 5)
    asked = desk.told("store")
    assert [kind for kind, _ in asked] == [WorkerMessage.CLEAN_TOPIC]
    desk.blocks["store"].begin(1)
    assert desk.told("store") == asked
    assert desk.kinds("store") == []
    desk.fast_path.cleaned(asked[0][1])
    assert done.is_set()
    desk.blocks["store"].begin(1)
    assert desk.kinds("store") == []


def test_settings_of_the_store_are_told_and_told_again(desk: Desk) -> None:
    desk.blocks["store"].begin(1)
    assert desk.told("store") == []
    desk.fast_path.store_settings_changed({"fileReservedTime": "48"})
    assert desk.told("store") == [(WorkerMessage.SETTINGS, b"fileReservedTime=48\n")]
    desk.fast_path.store_settings_changed({"deleteWhen": "05"})
    desk.told("store")
    desk.blocks["store"].begin(2)
    assert desk.told("store") == [(WorkerMessage.SETTINGS, b"fileReservedTime=48\ndeleteWhen=05\n")]


def test_clean_expired_queues_returns_when_the_store_has_done_it(desk: Desk) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.fast_path.clean_expired_queues)
            await trio.testing.wait_all_tasks_blocked()
            desk.fast_path.cleaned(encode_clean_topic("T", 9))  # another one's
            await trio.testing.wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            assert desk.told("store") == [(WorkerMessage.CLEAN_EXPIRED, encode_clean_expired())]
            desk.fast_path.cleaned(encode_clean_expired())

    trio.run(main)


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


def test_the_expression_of_a_pull_is_told_before_it(desk: Desk) -> None:
    raw = PULL_REQUEST.write(group_size=1, topic_size=1, subscription_size=5) + b"GTa > 1"
    request = decode_pull(raw, FakeChannel(1))
    desk.fast_path.repull(request, b"code")
    (first, expression), (second, _) = desk.told("pull")
    assert (first, second) == (WorkerMessage.EXPRESSION, WorkerMessage.PULL)
    assert expression[EXPRESSION.size :] == b"a > 1code"
