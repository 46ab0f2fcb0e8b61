"""What a slave's workers share about the master."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="shared memory is C")

from rocketpy.native.core import lib
from rocketpy.reactor.master_link import ADDRESS_MAX, MasterLink


def test_the_addresses_of_the_master() -> None:
    link = MasterLink()
    assert link.master() == ("", "")
    link.set_master("10.0.0.1:10911", "[::1]:10912")
    assert link.master() == ("10.0.0.1:10911", "[::1]:10912")
    link.set_master("b:1", "")
    assert link.master() == ("b:1", "")


def test_a_longer_address_is_cut() -> None:
    link = MasterLink()
    link.set_master("a" * 1000, "b")
    assert link.master() == ("a" * ADDRESS_MAX, "b")


def test_addresses_that_are_being_changed_are_not_read() -> None:
    link = MasterLink()
    link.pointer.address_version = 3  # the manager died in the middle
    assert link.master() is None
    link.set_master("a:1", "b:2")
    assert link.master() == ("a:1", "b:2")


def test_the_master_that_is_followed() -> None:
    link = MasterLink()
    assert link.followed == ""
    link.set_followed("10.0.0.1:10911")
    assert link.followed == "10.0.0.1:10911" and link.master() == ("", "")
    link.pointer.followed_version |= 1  # the replicator died in the middle
    assert link.followed == ""
    link.set_followed("")
    assert link.followed == ""


def test_a_refused_stream() -> None:
    link = MasterLink()
    link.pointer.refused_phy_offset, link.pointer.refused_reason = 99, lib.RP_REFUSED_GAP
    assert link.refused_position == 99 and not link.is_refused_for_a_record
