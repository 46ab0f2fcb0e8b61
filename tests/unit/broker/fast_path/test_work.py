"""RingFastPath: sends, puts and deletions go to the compiled workers in order, and come back with their results."""

from __future__ import annotations

import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path.filter_messages import EXPRESSION
from rocketpy.broker.fast_path.internal_puts import PUT_TIMEOUT_S
from rocketpy.broker.fast_path.queue_deletion import RECENT_MAX
from rocketpy.native.core import ffi
from rocketpy.reactor import worker_messages
from rocketpy.reactor.worker_messages import (
    PULL_REQUEST,
    TABLES_END,
    WorkerMessage,
    decode_pull,
    encode_clean_expired,
    encode_clean_topic,
)
from rocketpy.remoting.fast_path import Delivery, MessageToPut
from tests.support import ring_messages
from tests.support.fast_path_desk import ChannelLog, Desk, announce, change_topic, send_request
from tests.support.slow_path import FakeChannel


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
    desk.fast_path.send_arrived(first)
    desk.fast_path.send_arrived(second)
    desk.blocks["send"].begin(1)
    assert set(desk.kinds("send")) == {WorkerMessage.TOPIC, WorkerMessage.BROKER}
    desk.fast_path.complete(first)
    assert desk.kinds("send") == []
    desk.fast_path.complete(second)
    assert desk.kinds("send") == [WorkerMessage.COMPLETED, WorkerMessage.TABLES_END]
    assert desk.kinds("send") == []


def test_a_restarted_manager_lets_a_new_send_worker_serve_when_all_earlier_sends_are_completed(desk: Desk) -> None:
    """Both may have been restarted. One that is not new learns at once which sends were lost.
    Fault: A restarted manager let a new send worker serve at once, and later sends overtook those in its ring."""
    request = send_request(ChannelLog())
    desk.fast_path.send_arrived(request)
    desk.blocks["send"].begin(1)
    desk.fast_path.turn()
    desk.fast_path.tables_end()
    ((kind, lost),) = desk.told("send")
    assert (kind, TABLES_END.read(lost).epoch) == (WorkerMessage.TABLES_END, 0)
    desk.fast_path.complete(request)
    (completed, _), (kind, end) = desk.told("send")
    assert (completed, kind) == (WorkerMessage.COMPLETED, WorkerMessage.TABLES_END)
    assert TABLES_END.read(end).epoch == desk.blocks["send"].epoch


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


def test_a_request_that_the_send_worker_has_not_read_may_come_to_the_manager(desk: Desk) -> None:
    desk.told("pull")
    assert desk.told("send") == [] and desk.fast_path.is_idle()
    assert desk.decoder.write(WorkerMessage.SEND, b"x")
    desk.decoder.finish_batch()
    assert not desk.fast_path.is_idle()
    assert desk.requests.read() is not None and desk.fast_path.is_idle()


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
    """The send worker may accept them under the old entry, which it still has, and they lie below its position.
    Fault: Messages of a topic recreated while a restarted send worker was told the tables were removed."""
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
    """The previous one may have died with the answer in its hands: then the deletion would never end.
    Fault: A send worker that died with the answer to a deletion left it unfinished until the manager restarted."""
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


def test_the_position_at_which_the_send_worker_knew_all_that_it_was_told(desk: Desk) -> None:
    """It stands behind the changes in the ring, and is asked for again if the worker dies with the answer."""
    desk.fast_path.tables_end()
    desk.told("send")
    found: list[int] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            desk.fast_path.topic_removed("T")
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            (_, (kind, asked)) = desk.told("send")
            assert kind == WorkerMessage.POSITION and not found
            desk.blocks["send"].begin(1)
            assert (WorkerMessage.POSITION, asked) in desk.told("send")
            for answer in (700, 800):  # of both processes
                answer_position(desk, asked, answer)

    async def ask() -> None:
        found.append(await desk.fast_path.position())

    trio.run(main)
    assert found == [700] and not [entry for entry in desk.queues.log if entry[0] == "below"]


def test_a_store_worker_that_was_replaced_is_asked_again(desk: Desk) -> None:
    """The previous one may have died with the request in its hands; doing it twice does no harm.
    Fault: A request to clean a topic was never answered if the store worker died with it."""
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


def test_the_expression_of_a_pull_is_told_before_it(desk: Desk) -> None:
    raw = PULL_REQUEST.write(group_size=1, topic_size=1, subscription_size=5) + b"GTa > 1"
    request = decode_pull(raw, FakeChannel(1))
    desk.fast_path.repull(request, b"code")
    (first, expression), (second, _) = desk.told("pull")
    assert (first, second) == (WorkerMessage.EXPRESSION, WorkerMessage.PULL)
    assert expression[EXPRESSION.size :] == b"a > 1code"


def test_an_expression_that_is_no_utf8_is_told_as_it_came(desk: Desk) -> None:
    """The pull worker looks for the bytes of the pull: under others it would pass the pull back for ever.
    Fault: A subscription by an expression in invalid UTF-8 never got a message."""
    raw = PULL_REQUEST.write(group_size=1, topic_size=1, subscription_size=5) + b"GTa='\xff'"
    desk.fast_path.repull(decode_pull(raw, FakeChannel(1)), b"code")
    (_, expression), _ = desk.told("pull")
    assert expression[EXPRESSION.size :] == b"a='\xff'code"
