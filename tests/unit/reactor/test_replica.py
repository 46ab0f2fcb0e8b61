"""What a slave's workers share about the master."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="shared memory is C")

from rocketpy.native.core import lib
from rocketpy.reactor.replica import ADDRESS_MAX, ReplicaState


def test_the_addresses_of_the_master() -> None:
    state = ReplicaState()
    assert state.master() == ("", "")
    state.set_master("10.0.0.1:10911", "[::1]:10912")
    assert state.master() == ("10.0.0.1:10911", "[::1]:10912")
    state.set_master("b:1", "")
    assert state.master() == ("b:1", "")


def test_a_longer_address_is_cut() -> None:
    state = ReplicaState()
    state.set_master("a" * 1000, "b")
    assert state.master() == ("a" * ADDRESS_MAX, "b")


def test_addresses_that_are_being_changed_are_not_read() -> None:
    state = ReplicaState()
    state.pointer.address_version = 3  # the manager died in the middle
    assert state.master() is None
    state.set_master("a:1", "b:2")
    assert state.master() == ("a:1", "b:2")


def test_the_master_that_is_followed() -> None:
    state = ReplicaState()
    assert state.followed == ""
    state.set_followed("10.0.0.1:10911")
    assert state.followed == "10.0.0.1:10911" and state.master() == ("", "")
    state.pointer.followed_version |= 1  # the replicator died in the middle
    assert state.followed == ""
    state.set_followed("")
    assert state.followed == ""


def test_a_refused_stream() -> None:
    state = ReplicaState()
    state.pointer.refused_phy_offset, state.pointer.refused_reason = 99, lib.RP_REFUSED_GAP
    assert state.refused_position == 99 and not state.is_refused_for_a_record
