"""The send worker while the master of its group changes: what it keeps, takes to its end, or passes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the send loop is C")

from rocketpy.broker.sending.passed_on_sends import PASSED_ON
from rocketpy.failover.member_block import MemberOrders
from rocketpy.native.core import ffi, lib
from tests.support import ring_messages
from tests.support.fast_path import drain
from tests.unit.native.test_send_orders import OK, SERVICE_NOT_AVAILABLE, A, B, Ordered, master, rig

__all__ = ["rig"]  # a fixture


def keeping(*, is_master: bool) -> MemberOrders:
    """Of a member whose role changes; `is_master`: the role that its process tree is to have."""
    return MemberOrders(is_master=is_master, epoch=1, keeps_sends=True, answers_waits=is_master)


def test_a_send_is_kept_while_the_master_changes(rig: Ordered) -> None:
    """Until the change has failed, or has taken too long."""
    rig.order(keeping(is_master=True))
    rig.client_send(1)
    assert rig.codes() == [] and rig.published == 0
    rig.order(master(A, B))
    rig.turn()
    rig.confirm()
    assert rig.codes() == [(1, OK)]


def test_a_send_that_was_kept_for_too_long_is_refused(rig: Ordered) -> None:
    rig.order(keeping(is_master=True))
    rig.client_send(2)
    rig.pass_ms(2_600)
    assert rig.codes() == [(2, SERVICE_NOT_AVAILABLE)]


def test_a_master_that_hands_over_takes_what_was_read_before(rig: Ordered) -> None:
    """It lets the next master finish first, then has selectors read no more, and reports when nothing comes."""
    selector_of(rig).epoch = 1
    rig.order(master(A, B))
    version = rig.order(keeping(is_master=True))
    rig.client_send(1)
    taken = rig.published
    assert taken and not rig.member.intake_paused[0] and rig.member.sends_refused == 0
    rig.pass_ms(101)
    rig.turn()
    assert rig.member.intake_paused[0]
    rig.pass_ms(50)
    rig.turn()
    assert rig.member.sends_refused == 0, "a selector has not seen yet that it is to read no more"
    selector_turns(rig)
    rig.client_send(2)
    rig.pass_ms(39)
    rig.turn()
    assert rig.member.sends_refused == 0, "what it had read may still come"
    rig.pass_ms(1)
    rig.turn()
    end = rig.published
    assert end > taken and rig.member.sends_refused == version
    rig.confirm()
    assert rig.codes() == [(1, OK), (2, OK)]
    rig.client_send(3)
    assert rig.published == end


def selector_of(rig: Ordered) -> Any:
    """Return the selector's block; its epoch is 0, as that of a spare one that has never been started."""
    return ffi.cast("rp_worker *", lib.rp_ring_consumer(rig.send_replies))


def selector_turns(rig: Ordered) -> None:
    """The selector begins a turn now."""
    rig.pass_ms(1)
    selector_of(rig).heartbeat_ns = rig.now_ns
    rig.turn()


def test_a_hand_over_does_not_wait_for_a_selector_that_was_never_started(rig: Ordered) -> None:
    """Fault: A master with a spare selector that was never started took 0.4 s longer to hand over."""
    rig.order(master(A, B))
    version = rig.order(keeping(is_master=True))
    rig.pass_ms(101)
    rig.turn()
    assert rig.member.intake_paused[0] and rig.member.sends_refused == 0
    rig.pass_ms(40)
    rig.turn()
    assert rig.member.sends_refused == version


def test_a_hand_over_does_not_wait_for_ever_for_clients(rig: Ordered) -> None:
    rig.order(master(A, B))
    version = rig.order(keeping(is_master=True))
    for opaque in range(1, 52):
        rig.client_send(opaque)
        rig.pass_ms(10)
    rig.turn()
    assert rig.member.sends_refused == version


def test_a_hand_over_that_fails_goes_on(rig: Ordered) -> None:
    rig.order(master(A, B))
    rig.order(keeping(is_master=True))
    rig.pass_ms(500)
    rig.turn()
    rig.pass_ms(50)
    rig.turn()
    assert rig.member.intake_paused[0] and rig.member.sends_refused
    rig.order(master(A, B))
    rig.client_send(1)
    assert not rig.member.intake_paused[0] and rig.member.sends_refused == 0 and rig.published


@pytest.mark.parametrize("why", ["next master", "promoted"])
def test_a_slave_that_is_to_be_master_reads_no_requests(tmp_path: Path, why: str) -> None:
    rig = Ordered(tmp_path, is_slave=1, from_replicator=ffi.NULL)
    rig.order(keeping(is_master=False))
    assert not rig.member.intake_paused[0]
    rig.order(attrs.evolve(keeping(is_master=why == "promoted"), pauses_intake=why == "next master"))
    assert rig.member.intake_paused[0]
    rig.member.begin_tree()
    assert not rig.member.intake_paused[0]
    rig.close()


@pytest.mark.parametrize("is_slave", [0, 1])
def test_requests_are_read_again_when_no_order_ends_the_pause(tmp_path: Path, is_slave: int) -> None:
    """The coordinator has died and does not start again.
    Fault: A role change whose coordinator could not restart left the selectors paused for ever."""
    rig = Ordered(tmp_path, is_slave=is_slave, from_replicator=ffi.NULL)
    change = attrs.evolve(keeping(is_master=not is_slave), pauses_intake=True)
    rig.order(change)
    rig.pass_ms(4_999)
    rig.turn()
    assert rig.member.intake_paused[0]
    rig.pass_ms(1)
    rig.turn()
    assert not rig.member.intake_paused[0]
    rig.order(attrs.evolve(change, epoch=2))
    assert not rig.member.intake_paused[0], "the same change wants the same pause"
    if not is_slave:
        rig.client_send(1)
        rig.pass_ms(2_600)
        assert rig.codes() == [(1, SERVICE_NOT_AVAILABLE)]
    rig.order(master(A, B))
    rig.order(change)
    assert rig.member.intake_paused[0], "another change"
    rig.close()


def test_a_former_master_closes_the_connection_of_a_send_that_comes_too_late(rig: Ordered) -> None:
    """Other connections outlive its process tree. An answer that it is no master would end a send of Go's client, which
    repeats one whose connection closes.
    Fault: A send that arrived too late for a former master got no answer on an open connection."""
    rig.order(keeping(is_master=True))
    rig.client_send(1)
    assert rig.codes() == []
    rig.order(keeping(is_master=False))
    rig.client_send(2)
    rig.pass_ms(5_000)
    rig.turn()
    found = [ring_messages.reply(data) for reader in rig.replies for _, data in drain(reader)]
    assert found == [(connection, lib.RP_REPLY_CLOSE_AFTER, b"") for connection in (1, 2)] and rig.published == 0


def test_a_slave_hands_sends_to_its_manager_which_passes_them_on(tmp_path: Path) -> None:
    rig = Ordered(tmp_path, is_slave=1, from_replicator=ffi.NULL)
    rig.order(keeping(is_master=False))
    rig.client_send(1)
    [kind] = [kind for kind, _ in rig.for_manager()]
    assert kind == lib.RP_MSG_SEND and rig.codes() == []
    rig.client_send(2, version=409 | PASSED_ON)
    assert rig.codes() == [(2, SERVICE_NOT_AVAILABLE)], "it was passed on once"
    rig.order(MemberOrders())
    rig.client_send(3)
    assert rig.codes() == [(3, SERVICE_NOT_AVAILABLE)], "there is no master to pass it on to"
    rig.close()
