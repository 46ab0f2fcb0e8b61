"""Checks of open half messages: who is asked, what is discarded, and the progress that a Java broker reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.broker.files import json_file
from rocketpy.broker.managers.client_channel import ClientChannelInfo, LastHeartbeat
from rocketpy.broker.transactions import transaction_questions, transactions
from rocketpy.broker.transactions.transaction_questions import check_request
from rocketpy.broker.transactions.transactions import Decision, decide
from rocketpy.message import names
from rocketpy.message.properties import encode_properties
from rocketpy.message.record import decode_record, encode_record
from rocketpy.remoting.fast_path import EndTransaction, TransactionEnd
from tests.support.fake_store import Unit
from tests.support.slow_path import NOW_MS, FakeChannel, SlowPathRig

HALF, OPS = names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC
AGE_MS = 10_000


def half(offset: int, phy_offset: int, *, age_ms: int = AGE_MS, topic: str = HALF, **properties: str) -> bytes:
    known = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"u{offset}", "REAL_TOPIC": "T", "REAL_QID": "3"}
    return encode_record(
        topic=topic,
        queue_id=0,
        body=b"body",
        properties=encode_properties(known | properties).encode(),
        born_timestamp_ms=5,
        born_host=("10.1.1.1", 99),
        store_timestamp_ms=NOW_MS - age_ms,
        store_host=("127.0.0.1", 10911),
        queue_offset=offset,
        phy_offset=phy_offset,
        flag=2,
    )


def fill(rig: SlowPathRig, *records: dict[str, Any]) -> None:
    """Half messages at offsets 0, 1, ...: what differs from `half`."""
    units = []
    for offset, changes in enumerate(records):
        phy_offset = 1000 * (offset + 1)
        rig.store.records[phy_offset] = image = half(offset, phy_offset, **changes)
        units.append((Unit(phy_offset, len(image)), NOW_MS - changes.get("age_ms", AGE_MS)))
    rig.store.queues[HALF, 0] = units


def check(rig: SlowPathRig, rounds: int = 1, *, producer: FakeChannel | None = None) -> None:
    async def main() -> None:
        if producer is not None:
            await rig.heartbeat("a", producer="P", channel=producer)
        for _ in range(rounds):
            await rig.services.transactions.check()

    trio.run(main)


def asked(channel: FakeChannel) -> list[int]:
    """Offsets of the half messages that a producer was asked about."""
    return [int((push.ext_fields or {})["tranStateTableOffset"]) for push in channel.pushed if push.code == 39]


@pytest.mark.parametrize(
    ("age_ms", "times", "seconds", "decision"),
    [
        pytest.param(5_999, 0, None, Decision.WAIT, id="younger than transactionTimeOut"),
        pytest.param(6_000, 0, None, Decision.ASK, id="as old as transactionTimeOut"),
        pytest.param(6_000, 14, None, Decision.ASK, id="the last check"),
        pytest.param(6_000, 15, None, Decision.DISCARD, id="after transactionCheckMax checks"),
        pytest.param(0, 15, None, Decision.DISCARD, id="after the last check, however young"),
        pytest.param(-1_000, 0, None, Decision.WAIT, id="stored ahead of our clock"),
        pytest.param(72 * 3_600_000, 0, None, Decision.ASK, id="as old as fileReservedTime"),
        pytest.param(72 * 3_600_000 + 1, 0, None, Decision.DISCARD, id="older than fileReservedTime"),
        pytest.param(29_999, 0, "30", Decision.SKIP, id="immune"),
        pytest.param(30_000, 0, "30", Decision.ASK, id="no longer immune"),
        pytest.param(5_000, 0, "2", Decision.ASK, id="immune for less than transactionTimeOut"),
        pytest.param(29_999, 15, "30", Decision.DISCARD, id="immune, but checked often enough"),
        pytest.param(5_999, 0, "-1", Decision.WAIT, id="-1 is transactionTimeOut"),
        pytest.param(6_000, 0, "soon", Decision.ASK, id="no number is transactionTimeOut"),
        pytest.param(73 * 3_600_000, 0, "999999", Decision.DISCARD, id="nothing is immune for ever"),
    ],
)
def test_the_decision_table(age_ms: int, times: int, seconds: str | None, decision: Decision) -> None:
    """Holds: answer, END_TRANSACTION (37)."""
    properties = {} if seconds is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds}
    record = decode_record(half(0, 1000, age_ms=age_ms, **properties))
    assert record is not None
    assert decide(record, NOW_MS, times, time_out_ms=6_000, check_max=15, hours_max=72) is decision


def test_the_producer_is_sent_its_message(tmp_path: Path) -> None:
    record = decode_record(half(4, 1000), 1000)
    assert record is not None
    request = check_request(record)
    assert (request.code, request.is_oneway) == (39, True)
    assert request.ext_fields == {
        "tranStateTableOffset": "4",
        "commitLogOffset": "1000",
        "msgId": "u4",
        "transactionId": "u4",
        "offsetMsgId": "7F00000100002A9F00000000000003E8",
    }
    assert request.body is not None
    message = decode_record(request.body)
    assert message is not None
    assert (message.topic, message.queue_id, message.queue_offset, message.phy_offset) == ("T", 3, 4, 1000)
    assert (message.properties, bytes(message.body), message.born_timestamp_ms) == (record.properties, b"body", 5)


def test_a_half_message_without_real_topic_is_sent_as_well() -> None:
    record = decode_record(half(4, 1000, REAL_TOPIC="", REAL_QID=""))
    assert record is not None
    message = decode_record(check_request(record).body or b"")
    assert message is not None and (message.topic, message.queue_id) == ("", 0)


def test_open_half_messages_are_asked_about_once_a_round(tmp_path: Path) -> None:
    """Holds: transaction, checks at most 15 times; trap, checks read all op messages first."""
    rig, producer = SlowPathRig(tmp_path), FakeChannel(2)
    fill(rig, {}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, {}, {}, {"age_ms": 10}, {})
    rig.fast_path.half_states.ended = {2}
    check(rig, 2, producer=producer)
    assert asked(producer) == [0, 3, 0, 3]
    assert rig.services.transactions.statistics.checks == 4
    assert rig.fast_path.ends == []


def test_any_producer_of_the_group_is_asked(tmp_path: Path) -> None:
    """Holds: transaction, checks at most 15 times."""
    rig, first, second = SlowPathRig(tmp_path), FakeChannel(2), FakeChannel(3)
    fill(rig, {}, {}, {"PGROUP": "Q"})

    async def main() -> None:
        await rig.heartbeat("a", producer="P", channel=first)
        await rig.heartbeat("b", producer="P", channel=second)
        await rig.services.transactions.check()
        assert sorted(asked(first) + asked(second)) == [0, 1]
        assert len(asked(first)) == 1
        rig.broker.connection_closed(2)
        await rig.services.transactions.check()
        assert len(asked(second)) == 3

    trio.run(main)
    assert rig.services.transactions.statistics.unreachable == 2


def test_with_accounts_only_those_are_asked_that_may_send(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig, owner, stranger = SlowPathRig(tmp_path), FakeChannel(2), FakeChannel(3)
    questions, seen = rig.services.transactions.questions, []
    fill(rig, {})

    def may_send(access_key: str, host: str, topic: str) -> bool:
        seen.append((host, topic))
        return access_key == "owner"

    questions.may_send = may_send
    for key, channel in {"owner": owner, "stranger": stranger}.items():
        rig.services.producers.register("P", ClientChannelInfo(channel, key, "JAVA", 409, LastHeartbeat(0, 0), key))
    check(rig, 3)
    assert (asked(owner), asked(stranger)) == ([0, 0, 0], []) and seen == [("10.0.0.1", "T")] * 6
    rig.broker.connection_closed(owner.connection)
    check(rig)
    assert asked(stranger) == [] and "no producer of group P is connected whose account may send" in caplog.text


@pytest.mark.parametrize("group", ["P", ""])
def test_nobody_to_ask_is_logged_and_counted_as_a_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, group: str
) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_max=2)
    fill(rig, {"PGROUP": group})
    check(rig, 2)
    assert [line for line in caplog.messages if f"no producer of group {group} is connected" in line]
    assert rig.fast_path.ends == []
    check(rig)
    assert [end.action for end in rig.fast_path.ends] == [TransactionEnd.DISCARD]


def test_a_discarded_half_message_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig, producer = SlowPathRig(tmp_path, transaction_check_max=1), FakeChannel(2)
    fill(rig, {})
    check(rig, 2, producer=producer)
    assert asked(producer) == [0]
    assert rig.fast_path.ends == [EndTransaction(TransactionEnd.DISCARD, 0, 1000)]
    assert "discarded the transaction at log offset 1000 after 1 checks" in caplog.text
    assert rig.services.topics.select(names.TRANS_CHECK_MAX_TIME_TOPIC) is not None


def test_a_half_message_that_cannot_be_discarded_is_tried_again(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_max=0)
    fill(rig, {})
    rig.fast_path.end_code = 14
    check(rig, 2)
    assert len(rig.fast_path.ends) == 2


def test_settings_are_read_at_each_round(tmp_path: Path) -> None:
    rig, producer = SlowPathRig(tmp_path), FakeChannel(2)
    fill(rig, {"age_ms": 1_500})
    check(rig, producer=producer)
    assert asked(producer) == []

    async def main() -> None:
        body = b"transactionTimeOut=1000\ntransactionCheckMax=1\n"
        assert (await rig.ask(25, None, body, channel=FakeChannel(9))).code == 0
        await rig.services.transactions.check()
        await rig.services.transactions.check()

    trio.run(main)
    assert asked(producer) == [0]
    assert len(rig.fast_path.ends) == 1


def test_checks_of_a_java_broker_and_of_the_previous_manager_count(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, {"TRANSACTION_CHECK_TIMES": "14"}, {})
    check(rig)
    trio.run(rig.services.transactions.questions.file.save)
    after = SlowPathRig(tmp_path)
    fill(after, {"TRANSACTION_CHECK_TIMES": "14"}, {})
    after.services.transactions.load()
    check(after)
    assert [end.queue_offset for end in after.fast_path.ends] == [0]


def test_checks_that_are_no_number_are_none(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_max=1)
    fill(rig, {"TRANSACTION_CHECK_TIMES": "x"})
    check(rig)
    assert rig.fast_path.ends == []


@pytest.mark.parametrize("image", [None, b"damage" * 30, "other"])
def test_a_half_message_that_cannot_be_read_ends(tmp_path: Path, image: bytes | str | None) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, {}, {})
    del rig.store.records[1000]
    if image is not None:
        rig.store.records[1000] = half(0, 1000, topic="T") if isinstance(image, str) else image
    check(rig)
    assert rig.fast_path.ends == [EndTransaction(TransactionEnd.UNREADABLE, 0, 0)]


def test_half_messages_whose_files_are_deleted_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, {}, {}, {})
    rig.fast_path.half_states.ended = {1}
    rig.store.low[HALF, 0] = 2
    check(rig)
    assert "open transactions are lost: the half messages of 1 were" in caplog.text
    assert rig.fast_path.half_states.base == 2


def test_statistics(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    assert rig.services.transactions.statistics.oldest_age_ms is None
    fill(rig, {}, {"age_ms": 8_000}, {})
    rig.fast_path.half_states.ended = {0}
    found = rig.services.transactions.statistics
    assert (found.open, found.oldest_age_ms) == (2, 8_000)
    assert (found.checks, found.unreachable) == (0, 0)


# --- too much to ask --------------------------------------------------------------------------------------------------


def check_jumping(rig: SlowPathRig, rounds: int = 1) -> None:
    """Rounds of checks, without the time that they wait for room."""

    async def main() -> None:
        for _ in range(rounds):
            await rig.services.transactions.check()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_question_for_which_there_is_no_room_is_no_check(tmp_path: Path) -> None:
    """Fault: A check of a transaction that found no room counted, so half messages were discarded unasked."""
    rig, producer = SlowPathRig(tmp_path, transaction_check_max=1), FakeChannel(2, is_writable=False)
    fill(rig, {}, {})
    check(rig, 0, producer=producer)
    check_jumping(rig, 3)
    assert asked(producer) == []
    producer.is_writable = True
    check_jumping(rig)
    assert asked(producer) == [0, 1]
    assert rig.fast_path.ends == []


@pytest.mark.parametrize("rounds_in_vain", [0, 1])
def test_a_question_waits_for_room(tmp_path: Path, rounds_in_vain: int) -> None:
    """Each round as long as a round may wait."""
    rig, producer = SlowPathRig(tmp_path), FakeChannel(2, is_writable=False)
    fill(rig, {})
    check(rig, 0, producer=producer)
    check_jumping(rig, rounds_in_vain)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.transactions.check)
            await trio.sleep(1)
            assert asked(producer) == []
            producer.is_writable = True

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert asked(producer) == [0]


def test_a_connection_is_asked_for_so_many_bytes_in_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_questions, "ASKED_BYTES_MAX", 2 * len(half(0, 1000)))
    rig, producer = SlowPathRig(tmp_path, transaction_check_max=2), FakeChannel(2)
    fill(rig, {}, {}, {})
    check(rig, producer=producer)
    assert asked(producer) == [0, 1]
    check(rig)  # goes on behind them
    assert asked(producer) == [0, 1, 2]
    check(rig)
    assert asked(producer) == [0, 1, 2, 0, 1]
    assert rig.fast_path.ends == []


def test_a_half_message_larger_than_the_limit_of_a_round_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_questions, "ASKED_BYTES_MAX", 1)
    rig, producer = SlowPathRig(tmp_path), FakeChannel(2)
    fill(rig, {}, {})
    check(rig, 2, producer=producer)
    assert asked(producer) == [0, 1]


def test_half_messages_that_are_immune_do_not_keep_others_from_being_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LOOKED_MAX", 2)
    rig, producer = SlowPathRig(tmp_path), FakeChannel(2)
    immune = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "999999"}
    fill(rig, immune, immune, {}, {})
    check(rig, producer=producer)
    assert asked(producer) == []
    check(rig)
    assert asked(producer) == [2, 3]


def test_checks_beyond_those_that_can_be_counted_are_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_questions, "CHECKED_MAX", 1)
    rig, producer = SlowPathRig(tmp_path), FakeChannel(2)
    fill(rig, {}, {})
    check(rig, producer=producer)
    assert asked(producer) == [0]
    rig.fast_path.half_states.ended = {0}
    check(rig, 2)
    assert asked(producer) == [0, 1]


def test_checks_that_are_counted_go_on_while_no_more_can_be_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: With more than 200 000 open transactions, the first ones were never checked or discarded again."""
    monkeypatch.setattr(transaction_questions, "CHECKED_MAX", 1)
    rig, producer = SlowPathRig(tmp_path, transaction_check_max=2), FakeChannel(2)
    fill(rig, {}, {})
    check(rig, 3, producer=producer)
    assert asked(producer) == [0, 0]
    assert [end.queue_offset for end in rig.fast_path.ends] == [0]


