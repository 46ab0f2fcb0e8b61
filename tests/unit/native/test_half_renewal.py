"""Half messages that are stored again: open at the new place, and still ended by the first one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.message import names
from rocketpy.message.properties import decode_properties
from rocketpy.native.core import ffi, lib
from tests.support import half_messages
from tests.support.fast_path import FastPath
from tests.support.half_messages import COMMIT, ROLLBACK, end, half, in_topic, send_half, stored

HALF, OPS = names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC
Place = tuple[int, int]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    rig = FastPath(tmp_path, half_states=SharedHalfStates().pointer)
    for topic in (HALF, OPS):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    yield rig
    rig.close()


def renew(rig: FastPath, place: Place) -> Place:
    """The place of the copy."""
    offset = half_messages.renew(rig, place)
    return offset, in_topic(rig, HALF)[offset].phy_offset


def is_open(rig: FastPath, offset: int) -> bool:
    return bool(lib.rp_half_states_of(rig.send_options["half_states"], offset) == lib.RP_HALF_OPEN)


def delivered(rig: FastPath) -> int:
    return len(in_topic(rig, "T"))


def restart(rig: FastPath, states: Any = None) -> None:
    """The send worker alone, or with states as a start of the broker finds them."""
    lib.rp_send_close(rig.send)
    if states is not None:
        rig.send_options["half_states"] = states
    rig.send = rig.open_send()
    rig.add_topic("T", 4)
    rig.tell_tables_end()


def recovered(rig: FastPath) -> SharedHalfStates:
    states, found = SharedHalfStates(), ffi.new("rp_half_recovery *")
    directories = [os.fsencode(rig.root / name) for name in ("commitlog", "consumequeue")]
    assert lib.rp_half_recover(states.pointer, 0, rig.block, *directories, rig.cq_file_size, found) == lib.RP_OK
    return states


def test_the_copy_is_open_and_its_original_has_ended(rig: FastPath) -> None:
    """Fault: One long-open half message held the window of states until no transaction was taken."""
    send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01other"))
    place = send_half(rig)
    assert renew(rig, place)[0] == 2
    _, before, copy, op = stored(rig)
    assert (copy.topic, copy.queue_offset, copy.sys_flag) == (HALF, 2, before.sys_flag)
    assert copy.prepared_transaction_offset == before.phy_offset
    assert (bytes(copy.body), copy.born_timestamp_ms, copy.born_host) == (b"body", 77, before.born_host)
    first_stored = {"TRAN_FIRST_STORED_MS": str(before.store_timestamp_ms)}
    assert decode_properties(copy.properties.decode()) == decode_properties(before.properties.decode()) | first_stored
    assert (op.topic, bytes(op.body)) == (OPS, b"1")
    assert [is_open(rig, offset) for offset in range(3)] == [True, False, True]


@pytest.mark.parametrize("renewals", [1, 2, 3])
@pytest.mark.parametrize("kind", ["as it is", "send worker", "broker"])
def test_an_end_for_the_first_place_ends_the_last_copy(rig: FastPath, renewals: int, kind: str) -> None:
    last = first = send_half(rig)  # the first message of the log, at place 0
    for _ in range(renewals):
        last = renew(rig, last)
    if kind != "as it is":
        states = recovered(rig) if kind == "broker" else None
        restart(rig, states and states.pointer)
    assert end(rig, (first[0], first[1] + 8), COMMIT) == (1, "Find prepared transaction message failed")
    assert end(rig, first, COMMIT, "Q") == (1, "The producer group wrong")
    assert is_open(rig, last[0])
    assert end(rig, first, COMMIT) == (0, "")
    assert not is_open(rig, last[0]) and delivered(rig) == 1
    assert [bytes(op.body) for op in in_topic(rig, OPS)] == [b"%d" % offset for offset in range(renewals + 1)]
    for place in (first, last):
        assert end(rig, place, COMMIT) == (0, "")
        assert end(rig, place, ROLLBACK) == (1, "the transaction has been committed before")
    assert delivered(rig) == 1
    (message,) = in_topic(rig, "T")
    assert message.prepared_transaction_offset == last[1]


def test_a_renewal_whose_result_was_lost_is_not_repeated(rig: FastPath) -> None:
    place = send_half(rig)
    copy = renew(rig, place)
    assert renew(rig, place) == copy
    assert len(in_topic(rig, HALF)) == 2


def test_a_send_worker_that_dies_before_the_copy_is_published_leaves_the_original(rig: FastPath) -> None:
    place = send_half(rig)
    states = rig.send_options["half_states"]
    lib.rp_half_states_renew(states, ffi.new("rp_half_renewal *", [*place, 1, 4000, 1 << 40]))
    lib.rp_half_states_begin(states, 0, lib.RP_HALF_ENDED, 1 << 40)
    restart(rig)
    assert end(rig, place, COMMIT) == (0, "")
    assert end(rig, place, COMMIT) == (0, ""), "it is not looked for anywhere else"
    assert delivered(rig) == 1


@pytest.mark.parametrize("is_dispatched", [True, False])
def test_a_power_failure_between_the_copy_and_its_op_message(rig: FastPath, is_dispatched: bool) -> None:
    first = send_half(rig)
    last = renew(rig, first)
    (op,) = in_topic(rig, OPS)
    lib.rp_send_close(rig.send)
    lib.rp_dispatch_close(rig.dispatch)
    control = lib.rp_control_header(rig.block)
    control.published_phy_offset = control.durable_phy_offset = op.phy_offset
    control.dispatched_phy_offset = op.phy_offset if is_dispatched else last[1]
    for topic, end_phy_offset in ((OPS, 0), (HALF, control.dispatched_phy_offset)):
        queue = lib.rp_control_find(rig.block, topic.encode(), len(topic), 0)
        queue.max_offset -= topic == OPS or not is_dispatched
        queue.max_phy_offset = end_phy_offset
        queue.next_offset = queue.max_offset + (topic == HALF and not is_dispatched)
    states = recovered(rig)
    assert not states.is_open(0) and states.is_open(1)
    rig.dispatch = rig.open_dispatch()
    rig.send_options["half_states"] = states.pointer
    rig.send = rig.open_send()
    rig.add_topic("T", 4)
    rig.tell_tables_end()
    rig.turn()
    assert [bytes(op.body) for op in in_topic(rig, OPS)] == [b"0"]
    for _ in range(2):
        assert end(rig, last, COMMIT) == (0, "")
    assert delivered(rig) == 1


def test_as_many_places_are_known_as_there_is_room_for(rig: FastPath) -> None:
    states = rig.send_options["half_states"]
    for offset in range(lib.RP_HALF_RENEWED_MAX + 1):
        renewal = [offset, 10 * offset, 5000 + offset, 7, 1]
        lib.rp_half_states_renew(states, ffi.new("rp_half_renewal *", renewal))
    target, phy_offset = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    found = [lib.rp_half_states_renewed(states, offset, 10 * offset, target, phy_offset) for offset in (0, 1, 1024)]
    assert (found, target[0], phy_offset[0]) == ([0, 1, 1], 6024, 7)
