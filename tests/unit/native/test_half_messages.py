"""Half messages and their ends in the send worker, with codec, dispatch and pull on a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.codes import RequestCode
from rocketpy.message import names
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_records, encode_record
from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import BROKER, decode_put_result, encode_end, encode_topic
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import EndTransaction, TransactionEnd
from rocketpy.remoting.headers.send import EndTransactionRequestHeader, SendMessageRequestHeader
from tests.support.fast_path import FastPath
from tests.support.half_messages import COMMIT, ROLLBACK, answers, end, half, in_topic, send_half, stored

MISSING = "Find prepared transaction message failed"


@pytest.fixture
def states() -> SharedHalfStates:
    return SharedHalfStates()


@pytest.fixture
def rig(tmp_path: Path, states: SharedHalfStates) -> Iterator[FastPath]:
    rig = FastPath(tmp_path, half_states=states.pointer)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    yield rig
    rig.close()


def restart_send(rig: FastPath, *, turn: bool = True) -> None:
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.add_topic("T", 4)
    rig.tell_tables_end()
    if turn:
        rig.turn()


def test_a_half_message_is_stored_aside(rig: FastPath, states: SharedHalfStates) -> None:
    assert send_half(rig) == (0, 0)
    (record,) = stored(rig)
    assert (record.topic, record.queue_id, record.sys_flag, record.flag) == (names.TRANS_HALF_TOPIC, 0, 0, 3)
    assert decode_properties(record.properties.decode()) == {
        "TRAN_MSG": "true",
        "PGROUP": "P",
        "UNIQ_KEY": "u1",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
        "CLUSTER": "DefaultCluster",
    }
    assert states.is_open(0) and states.count_open(0, 1) == 1


def test_wait_is_stored_with_a_half_message(rig: FastPath) -> None:
    send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02WAIT\x01false"))
    (record,) = stored(rig)
    assert decode_properties(record.properties.decode())["WAIT"] == "false"


def test_a_property_that_the_sender_invents_does_not_redirect_its_message(rig: FastPath) -> None:
    rig.add_topic("Other", 1)
    place = send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02REAL_TOPIC\x01Other\x02REAL_QID\x010"))
    assert end(rig, place, COMMIT) == (0, "")
    assert in_topic(rig, "Other") == [] and len(in_topic(rig, "T")) == 1


def test_a_commit_stores_the_message_and_its_op_message(rig: FastPath, states: SharedHalfStates) -> None:
    """Fault: No transaction was ever delivered: END_TRANSACTION was answered 3 and no producer was asked.
    Holds: transaction, commit and rollback; transaction, a commit stores an ordinary message."""
    place = send_half(rig)
    assert end(rig, place, COMMIT) == (0, "")
    before, message, op = stored(rig)
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 2, 0)
    assert (message.sys_flag, message.prepared_transaction_offset) == (8, before.phy_offset)
    assert (bytes(message.body), message.properties, message.flag) == (b"body", before.properties, 3)
    assert (message.born_timestamp_ms, message.born_host) == (77, before.born_host)
    assert (op.topic, op.queue_id, bytes(op.body)) == (names.TRANS_OP_HALF_TOPIC, 0, b"0")
    assert decode_properties(op.properties.decode()) == {"WAIT": "true", "TAGS": "d"}
    assert not states.is_open(0)


def test_a_rollback_stores_an_op_message_only(rig: FastPath, states: SharedHalfStates) -> None:
    """Holds: transaction, commit and rollback."""
    place = send_half(rig)
    assert end(rig, place, ROLLBACK) == (0, "")
    assert [record.topic for record in stored(rig)] == [names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC]
    assert not states.is_open(0)


def shifted(place: tuple[int, int], by: tuple[int, int]) -> tuple[int, int]:
    return place[0] + by[0], place[1] + by[1]


@pytest.mark.parametrize(
    ("shift", "action", "group", "answer"),
    [
        pytest.param((0, 0), 0, "P", None, id="2: pending is not answered"),
        pytest.param((0, 0), 4, "P", None, id="2: an unknown value is not answered"),
        pytest.param((0, 0), 1, "P", None, id="2: nor one that only the manager may use"),
        pytest.param((0, 4_000_000), COMMIT, "P", (1, MISSING), id="3: beyond the end of the log"),
        pytest.param((0, -1_000_000), COMMIT, "P", (1, MISSING), id="3: a negative offset"),
        pytest.param((0, 8), COMMIT, "P", (1, MISSING), id="3: inside of a record"),
        pytest.param((0, 0), COMMIT, "Q", (1, "The producer group wrong"), id="4: another group"),
        pytest.param((0, 0), COMMIT, "", (1, "The producer group wrong"), id="4: no group"),
        pytest.param((1, 0), COMMIT, "P", (1, "The transaction state table offset wrong"), id="5: another offset"),
        pytest.param((-1, 0), ROLLBACK, "P", (1, "The transaction state table offset wrong"), id="5: negative"),
    ],
)
def test_the_decision_table_of_end_transaction(
    rig: FastPath,
    states: SharedHalfStates,
    shift: tuple[int, int],
    action: int,
    group: str,
    answer: tuple[int, str] | None,
) -> None:
    """Holds: answer, END_TRANSACTION (37)."""
    place = send_half(rig)
    assert end(rig, shifted(place, shift), action, group) == answer
    assert len(stored(rig)) == 1
    assert states.is_open(0)


def test_an_offset_of_another_message_is_no_half_message(rig: FastPath) -> None:
    place = send_half(rig)
    end(rig, place, COMMIT)
    _, message, _ = stored(rig)
    assert end(rig, (0, message.phy_offset), COMMIT) == (1, MISSING)


def forged_half(queue_offset: int, phy_offset: int) -> bytes:
    """Return bytes that look like a half message of group Q when read from this place of the log."""
    return encode_record(
        topic=names.TRANS_HALF_TOPIC,
        queue_id=0,
        body=b"forged",
        properties=b"PGROUP\x01Q\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02a\x01\0",
        born_timestamp_ms=1,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=1,
        store_host=("127.0.0.1", 1),
        queue_offset=queue_offset,
        phy_offset=phy_offset,
    )


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_body_contains_ends_no_transaction_of_others(
    rig: FastPath, states: SharedHalfStates, is_restarted: bool
) -> None:
    """Fault: END_TRANSACTION with an offset inside a body ended a transaction of another group."""
    victim = send_half(rig)
    body_at = lib.rp_control_header(rig.block).published_phy_offset + 88  # of the next record
    header = SendMessageRequestHeader(
        producer_group="Q", topic="T", default_topic="TBW102", queue_id=0, sys_flag=0, born_timestamp_ms=7, flag=0
    )
    rig.frame(RemotingCommand.request(RequestCode.SEND_MESSAGE, header, forged_half(victim[0], body_at)))
    assert answers(rig)[0].code == 0
    (record,) = decode_records(rig.log(body_at, 10_000)[: len(forged_half(victim[0], body_at))])
    assert record.topic == names.TRANS_HALF_TOPIC and record.phy_offset == body_at
    if is_restarted:
        restart_send(rig)
    assert end(rig, (victim[0], body_at), COMMIT, "Q") == (1, MISSING)
    assert states.is_open(victim[0])
    assert end(rig, victim, COMMIT) == (0, "")
    assert [bytes(message.body) for message in in_topic(rig, "T")][1:] == [b"body"]


def test_a_transaction_ends_before_its_half_message_is_dispatched(rig: FastPath) -> None:
    rig.frame(half())
    lib.rp_codec_wake(rig.codec)
    lib.rp_send_run(rig.send, 1_000_000)
    assert end(rig, (0, 0), COMMIT) == (0, "")


def test_a_restarted_send_worker_waits_for_dispatch(rig: FastPath, states: SharedHalfStates) -> None:
    rig.frame(half())
    lib.rp_codec_wake(rig.codec)
    lib.rp_send_run(rig.send, 1_000_000)
    rig.answers()
    restart_send(rig, turn=False)
    answer = end(rig, (0, 0), COMMIT)
    assert answer is not None and answer[0] == 2 and answer[1].startswith("[HALF_NOT_DISPATCHED]")
    assert states.is_open(0)
    assert end(rig, (0, 0), COMMIT) == (0, "")


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        (COMMIT, COMMIT, (0, "")),
        (ROLLBACK, ROLLBACK, (0, "")),
        (COMMIT, ROLLBACK, (1, "the transaction has been committed before")),
        (ROLLBACK, COMMIT, (1, "the transaction has been rolled back before")),
    ],
)
def test_a_repeated_end_stores_nothing(rig: FastPath, first: int, second: int, answer: tuple[int, str]) -> None:
    """Holds: trap, a late END_TRANSACTION delivers twice."""
    place = send_half(rig)
    assert end(rig, place, first) == (0, "")
    count = len(stored(rig))
    assert end(rig, place, second) == answer
    assert len(stored(rig)) == count


def test_an_end_below_the_window_stores_nothing(rig: FastPath, states: SharedHalfStates) -> None:
    place = send_half(rig)
    states.move_base(1)
    assert end(rig, place, COMMIT) == (1, "the transaction has ended before, or was discarded")
    assert len(stored(rig)) == 1


def test_a_slave_ends_nothing(tmp_path: Path, states: SharedHalfStates) -> None:
    rig = FastPath(tmp_path, half_states=states.pointer, is_slave=1)
    rig.tables_end()
    assert end(rig, (0, 0), COMMIT) == (11, "")
    rig.close()


def test_a_one_way_end_is_not_answered(rig: FastPath) -> None:
    place = send_half(rig)
    header = EndTransactionRequestHeader(
        producer_group="P", tran_state_table_offset=place[0], commit_log_offset=place[1], commit_or_rollback=COMMIT
    )
    rig.frame(RemotingCommand.oneway(RequestCode.END_TRANSACTION, header))
    assert answers(rig) == []
    assert len(in_topic(rig, "T")) == 1


def test_under_sync_flush_an_end_is_answered_when_it_is_on_the_disk(tmp_path: Path, states: SharedHalfStates) -> None:
    rig = FastPath(tmp_path, half_states=states.pointer, sync_flush=1)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, "T"):
        rig.add_topic(topic, 4)
    rig.tables_end()
    rig.frame(half())
    assert answers(rig) == []
    control = lib.rp_control_header(rig.block)
    control.durable_phy_offset = control.published_phy_offset
    assert [answer.code for answer in answers(rig)] == [0]
    assert end(rig, (0, 0), COMMIT) is None
    control.durable_phy_offset = control.published_phy_offset
    assert [answer.code for answer in answers(rig)] == [0]
    rig.close()


def test_the_topic_of_a_transaction_is_gone(rig: FastPath, states: SharedHalfStates) -> None:
    place = send_half(rig)
    rig.tell_send(lib.RP_MSG_TOPIC, encode_topic("T", flags=lib.RP_TABLE_REMOVE))
    answer = end(rig, place, COMMIT)
    assert answer is not None and answer[0] == 17
    assert states.is_open(0)
    rig.add_topic("T", 2)
    assert end(rig, place, COMMIT) == (0, "")
    assert in_topic(rig, "T")[0].queue_id == 0  # of two queues, for queue 2


def by_manager(rig: FastPath, action: TransactionEnd, place: tuple[int, int]) -> int:
    rig.tell_send(lib.RP_MSG_END_TRANSACTION, encode_end(EndTransaction(action, *place), 9, 0))
    rig.turn()
    (record,) = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
    token, result = decode_put_result(record, ("127.0.0.1", 10911))
    assert token == 9
    return result.code


def test_the_manager_discards(rig: FastPath, states: SharedHalfStates) -> None:
    place = send_half(rig)
    assert by_manager(rig, TransactionEnd.DISCARD, place) == 0
    before, copy, op = stored(rig)
    assert (copy.topic, copy.queue_id, copy.sys_flag) == (names.TRANS_CHECK_MAX_TIME_TOPIC, 0, 0)
    assert (copy.prepared_transaction_offset, copy.properties) == (0, before.properties)
    assert op.topic == names.TRANS_OP_HALF_TOPIC
    assert not states.is_open(0)
    assert end(rig, place, COMMIT) == (1, "the transaction has ended before, or was discarded")
    assert in_topic(rig, "T") == []


def test_the_manager_ends_a_half_message_that_cannot_be_read(rig: FastPath, states: SharedHalfStates) -> None:
    send_half(rig)
    assert by_manager(rig, TransactionEnd.UNREADABLE, (0, 0)) == 0
    assert [record.topic for record in stored(rig)] == [names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC]
    assert by_manager(rig, TransactionEnd.UNREADABLE, (1, 0)) == 1
    assert states.next_open(0, 1) == 1


def is_left_to_manager(rig: FastPath, command: RemotingCommand) -> bool:
    rig.frame(command)
    rig.turn()
    assert rig.answers() == []
    return [kind for kind, _ in rig.for_manager()] == [lib.RP_MSG_SEND]


def test_half_messages_that_the_manager_decides_about(rig: FastPath) -> None:
    assert is_left_to_manager(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02DELAY\x013"))


def test_rejected_half_messages_are_left_to_the_manager(rig: FastPath) -> None:
    rig.tell_send(lib.RP_MSG_BROKER, BROKER.write(permission=6, max_message_size=0, reject_transactions=1))
    assert is_left_to_manager(rig, half())


def test_without_the_op_topic_half_messages_are_left_to_the_manager(tmp_path: Path, states: SharedHalfStates) -> None:
    rig = FastPath(tmp_path, half_states=states.pointer)
    rig.add_topic("T")
    rig.add_topic(names.TRANS_HALF_TOPIC, 1)
    rig.tables_end()
    assert is_left_to_manager(rig, half())
    rig.close()


def test_the_last_tran_msg_counts(rig: FastPath) -> None:
    rig.frame(half("TRAN_MSG\x01true\x02TRAN_MSG\x01false"))
    assert answers(rig)[0].code == 0
    assert stored(rig)[0].topic == "T"


def test_the_window_bounds_how_far_behind_an_open_half_message_is(tmp_path: Path) -> None:
    states = SharedHalfStates()
    rig = FastPath(tmp_path, half_states=states.pointer)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, "T"):
        rig.add_topic(topic, 4)
    rig.tables_end()
    topic = names.TRANS_HALF_TOPIC.encode()
    lib.rp_control_find(rig.block, topic, len(topic), 0).next_offset = lib.RP_HALF_WINDOW
    rig.frame(half())
    (answer,) = answers(rig)
    assert answer.code == 2
    states.move_base(1)
    rig.frame(half())
    assert answers(rig)[0].code == 0
    assert states.is_open(lib.RP_HALF_WINDOW)
    rig.close()


# --- restarts of the send worker --------------------------------------------------------------------------------------


def test_a_restarted_send_worker_completes_a_published_mark(states: SharedHalfStates) -> None:
    lib.rp_half_states_begin(states.pointer, 3, lib.RP_HALF_COMMITTED, 500)
    assert states.is_open(3)
    lib.rp_half_states_open(states.pointer, 500)
    assert lib.rp_half_states_of(states.pointer, 3) == lib.RP_HALF_COMMITTED


def test_a_restarted_send_worker_removes_a_mark_that_was_not_published(states: SharedHalfStates) -> None:
    lib.rp_half_states_begin(states.pointer, 3, lib.RP_HALF_COMMITTED, 500)
    lib.rp_half_states_open(states.pointer, 499)
    assert states.is_open(3)
    lib.rp_half_states_open(states.pointer, 900)
    assert states.is_open(3)


def test_a_restarted_send_worker_knows_what_has_ended(rig: FastPath, states: SharedHalfStates) -> None:
    first, second = send_half(rig), send_half(rig)
    assert end(rig, first, COMMIT) == (0, "")
    restart_send(rig)
    assert end(rig, first, COMMIT) == (0, "")
    assert end(rig, second, COMMIT) == (0, "")
    assert [record.queue_offset for record in in_topic(rig, "T")] == [0, 1]


# --- the states themselves --------------------------------------------------------------------------------------------


def test_states_in_a_circle(states: SharedHalfStates) -> None:
    window = lib.RP_HALF_WINDOW
    for offset in (0, 5, 31, 32, 63, window - 1):
        lib.rp_half_states_set(states.pointer, offset, lib.RP_HALF_ENDED)
    assert [states.next_open(start, 100) for start in (0, 5, 31, 63)] == [1, 6, 33, 64]
    assert states.count_open(0, 70) == 65
    assert states.next_open(window - 1, window) == window
    assert states.next_open(5, 6) == 6 and states.count_open(5, 5) == 0
    states.move_base(6)
    assert lib.rp_half_states_of(states.pointer, 2) == lib.RP_HALF_ENDED  # below the window
    lib.rp_half_states_add(states.pointer, window + 5)
    assert states.is_open(window + 5)
    states.move_base(3)
    assert states.base == 6
