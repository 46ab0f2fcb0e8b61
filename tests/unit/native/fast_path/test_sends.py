"""Sends through codec and send worker: stored and answered, refused, or left to the manager, and in which order."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.message.batch import ENTRIES_MAX, BatchEntry, encode_batch
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from tests.support import ring_messages
from tests.support.fast_path import FastPath, drain
from tests.support.fast_path_requests import pull, ready, records_of, send_v2


def test_a_send_is_stored_and_answered(rig: FastPath) -> None:
    assert rig.frame(send_v2(properties="KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01TagA"), connection=5) == lib.RP_OK
    rig.turn()
    [(connection, reply)] = rig.answers()
    assert (connection, reply.code, reply.opaque, reply.is_response) == (5, 0, 7, True)
    assert reply.ext_fields == {
        "queueId": "0",
        "queueOffset": "0",
        "msgId": "7F00000100002A9F0000000000000000",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
    }
    rig.frame(pull())
    rig.turn()
    [(_, pulled)] = rig.answers()
    assert pulled.code == 0 and pulled.remark == "FOUND"
    assert pulled.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "1",
    }
    [record] = records_of(pulled)
    assert bytes(record.body) == b"hello" and record.flag == 3
    assert bytes(record.properties) == b"KEYS\x01k1\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"


def test_zero_bytes_in_properties_are_refused(rig: FastPath) -> None:
    """Recovery could take them for the end of a torn sector, and would end the log at such a message.
    Fault: A message whose properties ended in a zero byte ended the log after a power failure."""
    batch = struct.pack(">iiiii1sh", 25, 0, 0, 0, 1, b"m", 2)
    rig.frame(send_v2(properties="KEYS\x01k\0", opaque=1))
    rig.frame(send_v2(body=batch + b"a\0", m="true", opaque=2))
    rig.frame(send_v2(body=batch + b"ab", m="true", opaque=3))
    rig.turn()
    assert [(reply.opaque, reply.code) for _, reply in rig.answers()] == [(1, 13), (2, 13), (3, 0)]


def test_both_header_forms_and_both_serialisations(rig: FastPath) -> None:
    """Holds: network, frames and both serialisations of headers."""
    v1 = RemotingCommand.request(
        10,
        ext_fields={
            "producerGroup": "P",
            "topic": "T",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "1",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": "KEYS\x01a",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "maxReconsumeTimes": "0",
            "batch": "false",
        },
        body=b"v1",
    )
    compact = send_v2(body=b"compact", queue=1)
    compact.serialize_type = SerializeType.ROCKETMQ
    for command in (v1, compact):
        assert rig.frame(command) == lib.RP_OK
    rig.turn()
    (_, first), (_, second) = rig.answers()
    assert first.serialize_type is SerializeType.JSON and first.ext_field("queueOffset") == "0"
    assert second.serialize_type is SerializeType.ROCKETMQ and second.ext_field("queueOffset") == "1"


def test_oneway_is_stored_and_not_answered(rig: FastPath) -> None:
    command = send_v2()
    command.flag |= 2
    rig.frame(command)
    rig.turn()
    assert rig.answers() == []
    rig.frame(pull())
    rig.turn()
    assert rig.answers()[0][1].code == 0


def test_a_batch_has_consecutive_offsets_and_its_own_properties(rig: FastPath) -> None:
    def entry(body: bytes, properties: bytes) -> bytes:
        size = 22 + len(body) + len(properties)
        return struct.pack(">iiiii", size, 0, 0, 5, len(body)) + body + struct.pack(">h", len(properties)) + properties

    body = entry(b"one", b"TAGS\x01TagA") + entry(b"two", b"")
    rig.frame(send_v2(body=body, properties="UNIQ_KEY\x01batch\x02WAIT\x01true\x02", m="true"))
    rig.turn()
    [(_, reply)] = rig.answers()
    ids = reply.ext_fields["msgId"].split(",") if reply.ext_fields else []
    assert reply.code == 0 and len(ids) == 2 and len(set(ids)) == 2
    rig.frame(pull())
    rig.turn()
    [(_, pulled)] = rig.answers()
    records = records_of(pulled)
    assert [bytes(r.body) for r in records] == [b"one", b"two"]
    assert [r.queue_offset for r in records] == [0, 1]
    assert bytes(records[0].properties) == b"TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
    assert bytes(records[1].properties) == b"CLUSTER\x01DefaultCluster"


@pytest.mark.parametrize("body", [b"x", struct.pack(">iiiii", 9999, 0, 0, 0, 1) + b"abc", b""])
def test_a_malformed_batch_is_refused_whole(rig: FastPath, body: bytes) -> None:
    """Holds: answer, outcomes of the store for a send."""
    rig.frame(send_v2(body=body, m="true"))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 13 and reply.ext_field("MSG_REGION") == "DefaultRegion"


@pytest.mark.parametrize("is_resolved", [False, True])
def test_a_batch_has_a_limited_number_of_messages(tmp_path: Path, is_resolved: bool) -> None:
    """Fault: A batch of 190 000 empty messages kept the sends of all other clients waiting for 52 ms."""
    rig = ready(FastPath(tmp_path, ring_bytes=1 << 23))
    for count in (ENTRIES_MAX + 1, ENTRIES_MAX):
        body = encode_batch([BatchEntry(b"", b"")]) * count
        rig.frame(send_v2(body=body, m="true", i="DELAY\x011\x02" if is_resolved else ""))
        rig.turn()
        for kind, data in rig.for_manager():
            rig.hand_back(kind, data, lib.RP_REQUEST_RESOLVED)
            rig.turn()
    (_, refused), (_, stored) = rig.answers()
    assert refused.code == 13 and f"more than {ENTRIES_MAX} messages" in (refused.remark or "")
    assert stored.code == 0 and rig.workers["send"].counters[lib.RP_COUNT_MESSAGES_PUT] == ENTRIES_MAX
    rig.close()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"b": "unknown"}, lib.RP_MSG_SEND),
        ({"e": "99"}, lib.RP_MSG_SEND),
        ({"b": "%RETRY%G"}, lib.RP_MSG_SEND),
        ({"i": "DELAY\x013\x02"}, lib.RP_MSG_SEND),
        ({"i": "TRAN_MSG\x01true\x02"}, lib.RP_MSG_SEND),
        ({"e": "1.0"}, lib.RP_MSG_COMMAND),
        ({"g": ""}, lib.RP_MSG_COMMAND),
    ],
)
def test_what_needs_a_decision_is_left_to_the_manager(rig: FastPath, change: dict[str, str], kind: int) -> None:
    """Holds: answer, checks of a send (10, 310, 320)."""
    rig.frame(send_v2(**change))
    rig.turn()
    assert [got for got, _ in rig.for_manager()] == [kind]
    assert rig.answers() == []


@pytest.mark.parametrize(("flag", "kind"), [(0, lib.RP_MSG_HEARTBEAT), (1, lib.RP_MSG_COMMAND)])
def test_a_heartbeat_of_a_client_does_not_wake_a_manager_that_naps(rig: FastPath, flag: int, kind: int) -> None:
    manager = rig.workers["manager"]
    lib.rp_worker_prepare_sleep(manager)
    manager.asleep = lib.RP_NAPPING
    rig.frame(RemotingCommand(34, flag=flag, body=b"{}"))
    lib.rp_codec_wake(rig.codec)
    assert manager.asleep == (lib.RP_NAPPING if kind == lib.RP_MSG_HEARTBEAT else 0)
    assert [got for got, _ in rig.for_manager()] == [kind]


@pytest.mark.parametrize("is_of_broker", [True, False])
def test_without_write_permission_a_send_is_left_to_the_manager(rig: FastPath, is_of_broker: bool) -> None:
    if is_of_broker:
        rig.tell_broker(permission=4, max_message_size=0)
    else:
        rig.add_topic("T", perm=4)
    rig.frame(send_v2())
    rig.turn()
    [(kind, data)] = rig.for_manager()
    assert kind == lib.RP_MSG_SEND and rig.answers() == []
    rig.complete(data)
    rig.tell_broker(permission=6, max_message_size=0)
    rig.add_topic("T")
    rig.frame(send_v2())
    rig.turn()
    assert [reply.code for _, reply in rig.answers()] == [0]


@pytest.mark.parametrize(("given", "has_wait", "no_wait"), [("", 0, 0), ("true", 1, 0), ("false", 1, 1)])
def test_the_manager_is_told_of_wait(rig: FastPath, given: str, has_wait: int, no_wait: int) -> None:
    """Delayed and half messages store it.
    Fault: WAIT was lost in delayed messages, half messages, retries and dead letters."""
    rig.frame(send_v2(properties=f"DELAY\x013\x02WAIT\x01{given}\x02" if given else "DELAY\x013\x02"))
    rig.turn()
    [(_, data)] = rig.for_manager()
    flags = lib.RP_REQUEST_HAS_WAIT * has_wait | lib.RP_REQUEST_NO_WAIT * no_wait
    (got,) = struct.unpack_from("=I", data, ffi.offsetof("rp_msg_send", "flags"))
    assert got & (lib.RP_REQUEST_HAS_WAIT | lib.RP_REQUEST_NO_WAIT) == flags and b"WAIT" not in data


def test_a_consumer_that_copies_properties_makes_no_half_message(rig: FastPath) -> None:
    """A resend to a retry topic: without the flags of a transaction, which would keep it from being consumed.
    Fault: A message sent to a retry topic with copied transaction properties became a half message."""
    properties = "TRAN_MSG\x01true\x02UNIQ_KEY\x01u\x02tran_msg\x01true"
    rig.frame(send_v2("%RETRY%G", properties=properties, f="12"))
    rig.turn()
    [(_, data)] = rig.for_manager()
    flags, sys_flag = (
        struct.unpack_from("=i", data, ffi.offsetof("rp_msg_send", name))[0] for name in ("flags", "sys_flag")
    )
    assert (flags & lib.RP_REQUEST_HALF, sys_flag) == (0, 0)
    assert b"UNIQ_KEY\x01u\x02tran_msg\x01true" in data and b"TRAN_MSG" not in data


@pytest.mark.parametrize("is_half", [True, False])
def test_what_brokers_write_into_copies_of_half_messages_is_dropped(rig: FastPath, is_half: bool) -> None:
    written = "TRAN_PREPARED_QUEUE_OFFSET\x010\x02UNIQ_KEY\x01u\x02TRANSACTION_CHECK_TIMES\x0115"
    rig.frame(send_v2(properties=("TRAN_MSG\x01true\x02" if is_half else "DELAY\x013\x02") + written))
    rig.turn()
    [(_, data)] = rig.for_manager()
    assert b"UNIQ_KEY\x01u" in data and b"TRAN_PREPARED" not in data and b"CHECK_TIMES" not in data


def test_sends_of_a_connection_keep_their_order_around_the_manager(rig: FastPath) -> None:
    rig.frame(send_v2(topic="new", body=b"first"), connection=3)
    rig.frame(send_v2(body=b"second"), connection=3)
    rig.frame(send_v2(body=b"other connection"), connection=4)
    rig.turn()
    assert [connection for connection, _ in rig.answers()] == [4]
    left = rig.for_manager()
    assert [kind for kind, _ in left] == [lib.RP_MSG_SEND] * 2
    rig.add_topic("new")
    for kind, data in left:
        rig.hand_back(kind, data, lib.RP_REQUEST_RESOLVED)
        rig.complete(data)
    rig.turn()
    assert [(c, r.code) for c, r in rig.answers()] == [(3, 0), (3, 0)]
    rig.frame(send_v2(body=b"third"), connection=3)
    rig.turn()
    assert len(rig.answers()) == 1 and rig.for_manager() == []


def test_a_connection_is_not_read_while_its_sends_follow_one_at_the_manager(rig: FastPath) -> None:
    """Fault: A connection that sent faster than the manager serves stayed on the slow path for as long as it sent."""

    def orders() -> list[tuple[int, int]]:
        """(connection, flags) of messages to the selector that carry no frame."""
        replies = [ring_messages.reply(data) for reader in rig.replies for _, data in drain(reader)]
        return [(connection, flags) for connection, flags, frame in replies if not frame]

    rig.frame(send_v2(topic="new"), connection=3)
    rig.turn()
    assert orders() == [], "it may wait for the answer before it sends again"
    rig.frame(send_v2(), connection=3)
    rig.frame(send_v2(), connection=4)
    rig.turn()
    assert orders() == [(3, lib.RP_REPLY_PAUSE)]
    first, second = (data for _, data in rig.for_manager())
    rig.complete(first)
    rig.turn()
    assert orders() == []
    rig.complete(second)
    rig.turn()
    assert orders() == [(3, lib.RP_REPLY_RESUME)]


def test_a_restarted_send_worker_goes_on_where_the_previous_one_ended(rig: FastPath) -> None:
    for _ in range(3):
        rig.frame(send_v2())
    lib.rp_codec_wake(rig.codec)
    lib.rp_send_run(rig.send, 0)
    assert len(rig.answers()) == 3
    # killed: its private memory is gone, nothing was dispatched yet
    lib.rp_control_find(rig.block, b"T", 1, 0).next_offset = 0
    rig.send = rig.open_send()
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send_v2())
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.ext_field("queueOffset") == "3"


def test_sync_flush_answers_when_the_disk_has_it(tmp_path: Path) -> None:
    """Holds: store, synchronous flush in groups."""
    rig = FastPath(tmp_path, sync_flush=1)
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send_v2(opaque=1))
    rig.frame(send_v2(opaque=2, properties="WAIT\x01false\x02"))
    rig.turn()
    assert [r.opaque for _, r in rig.answers()] == [2]
    header = lib.rp_control_header(rig.block)
    header.durable_phy_offset = header.published_phy_offset
    rig.turn()
    assert [(r.opaque, r.code) for _, r in rig.answers()] == [(1, 0)]


def test_sync_flush_that_takes_too_long_is_said_so(tmp_path: Path) -> None:
    """Holds: trap, FLUSH_DISK_TIMEOUT is a success of a send only."""
    rig = FastPath(tmp_path, sync_flush=1, sync_flush_timeout_ms=0)
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send_v2())
    rig.turn()
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 10 and reply.ext_field("queueOffset") == "0"


def test_a_request_that_waited_too_long_is_answered_busy(tmp_path: Path) -> None:
    rig = FastPath(tmp_path, fast_failure=1, wait_time_in_queue_ms=0)
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send_v2())
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 2 and (reply.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]")


def test_a_full_disk_refuses_sends_and_nothing_else(rig: FastPath) -> None:
    rig.frame(send_v2())
    rig.turn()
    lib.rp_control_header(rig.block).running_flags = 16
    rig.frame(send_v2(opaque=8))
    rig.frame(pull())
    rig.turn()
    assert sorted((r.opaque, r.code) for _, r in rig.answers()) == [(7, 0), (8, 14), (9, 0)]
    lib.rp_control_header(rig.block).running_flags = 0
    rig.frame(send_v2(opaque=10))
    rig.turn()
    assert [(r.opaque, r.code) for _, r in rig.answers()] == [(10, 0)]


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\x00", b"\x02\x00\x00\x00", b"\x00\x00\xff\xff{}", b"\x00\x00\x00\x04nope", b"\x01\x00\x00\x02ab"],
)
def test_what_is_no_frame_closes_the_connection(rig: FastPath, data: bytes) -> None:
    assert rig.raw_frame(data) == lib.RP_INVALID


def test_a_large_body_crosses_the_rings_in_parts(rig: FastPath) -> None:
    body = bytes(range(256)) * 8192  # 2 MiB through rings of 256 KiB
    status = rig.frame(send_v2(body=body))
    assert status == lib.RP_OK
    for _ in range(64):
        rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 0
    rig.frame(pull())
    rig.turn()
    [(_, pulled)] = rig.answers()
    assert bytes(records_of(pulled)[0].body) == body


def test_the_log_rolls_between_records(rig: FastPath) -> None:
    """Holds: store, one log for all topics in files named by their start offset."""
    body = b"x" * 60_000
    for i in range(300):
        rig.frame(send_v2(body=body, opaque=i))
        rig.turn()
    codes = [r.code for _, r in rig.answers()]
    assert codes == [0] * 300
    assert len(list((rig.root / "commitlog").iterdir())) >= 3
    offset = seen = 0
    while seen < 300:
        rig.frame(pull(offset))
        rig.turn()
        [(_, reply)] = rig.answers()
        records = records_of(reply)
        assert [r.queue_offset for r in records] == list(range(offset, offset + len(records)))
        seen += len(records)
        offset = int(reply.ext_field("nextBeginOffset") or 0)
