"""Codec, send, dispatch and pull together: what leaves C answered, what is left to the manager, and in which order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.message.tags import expression_tags, string_hash
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from tests.support.fast_path import EXT_FILE_SIZE, TURN_NS, FastPath
from tests.support.waiting import is_readable


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    rig = ready(FastPath(tmp_path))
    yield rig
    rig.close()


def ready(rig: FastPath) -> FastPath:
    """With a topic T, and a group G that subscribes to it."""
    rig.add_topic("T")
    rig.add_group("G")
    rig.subscribe("G", "T")
    rig.tables_end()
    return rig


def send_v2(
    topic: str = "T", body: bytes = b"hello", queue: int = 0, properties: str = "", opaque: int = 7, **more: str
) -> RemotingCommand:
    fields = {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": "1700000000000",
        "h": "3",
        "i": properties,
    }
    command = RemotingCommand.request(310, ext_fields=fields | more, body=body)
    command.opaque = opaque
    return command


def pull(
    offset: int = 0,
    queue: int = 0,
    *,
    flags: int = 4,
    expression: str = "*",
    maximum: int = 32,
    opaque: int = 9,
    suspend: int = 15000,
    group: str = "G",
    topic: str = "T",
    commit: int = 0,
) -> RemotingCommand:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": str(maximum),
        "sysFlag": str(flags),
        "commitOffset": str(commit),
        "suspendTimeoutMillis": str(suspend),
        "subscription": expression,
        "subVersion": "1",
        "expressionType": "TAG",
    }
    command = RemotingCommand.request(11, ext_fields=fields)
    command.opaque = opaque
    return command


def records_of(reply: RemotingCommand) -> list[StoredRecord]:
    return list(decode_records(reply.body or b""))


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
    """Recovery could take them for the end of a torn sector, and would end the log at such a message."""
    batch = struct.pack(">iiiii1sh", 25, 0, 0, 0, 1, b"m", 2)
    rig.frame(send_v2(properties="KEYS\x01k\0", opaque=1))
    rig.frame(send_v2(body=batch + b"a\0", m="true", opaque=2))
    rig.frame(send_v2(body=batch + b"ab", m="true", opaque=3))
    rig.turn()
    assert [(reply.opaque, reply.code) for _, reply in rig.answers()] == [(1, 13), (2, 13), (3, 0)]


def test_both_header_forms_and_both_serialisations(rig: FastPath) -> None:
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
    rig.frame(send_v2(body=body, m="true"))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert reply.code == 13 and reply.ext_field("MSG_REGION") == "DefaultRegion"


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
    rig.frame(send_v2(**change))
    rig.turn()
    assert [got for got, _ in rig.for_manager()] == [kind]
    assert rig.answers() == []


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
    """Delayed and half messages store it."""
    rig.frame(send_v2(properties=f"DELAY\x013\x02WAIT\x01{given}\x02" if given else "DELAY\x013\x02"))
    rig.turn()
    [(_, data)] = rig.for_manager()
    flags = lib.RP_REQUEST_HAS_WAIT * has_wait | lib.RP_REQUEST_NO_WAIT * no_wait
    (got,) = struct.unpack_from("=I", data, ffi.offsetof("rp_msg_send", "flags"))
    assert got & (lib.RP_REQUEST_HAS_WAIT | lib.RP_REQUEST_NO_WAIT) == flags and b"WAIT" not in data


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


@pytest.mark.parametrize("is_extended", [False, True])
def test_tag_filters_skip_and_the_next_offset_moves_over_what_did_not_match(tmp_path: Path, is_extended: bool) -> None:
    rig = ready(FastPath(tmp_path, is_extended=is_extended))
    for tag in ("TagA", "TagB", "TagB", "TagA", "TagB"):
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
    rig.turn()
    rig.answers()
    rig.frame(pull(expression="TagA || TagC"))
    rig.frame(pull(expression="TagX", opaque=10))
    rig.turn()
    (_, found), (_, missed) = rig.answers()
    assert [r.queue_offset for r in records_of(found)] == [0, 3]
    assert found.ext_field("nextBeginOffset") == "5"
    assert (missed.code, missed.ext_field("nextBeginOffset")) == (20, "5")
    extensions = list((tmp_path / "consumequeue_ext").rglob("0*0"))
    assert len(extensions) == is_extended
    for path in extensions:  # lost: their messages pass every filter
        path.write_bytes(path.read_bytes()[:40].ljust(EXT_FILE_SIZE, b"\0"))
        rig.frame(pull(expression="TagX"))
        rig.turn()
        assert [r.queue_offset for r in records_of(rig.answers()[0][1])] == [2, 3, 4]


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256])
@pytest.mark.parametrize("is_of_group", [False, True])
def test_any_number_of_tags_passes_theirs_and_no_other(rig: FastPath, count: int, is_of_group: bool) -> None:
    tags = [f"tag{number * 7919 % 1000}" for number in range(count)]  # their hashes are in no order, some negative
    sent = [tags[0], "other", tags[-1], "tag", tags[count // 2], "tag1000"]
    for tag in sent:
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
    rig.turn()
    rig.answers()
    rig.subscribe("G", "T", [string_hash(tag) for tag in tags])
    rig.frame(pull(flags=0) if is_of_group else pull(expression=" || ".join(tags)))
    rig.turn()
    ((_, reply),) = rig.answers()
    assert [record.queue_offset for record in records_of(reply)] == [0, 2, 4]


@pytest.mark.parametrize(
    "expression", ["*", "", "a", "a||b", "\ta || \x01b \n||", "a|||b", " * ", " || ", "a\u3000|| \xa0b"]
)
def test_an_expression_selects_what_it_does_in_python(rig: FastPath, expression: str) -> None:
    sent = ["a", "b", "*", "|b", "a\u3000", "\xa0b", "other"]
    for tag in sent:
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
    rig.turn()
    rig.answers()
    rig.frame(pull(expression=expression))
    rig.turn()
    ((_, reply),) = rig.answers()
    wanted = expression_tags(expression)
    expected = [offset for offset, tag in enumerate(sent) if wanted is None or tag in wanted]
    assert [record.queue_offset for record in records_of(reply)] == expected


@pytest.mark.parametrize(("offset", "code", "next_begin"), [(2, 19, "2"), (3, 21, "2"), (-1, 21, "0")])
def test_offsets_out_of_range(rig: FastPath, offset: int, code: int, next_begin: str) -> None:
    rig.frame(send_v2())
    rig.frame(send_v2())
    rig.frame(pull(offset))
    rig.turn()
    rig.answers()
    rig.frame(pull(offset))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.code, reply.ext_field("nextBeginOffset")) == (code, next_begin)


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
def test_an_empty_queue(rig: FastPath, offset: int, code: int) -> None:
    rig.frame(pull(offset, queue=2))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.code, reply.ext_field("nextBeginOffset")) == (code, "0")


def test_a_held_pull_is_answered_by_the_message_it_waits_for(rig: FastPath) -> None:
    rig.frame(pull(0, flags=6, opaque=77), connection=8)
    rig.turn()
    assert rig.answers() == []
    rig.frame(send_v2(queue=1))
    rig.turn()
    assert [r.opaque for _, r in rig.answers()] == [7]
    rig.frame(send_v2(queue=0, body=b"awaited"))
    rig.turn()
    answers = {r.opaque: (c, r) for c, r in rig.answers()}
    connection, reply = answers[77]
    assert connection == 8 and bytes(records_of(reply)[0].body) == b"awaited"


@pytest.mark.parametrize(("queue", "is_rung"), [(0, True), (1, False)])
def test_a_pull_that_waits_for_what_is_stored_wakes_a_store_worker_that_dozes(
    rig: FastPath, queue: int, is_rung: bool
) -> None:
    """The message came when nobody watched its queue, so the send worker rang nobody."""
    store = rig.workers["store"]
    rig.frame(send_v2(queue=0))
    lib.rp_codec_wake(rig.codec)
    lib.rp_send_run(rig.send, TURN_NS)
    assert not is_readable(store.doorbell, 0)
    rig.frame(pull(0, queue=queue, flags=6))
    lib.rp_codec_wake(rig.codec)
    lib.rp_pull_run(rig.pull, TURN_NS)
    assert is_readable(store.doorbell, 0) == is_rung


def test_a_held_pull_waits_on_over_messages_that_do_not_match_and_ends_with_its_connection(rig: FastPath) -> None:
    rig.frame(pull(0, flags=6, expression="TagA", opaque=77), connection=8)
    rig.turn()
    rig.frame(send_v2(properties="TAGS\x01TagB"))
    rig.turn()
    assert [r.opaque for _, r in rig.answers()] == [7]
    rig.closed(8)
    rig.turn()
    rig.frame(send_v2(properties="TAGS\x01TagA"))
    rig.turn()
    assert [r.opaque for _, r in rig.answers()] == [7]
    assert rig.workers["pull"].counters[lib.RP_COUNT_SUSPENDED] == 0


def test_a_held_pull_does_not_wait_behind_many_messages_that_do_not_match(rig: FastPath) -> None:
    rig.frame(pull(0, flags=6, expression="TagA", opaque=77), connection=8)
    rig.turn()
    for tag, body in [("TagB", b"other")] * 1000 + [("TagA", b"awaited")]:
        rig.frame(send_v2(properties=f"TAGS\x01{tag}", body=body))
        lib.rp_send_run(rig.send, TURN_NS)
        rig.answers()  # of the sends
    rig.turn()
    replies = {reply.opaque: reply for _, reply in rig.answers()}
    assert [(r.queue_offset, bytes(r.body)) for r in records_of(replies[77])] == [(1000, b"awaited")]


def test_pulls_without_a_header_subscription_need_the_group_online(rig: FastPath) -> None:
    rig.frame(send_v2())
    rig.frame(pull(flags=0))
    rig.turn()
    assert sorted(r.opaque for _, r in rig.answers()) == [7, 9]
    rig.frame(pull(flags=0, group="offline"))
    rig.frame(pull(flags=0, topic="unknown"))
    rig.frame(pull(queue=99))
    rig.frame(pull(), listener=1)
    rig.turn()
    assert rig.answers() == []
    kinds = sorted(kind for kind, _ in rig.for_manager())
    assert kinds == [lib.RP_MSG_COMMAND, lib.RP_MSG_PULL, lib.RP_MSG_PULL, lib.RP_MSG_PULL, lib.RP_MSG_CLOSED][:4]


def test_offsets_that_ride_on_pulls_reach_the_manager_once(rig: FastPath) -> None:
    for commit in (1, 2, 3):
        rig.frame(pull(flags=5, commit=commit), received_ns=1000 + commit)
    rig.turn()
    rig.turn()
    records = [data for kind, data in rig.for_manager() if kind == lib.RP_MSG_COMMIT_OFFSET]
    assert [struct.unpack_from("=qi12xQ", data) for data in records] == [(3, 0, 1003)]
    assert records[0][32:] == b"GT"


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
