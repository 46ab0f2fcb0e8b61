"""Pulls through codec and pull worker: what they select, what they are answered, and how long they wait."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.message.tags import EXPRESSION_TAGS_MAX, expression_tags, string_hash
from rocketpy.native.core import lib
from tests.support.fast_path import EXT_FILE_SIZE, TURN_NS, FastPath
from tests.support.fast_path_requests import pull, ready, records_of, send_v2
from tests.support.waiting import is_readable


@pytest.mark.parametrize("is_extended", [False, True])
def test_tag_filters_skip_and_the_next_offset_moves_over_what_did_not_match(tmp_path: Path, is_extended: bool) -> None:
    """Holds: filter, tags by hash on the broker and by text on the client."""
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
    """Fault: A subscription to ` || ` or ` * ` selected other messages in the manager than in the pull worker.
    Holds: filter, on both sides; trap, code sets come from the heartbeat."""
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
    """The manager hands a pull beyond the queue back if the group has committed no offset.
    Holds: answer, results of a pull."""
    rig.frame(send_v2())
    rig.frame(send_v2())
    rig.turn()
    rig.answers()
    rig.frame(pull(offset))
    rig.turn()
    for kind, record in rig.for_manager():
        rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.code, reply.ext_field("nextBeginOffset")) == (code, next_begin)


@pytest.mark.parametrize(("is_slave", "is_asked"), [(False, True), (True, False)])
def test_a_pull_beyond_its_queue_is_left_to_the_manager_of_a_master(
    tmp_path: Path, is_slave: bool, is_asked: bool
) -> None:
    """And commits nothing: its offsets are those of another log."""
    rig = ready(FastPath(tmp_path, pull_options={"is_slave": is_slave, "offset_check_in_slave": True}))
    rig.frame(send_v2())
    rig.turn()
    rig.answers()
    rig.frame(pull(2, flags=5, commit=1))
    rig.turn()
    left = rig.for_manager()
    assert [kind for kind, _ in left] == [lib.RP_MSG_PULL] * is_asked
    for kind, record in left:
        rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    ((_, reply),) = rig.answers()
    assert (reply.code, reply.remark, reply.ext_field("nextBeginOffset")) == (21, "OFFSET_OVERFLOW_BADLY", "1")
    rig.turn()
    assert rig.for_manager() == []


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
def test_an_empty_queue(rig: FastPath, offset: int, code: int) -> None:
    rig.frame(pull(offset, queue=2))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.code, reply.ext_field("nextBeginOffset")) == (code, "0")


def test_a_held_pull_is_answered_by_the_message_it_waits_for(rig: FastPath) -> None:
    """Holds: broker, long polling; answer, suspending and waking of a pull."""
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
    """Holds: trap, a woken pull that finds nothing answers at once."""
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


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"group": "gone"}, "the group was removed or may not consume; pull again"),
        ({"topic": "gone"}, "the topic was removed or may not be read; pull again"),
        ({"queue": 99}, "the topic has no such queue; pull again"),
        ({"queue": -1}, "the topic has no such queue; pull again"),
        ({"flags": 0, "group": "silent"}, "the group is offline, or its filter cannot be evaluated; pull again"),
        ({"expression": "||" * EXPRESSION_TAGS_MAX}, "the filter of this pull cannot be evaluated"),
    ],
)
def test_a_pull_that_comes_back_and_cannot_be_served_gets_the_reason(
    rig: FastPath, asked: dict[str, Any], fault: str
) -> None:
    rig.add_group("silent", online=False)
    rig.frame(pull(**asked))
    rig.turn()
    ((kind, record),) = rig.for_manager()
    rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    ((_, reply),) = rig.answers()
    assert (reply.code, reply.remark, rig.for_manager()) == (1, fault, [])


@pytest.mark.parametrize(("topic", "end"), [("T", 1), ("unknown", 0)])
def test_a_pull_that_comes_back_to_a_restarted_worker_is_sent_back(rig: FastPath, topic: str, end: int) -> None:
    """Its tables follow in the ring.

    Fault: A pull was told that its group was removed, if the pull worker died while the manager had the pull."""
    rig.frame(send_v2())
    rig.frame(pull(7, topic=topic, group="new"))
    rig.turn()
    rig.answers()
    ((kind, record),) = rig.for_manager()
    rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    lib.rp_pull_close(rig.pull)
    rig.pull = rig.open_pull()
    rig.turn()
    ((_, reply),) = rig.answers()
    assert (reply.code, rig.for_manager()) == (20, [])
    assert [reply.ext_field(name) for name in ("nextBeginOffset", "minOffset", "maxOffset")] == ["7", "0", str(end)]


def test_a_pull_that_comes_back_after_a_change_of_the_permission(rig: FastPath) -> None:
    rig.tell_broker(2, 4096)
    rig.frame(pull())
    rig.turn()
    ((kind, record),) = rig.for_manager()
    rig.hand_back(kind, record, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    ((_, reply),) = rig.answers()
    assert (reply.code, reply.remark) == (1, "brokerPermission has no read; pull again")


def test_as_many_tags_are_read_as_python_says() -> None:
    assert lib.RP_TAGS_MAX == EXPRESSION_TAGS_MAX


@pytest.mark.parametrize("count", [256, 257, 4096])
def test_very_many_tags(rig: FastPath, count: int) -> None:
    """Of a group, and of a pull that is suspended: the worker keeps its tags."""
    tags = [f"t{number}" for number in range(count)]
    rig.subscribe("G", "T", [string_hash(tag) for tag in tags])
    rig.frame(pull(flags=6, expression="||".join(tags), opaque=70))
    rig.frame(pull(expression="overwrites", flags=6, queue=1))
    rig.turn()
    for tag in ("t0", "other", f"t{count - 1}"):
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
        rig.turn()
    replies = {reply.opaque: reply for _, reply in rig.answers()}
    assert [record.queue_offset for record in records_of(replies[70])] == [0]
    rig.frame(pull(flags=0))
    rig.turn()
    ((_, reply),) = rig.answers()
    assert [record.queue_offset for record in records_of(reply)] == [0, 2]


def test_offsets_that_ride_on_pulls_reach_the_manager_once(rig: FastPath) -> None:
    """Fault: An offset that rode on a pull undid a later update by the same client."""
    for commit in (1, 2, 3):
        rig.frame(pull(flags=5, commit=commit), received_ns=1000 + commit)
    rig.turn()
    rig.turn()
    records = [data for kind, data in rig.for_manager() if kind == lib.RP_MSG_COMMIT_OFFSET]
    assert [struct.unpack_from("=qi12xQ", data) for data in records] == [(3, 0, 1003)]
    assert records[0][32:] == b"GT"
