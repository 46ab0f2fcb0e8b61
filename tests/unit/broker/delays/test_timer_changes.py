"""Messages that cancel or move timers: which timers they mean, what is stored instead, what the sender is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.broker.delays.timer_changes import TimerChange, TimerChanges, due_of
from rocketpy.broker.sending.slow_send import Change, Refusal
from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.message.properties import TIMER_OUT_MS, decode_properties
from rocketpy.message.record import encode_record
from rocketpy.message.sys_flag import TRANSACTION_ROLLBACK
from rocketpy.remoting.fast_path import MessageToPut, PutResult, TimerState
from tests.support.slow_path import NOW_MS, SlowPathRig

TIMER_TOPIC = "rmq_sys_wheel_timer"
CANCEL, MOVE = "TIMER_DEL_UNIQKEY\x01key", "TIMER_MOVE_UNIQKEY\x01key"


@pytest.fixture
def rig(tmp_path: Path) -> SlowPathRig:
    rig = SlowPathRig(tmp_path)
    rig.store.behind_bytes = 0
    return rig


def timer(number: int, *, key: str = "key", topic: str = "T", stored_in: str = TIMER_TOPIC, sys_flag: int = 0) -> bytes:
    properties = f"UNIQ_KEY\x01{key}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x012\x02TIMER_OUT_MS\x01{NOW_MS + 900}"
    return encode_record(
        topic=stored_in,
        queue_id=0,
        body=b"body",
        properties=properties.encode(),
        born_timestamp_ms=5,
        born_host=("10.1.1.1", 99),
        store_timestamp_ms=NOW_MS,
        store_host=("127.0.0.1", 10911),
        queue_offset=number,
        phy_offset=1000 + number,
        flag=2,
        sys_flag=sys_flag,
    )


def ended(state: TimerState) -> PutResult:
    """What the send worker says of a timer that is not pending any more."""
    return PutResult(ResponseCode.QUERY_NOT_FOUND, timer_state=state)


def apply(rig: SlowPathRig, *, is_move: bool = False, properties: str = "") -> PutResult:
    changes = TimerChanges(rig.services.settings, rig.store, rig.fast_path)
    change = TimerChange("T", "key", wait_store=True, is_move=is_move, properties=properties.encode())
    return trio.run(changes.apply, change, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_cancellation_is_stored_in_place_of_the_timer(rig: SlowPathRig) -> None:
    rig.store.found = [timer(7)]
    result = apply(rig)
    assert result.is_stored and result.queue_offset == 7
    [put] = rig.fast_path.puts
    assert (put.topic, put.body, put.sys_flag) == (TIMER_TOPIC, b"", TRANSACTION_ROLLBACK)
    assert (put.ends_timer, put.prepared_transaction_offset) == (7, 1008)
    assert rig.store.queried[0][:2] == (TIMER_TOPIC, "key")


def test_a_moved_timer_is_the_same_with_another_time(rig: SlowPathRig) -> None:
    rig.store.found = [timer(7, sys_flag=1)]
    assert apply(rig, is_move=True, properties="TIMER_DELAY_SEC\x0110").is_stored
    [put] = rig.fast_path.puts
    assert (put.topic, put.body, put.sys_flag, put.message_flag) == (TIMER_TOPIC, b"body", 1, 2)
    assert (put.born_timestamp_ms, put.born_host) == (5, ("10.1.1.1", 99))
    assert (put.ends_timer, put.prepared_transaction_offset) == (7, 1008)
    properties = decode_properties(put.properties.decode())
    assert properties == {
        "UNIQ_KEY": "key",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
        TIMER_OUT_MS: str(NOW_MS + 10_000),
    }


def test_every_pending_timer_with_the_key_is_cancelled(rig: SlowPathRig) -> None:
    """A send that was repeated after a timeout is stored twice."""
    rig.store.found = [timer(3), timer(7)]
    assert apply(rig).queue_offset == 7
    assert [put.ends_timer for put in rig.fast_path.puts] == [7, 3]


@pytest.mark.parametrize(
    "found",
    [
        [],
        [timer(7, key="other")],  # has the same hash
        [timer(7, topic="U")],  # of a topic that the sender may not know
        [timer(7, stored_in="T")],
        [timer(7, sys_flag=TRANSACTION_ROLLBACK)],
    ],
)
def test_what_is_no_such_timer_stays(rig: SlowPathRig, found: list[bytes]) -> None:
    rig.store.found = found
    with pytest.raises(RequestRefused, match=r"no timer of topic.T. with the unique key .key. is pending") as refused:
        apply(rig)
    assert refused.value.response_code == ResponseCode.QUERY_NOT_FOUND and rig.fast_path.puts == []


@pytest.mark.parametrize("state", [TimerState.GONE, TimerState.CHANGED])
def test_a_timer_that_has_ended_is_refused(
    rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch, state: TimerState
) -> None:
    rig.store.found = [timer(7)]

    async def put(message: MessageToPut) -> PutResult:
        return ended(state)

    monkeypatch.setattr(rig.fast_path, "put", put)
    with pytest.raises(RequestRefused, match="it was delivered, cancelled, or never stored"):
        apply(rig)


def test_a_timer_that_was_renewed_meanwhile_is_looked_up_again(rig: SlowPathRig) -> None:
    """Cleaning had it stored again between the look into the index and the put."""
    rig.store.found = [timer(7)]
    puts = []

    async def put(message: MessageToPut) -> PutResult:
        puts.append(message.ends_timer)
        rig.store.found = [timer(7), timer(19)]
        return ended(TimerState.RENEWED) if message.ends_timer == 7 else PutResult(ResponseCode.SUCCESS)

    rig.fast_path.put = put  # type: ignore[method-assign]
    with pytest.raises(RequestRefused) as refused:
        apply(rig)
    assert refused.value.response_code == ResponseCode.SYSTEM_BUSY, "it is renewed again and again"
    assert puts[:3] == [7, 19, 7]


def test_a_renewed_timer_is_cancelled(rig: SlowPathRig) -> None:
    rig.store.found = [timer(7)]
    results = iter([ended(TimerState.RENEWED), PutResult(ResponseCode.SUCCESS), ended(TimerState.GONE)])
    puts = []

    async def put(message: MessageToPut) -> PutResult:
        puts.append(message.ends_timer)
        rig.store.found = [timer(7), timer(19)]
        return next(results)

    rig.fast_path.put = put  # type: ignore[method-assign]
    assert apply(rig).queue_offset == 19
    assert puts == [7, 19, 7]


def test_the_put_is_repeated_when_the_send_worker_was_restarted(rig: SlowPathRig) -> None:
    """It ended the timer before it died: its successor says that the timer was changed."""
    busy = PutResult(ResponseCode.SYSTEM_BUSY)
    results = iter([busy, busy, ended(TimerState.CHANGED)])

    async def put(message: MessageToPut) -> PutResult:
        return next(results)

    rig.fast_path.put = put  # type: ignore[method-assign]
    rig.store.found = [timer(7)]
    assert apply(rig).is_stored


def test_a_send_worker_that_stays_away_is_overload(rig: SlowPathRig) -> None:
    rig.store.found, rig.fast_path.put_code = [timer(7)], ResponseCode.SYSTEM_BUSY
    with pytest.raises(RequestRefused) as refused:
        apply(rig)
    assert refused.value.response_code == ResponseCode.SYSTEM_BUSY


def test_an_index_that_is_behind_is_overload(rig: SlowPathRig) -> None:
    rig.store.behind_bytes = 1
    with pytest.raises(RequestRefused, match="index of messages is behind") as refused:
        apply(rig)
    assert refused.value.response_code == ResponseCode.SYSTEM_BUSY and rig.store.queried == []


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("", "needs the new time"),
        ("TIMER_DELAY_MS\x01soon", "needs the new time"),
        ("TIMER_DELIVER_MS\x01-1", "needs the new time"),
        ("TIMER_DELAY_SEC\x01259201", "not be bigger than the max delay 259200000ms"),
    ],
)
def test_a_move_needs_a_legal_time(rig: SlowPathRig, properties: str, remark: str) -> None:
    rig.store.found = [timer(7)]
    with pytest.raises(RequestRefused, match=remark) as refused:
        apply(rig, is_move=True, properties=properties)
    assert refused.value.response_code == ResponseCode.MESSAGE_ILLEGAL and rig.fast_path.puts == []


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ("TIMER_DELAY_SEC\x012\x02TIMER_DELAY_MS\x015", NOW_MS + 2000),
        ("TIMER_DELIVER_MS\x019\x02TIMER_DELAY_MS\x015", NOW_MS + 5),
        ("__STARTDELIVERTIME\x0198", 98),
        ("TIMER_DELIVER_MS\x010", 1),
        (f"TIMER_DELAY_MS\x01-{NOW_MS + 9}", 1),
        ("KEYS\x01a", None),
    ],
)
def test_times_are_read_as_the_send_worker_reads_them(properties: str, due_ms: int | None) -> None:
    assert due_of(properties.encode(), NOW_MS) == due_ms


@pytest.mark.parametrize("also", ["", "\x02TIMER_DELAY_MS\x0150", "\x02DELAY\x013"])
def test_a_send_that_changes_timers_is_not_stored_itself(rig: SlowPathRig, also: str) -> None:
    verdict = rig.broker._slow_send.admit(rig.send(properties=(CANCEL + also).encode()))
    assert isinstance(verdict, Change) and verdict.change.key == "key" and not verdict.change.is_move
    verdict = rig.broker._slow_send.admit(rig.send(properties=(MOVE + also).encode()))
    assert isinstance(verdict, Change) and verdict.change.is_move


def test_a_batch_that_changes_timers_is_refused(rig: SlowPathRig) -> None:
    verdict = rig.broker._slow_send.admit(rig.send(properties=CANCEL.encode(), is_batch=True))
    assert isinstance(verdict, Refusal) and verdict.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_sender_gets_one_answer(rig: SlowPathRig) -> None:
    async def answers(count: int) -> None:
        with trio.fail_after(10):
            while len(rig.channel.pushed) < count:
                await trio.lowlevel.checkpoint()

    async def main() -> None:
        rig.broker._slow_send.submit(rig.send(properties=CANCEL.encode()))
        await answers(1)
        rig.store.found = [timer(7)]
        rig.broker._slow_send.submit(rig.send(properties=CANCEL.encode(), queue_id=1))
        await answers(2)

    rig.run(main)
    refused, changed = rig.channel.pushed
    assert refused.code == ResponseCode.QUERY_NOT_FOUND and changed.code == 0
    assert changed.ext_fields is not None and changed.ext_fields["queueOffset"] == "7"
    assert changed.ext_fields["queueId"] == "1" and len(rig.fast_path.named("complete")) == 2