def test_a_transaction_that_is_resumed_during_a_round_is_counted_anew(tmp_path: Path) -> None:
    rig, producer = SlowPathRig(tmp_path, transaction_check_max=2), FakeChannel(2)
    fill(rig, {})
    check(rig, producer=producer)
    producer.is_writable = False

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.services.transactions.check)
            await trio.sleep(1)
            rig.services.transactions.questions.begin_again(0)
            producer.is_writable = True

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    check(rig)
    assert asked(producer) == [0, 0, 0]
    assert rig.fast_path.ends == []


def test_checks_of_a_half_message_that_a_power_failure_took_do_not_count(tmp_path: Path) -> None:
    """Fault: Checks of a lost half message counted for the next one at its offset."""
    rig = SlowPathRig(tmp_path, transaction_check_max=2)
    fill(rig, {}, {})
    check(rig, 2)
    trio.run(rig.services.transactions.questions.file.save)
    after = SlowPathRig(tmp_path, transaction_check_max=2)
    fill(after, {})  # the log ends before the second one
    after.services.transactions.load()
    fill(after, {}, {})  # another one has its place
    check(after)
    assert [end.queue_offset for end in after.fast_path.ends] == [0]


def test_the_checks_of_an_ended_transaction_are_forgotten(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    fill(rig, {}, {})
    check(rig)
    rig.fast_path.half_states.ended = {0}
    check(rig)
    trio.run(rig.services.transactions.questions.file.save)
    assert json_file.load(rig.services.transactions.questions.file.path) == {"checks": {"1": 2}}


# --- progress ---------------------------------------------------------------------------------------------------------


def progress(rig: SlowPathRig) -> tuple[int, int]:
    offsets = rig.services.offsets
    return offsets.query(names.TRANS_GROUP, HALF, 0), offsets.query(names.TRANS_GROUP, OPS, 0)


def test_every_op_message_of_a_later_half_message_is_behind_the_progress(tmp_path: Path) -> None:
    rig, transactions = SlowPathRig(tmp_path), None
    transactions = rig.services.transactions
    fill(rig, {}, {}, {})  # at 1000, 2000, 3000
    rig.store.queues[OPS, 0] = [(Unit(at, 50), NOW_MS) for at in (1500, 2500, 3500)]  # of 0, of another one, of 2
    rig.fast_path.half_states.ended = {0, 2}
    transactions.keep_progress()
    assert progress(rig) == (1, 0)
    transactions.keep_progress()
    assert progress(rig) == (1, 1)
    rig.fast_path.half_states.ended = {0, 1, 2}
    transactions.keep_progress()
    assert progress(rig) == (3, 1)  # the op queue's is that of the half messages before
    transactions.keep_progress()
    assert progress(rig) == (3, 3)


def test_the_op_topic_is_there_when_the_half_topic_is(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.broker.load()
    assert rig.services.topics.select(OPS) is None
    rig.services.topics.create_if_missing(HALF, queue_nums=1)
    rig.services.transactions.open_topics()
    assert rig.services.topics.select(OPS) is not None
