"""The send worker under a coordinator of automatic failover: what it stores, and what it answers until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the send loop is C")

from rocketpy.broker import replies
from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.failover.member_block import NO_DEADLINE_NS, MemberBlock, MemberOrders
from rocketpy.message import names
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import decode_put_result, encode_put
from rocketpy.remoting.fast_path import MessageToPut
from tests.support.fast_path_requests import send_v2
from tests.support.half_messages import COMMIT, end, send_half
from tests.support.timer_rig import START_MS, TimerRig
from tests.unit.native.test_sync_sends import Rig

OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, SERVICE_NOT_AVAILABLE = 0, 10, 11, 12, 14
A, B = ("a", "1f"), ("b", "2e")
BOOT_MS = 5_000_000


def master(*counting: tuple[str, str], takes_sends: bool = True, answers_waits: bool = True) -> MemberOrders:
    return MemberOrders(
        is_master=True, epoch=1, takes_sends=takes_sends, answers_waits=answers_waits, counting=frozenset(counting)
    )


class Ordered(Rig):
    """A master of the group {a, b}. The test plays coordinator and replicator."""

    def __init__(self, root: Path, *, is_sync: bool = True, **options: Any) -> None:
        self.member = MemberBlock()
        self.member.deadline_ns = NO_DEADLINE_NS
        self.boot_ms = BOOT_MS
        self.boot_looks = 0
        self.before_boot_look = lambda: None
        self._boot = ffi.callback("int64_t(void)", self._look_at_boot)
        own = {"member": self.member.pointer, "waits_for_confirmed": is_sync, "slaves": ffi.NULL}
        super().__init__(root, **(own | {"boot_ms": self._boot} | options))

    def _look_at_boot(self) -> int:
        self.boot_looks += 1
        self.before_boot_look()
        return self.boot_ms

    def client_send(self, opaque: int, version: int = 409) -> None:
        """One that has just arrived, from a connection of its own."""
        command = attrs.evolve(send_v2(opaque=opaque), version=version)
        self.frame(command, connection=opaque, received_ns=self.now_ns)
        self.turn()

    def order(self, orders: MemberOrders) -> int:
        version = self.member.give(orders)
        self.turn()
        return version

    def confirm(self, *, is_alone: bool = False) -> None:
        end = self.header.published_phy_offset
        if is_alone:
            self.member.pointer.alone_phy_offset = end
        self.header.confirmed_phy_offset = end

    @property
    def published(self) -> int:
        return int(self.header.published_phy_offset)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Ordered]:
    rig = Ordered(tmp_path)
    yield rig
    rig.close()


def test_nothing_is_stored_before_the_first_orders(rig: Ordered) -> None:
    rig.send_one()
    assert rig.codes() == [(1, SERVICE_NOT_AVAILABLE)] and rig.published == 0


def test_nothing_is_stored_while_sends_are_refused(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.send_one(1)
    end, version = rig.published, rig.order(master(A, B, takes_sends=False))
    assert end > 0 and rig.member.sends_refused == version
    rig.send_one(2)
    rig.put(encode_put(MessageToPut("T", 0, b"x", b""), 7, 0))
    assert rig.codes() == [(2, SERVICE_NOT_AVAILABLE)] and rig.published == end
    results = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
    [(token, result)] = [decode_put_result(record, ("127.0.0.1", 1)) for record in results]
    assert token == 7 and result.code == SERVICE_NOT_AVAILABLE and not result.is_final_refusal


def test_a_send_to_a_topic_that_is_not_known_is_refused_before_the_manager_creates_it(rig: Ordered) -> None:
    rig.order(master(A, B, takes_sends=False))
    rig.send_one(1, topic="New")
    assert rig.codes() == [(1, SERVICE_NOT_AVAILABLE)] and rig.for_manager() == []


def test_what_was_taken_before_is_in_the_log_when_the_refusal_is_reported(rig: Ordered) -> None:
    rig.order(master(A, B))
    for opaque in range(1, 41):
        rig.frame(send_v2(opaque=opaque))
    version = rig.member.give(master(A, B, takes_sends=False))
    assert rig.member.sends_refused == 0
    rig.turn()
    end = rig.published
    assert rig.member.sends_refused == version
    rig.turn()
    assert rig.published == end
    rig.order(master(A, B))
    assert rig.member.sends_refused == 0
    rig.send_one(41)
    assert rig.published > end


def test_each_version_of_refusing_orders_is_reported(rig: Ordered) -> None:
    first = rig.order(master(A, B, takes_sends=False))
    assert rig.member.sends_refused == first
    assert rig.order(master(A, takes_sends=False)) == rig.member.sends_refused == first + 2


def test_orders_that_are_being_changed_leave_those_before(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.member.pointer.version |= 1  # the coordinator died in the middle
    rig.send_one(1)
    rig.confirm()
    assert rig.codes() == [(1, OK)]


def test_the_answer_leaves_when_all_that_count_have_the_message(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.send_one(1)
    rig.header.replicated_phy_offset = rig.published  # one slave has it: not enough
    assert rig.codes() == []
    rig.confirm()
    assert rig.codes() == [(1, OK)]


def test_a_member_that_takes_too_long(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.send_one(1)
    rig.pass_ms(3_000)
    assert rig.codes() == [(1, FLUSH_SLAVE_TIMEOUT)]


def test_alone_in_the_set_the_answer_says_so_at_once(rig: Ordered) -> None:
    rig.order(master(A))
    rig.send_one(1)
    assert rig.codes() == [(1, SLAVE_NOT_AVAILABLE)] and rig.published > 0


def test_a_set_that_shrinks_to_this_member_while_a_reply_waits(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.send_one(1)
    rig.member.give(master(A))
    rig.confirm(is_alone=True)
    assert rig.codes() == [(1, SLAVE_NOT_AVAILABLE)], "nobody else is known to have it"


def test_a_set_that_has_grown_since_does_not_make_a_position_safe(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.send_one(1)
    rig.member.give(master(A))
    rig.confirm(is_alone=True)
    rig.member.give(master(A, B))  # this worker saw nothing of the smaller set
    rig.send_one(2)
    assert rig.codes() == [(1, SLAVE_NOT_AVAILABLE)]
    rig.confirm()
    assert rig.codes() == [(2, OK)]


def test_what_waits_is_answered_when_answers_may_not_leave_any_more(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.send_one(1)
    rig.confirm()
    rig.order(master(A, B, takes_sends=False, answers_waits=False))
    assert rig.codes() == [(1, SERVICE_NOT_AVAILABLE)], "although it is confirmed"


@pytest.mark.parametrize("is_sync", [True, False])
def test_no_answer_leaves_after_the_deadline(tmp_path: Path, is_sync: bool) -> None:
    rig = Ordered(tmp_path, is_sync=is_sync)
    rig.member.deadline_ns = (BOOT_MS + 100) * 1_000_000
    rig.order(master(A, B))
    rig.boot_ms += 99
    rig.send_one(1)
    rig.confirm()
    assert rig.codes() == [(1, OK)]
    rig.boot_ms += 1
    rig.send_one(2)
    rig.confirm()
    assert rig.codes() == [(2, SERVICE_NOT_AVAILABLE)]
    rig.member.deadline_ns = 0
    rig.send_one(3)
    assert rig.codes() == [(3, SERVICE_NOT_AVAILABLE)]
    rig.close()


def test_the_answer_of_a_stored_send_says_that_it_may_be_stored(rig: Ordered) -> None:
    """A member that has passed it on must not send it again, as it does after a refusal.
    Fault: A send stored by a fenced master was taken for refused and stored twice."""
    rig.order(master(A, B))
    rig.send_one(1)
    rig.put(encode_put(MessageToPut("T", 0, b"x", b""), 7, 0))
    rig.turn()
    end = rig.published
    rig.member.deadline_ns = 0
    rig.order(master(A, B, takes_sends=False, answers_waits=False))
    rig.send_one(2)
    rig.put(encode_put(MessageToPut("T", 0, b"x", b""), 8, 0))
    rig.turn()
    answers = {reply.opaque: (reply.code, reply.remark == replies.PERHAPS_STORED) for _, reply in rig.answers()}
    assert end == rig.published and answers == {1: (14, True), 2: (14, False)}
    records = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
    results = dict(decode_put_result(record, ("127.0.0.1", 1)) for record in records)
    assert {token: (put.code, put.may_be_stored) for token, put in results.items()} == {7: (14, True), 8: (14, False)}


def test_replies_that_wait_do_not_wait_beyond_the_deadline(rig: Ordered) -> None:
    rig.member.deadline_ns = (BOOT_MS + 100) * 1_000_000
    rig.order(master(A, B))
    rig.send_one(1)
    assert rig.codes() == []
    rig.boot_ms += 100
    assert rig.codes() == [(1, SERVICE_NOT_AVAILABLE)]


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_deadline_that_moves_between_two_looks(rig: Ordered, looks: int) -> None:
    """Fault: An unreplicated send was answered SUCCESS if the deadline moved as it passed."""
    rig.member.deadline_ns = (BOOT_MS + 100) * 1_000_000
    rig.order(master(A, B))
    rig.send_one(1)
    rig.send_one(2)
    rig.boot_ms += 200

    def renew() -> None:
        if rig.boot_looks == renewed_at:
            rig.member.deadline_ns = (BOOT_MS + 10_000) * 1_000_000

    renewed_at, rig.before_boot_look = rig.boot_looks + looks, renew
    rig.turn()
    rig.turn()
    assert (1, OK) not in rig.codes() and rig.boot_looks >= renewed_at


def test_an_asynchronous_group_waits_for_nobody(tmp_path: Path) -> None:
    rig = Ordered(tmp_path, is_sync=False)
    rig.order(master(A, B))
    rig.send_one(1)
    assert rig.codes() == [(1, OK)]
    rig.close()


def test_alone_with_sync_flush_the_disk_is_waited_for(tmp_path: Path) -> None:
    rig = Ordered(tmp_path, sync_flush=1)
    rig.order(master(A))
    rig.send_one(1)
    assert rig.codes() == []
    rig.flushed()
    assert rig.codes() == [(1, SLAVE_NOT_AVAILABLE)]
    rig.close()


def test_a_transaction_is_not_ended_while_sends_are_refused(tmp_path: Path) -> None:
    states = SharedHalfStates()
    rig = Ordered(tmp_path, is_sync=False, half_states=states.pointer)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.order(master(A, B))
    place = send_half(rig)
    rig.order(master(A, B, takes_sends=False))
    stored = rig.published
    answer = end(rig, place, COMMIT)
    assert answer is not None and answer[0] == SERVICE_NOT_AVAILABLE
    assert rig.published == stored and states.is_open(0)
    rig.order(master(A, B))
    assert end(rig, place, COMMIT) == (OK, "") and rig.published > stored
    rig.close()


def test_a_timer_is_not_delivered_while_sends_are_refused(tmp_path: Path) -> None:
    member = MemberBlock()
    member.deadline_ns = NO_DEADLINE_NS
    rig = TimerRig(tmp_path, member=member.pointer)
    rig.add_timer_topic()
    member.give(master(A, B))
    rig.send_many([(b"late", f"TIMER_DELIVER_MS\x01{START_MS + 1000}")])
    rig.run_until_idle()
    member.give(master(A, B, takes_sends=False))
    rig.path.turn()
    stored = rig.control.published_phy_offset
    rig.advance(2000)
    rig.run_until_idle()
    assert rig.control.published_phy_offset == stored
    member.give(master(A, B))
    rig.advance(10_000)
    rig.run_until_idle()
    assert [record.body for record in rig.records("T")] == [b"late"]
    rig.close()


def test_a_worker_that_was_restarted_reads_the_orders_again(rig: Ordered) -> None:
    version = rig.order(master(A, B, takes_sends=False))
    rig.member.begin_tree()
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.turn()
    assert rig.member.sends_refused == version
