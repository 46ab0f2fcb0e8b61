"""The state of replication as operators see it: from the memory of a real master, and of a slave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import BrokerRole, BrokerSettings
from rocketpy.failover.rules.states import State
from rocketpy.processes.member.shown import MemberShown
from rocketpy.processes.workers.shared_counts import replication_status
from rocketpy.reactor.master_link import MasterLink
from rocketpy.remoting.bodies.broker import HaStatus
from tests.support.master_rig import MasterRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[MasterRig]:
    rig = MasterRig(tmp_path)
    yield rig
    rig.close()


def status_of(
    rig: MasterRig, master_link: MasterLink | None = None, shown: MemberShown | None = None, **store: Any
) -> HaStatus:
    settings = BrokerSettings()
    settings = attrs.evolve(settings, store=attrs.evolve(settings.store, **store))
    return replication_status(settings, rig.control, rig.table, master_link, shown, lambda: rig.now_ns)


def test_a_master_tells_how_far_each_slave_is_behind(rig: MasterRig) -> None:
    rig.append(1000)
    rig.connect(1000)
    rig.append(500)
    rig.turn()
    rig.pass_time(2.0)
    status = status_of(rig, broker_role=BrokerRole.SYNC_MASTER)
    (slave,) = status.ha_connection_info
    assert (slave.state, slave.slave_ack_offset, slave.diff, slave.lag_ms) == ("replicating", 1000, 500, 2000)
    assert slave.in_sync and slave.addr.startswith("127.0.0.1:")
    assert (status.master, status.role, status.master_commit_log_max_offset) == (True, "SYNC_MASTER", 1500)
    assert status.in_sync_slave_nums == 1


@pytest.mark.parametrize(("seconds", "fall_behind_max"), [(3.5, 1 << 28), (1.0, 500)])
def test_a_slave_that_no_send_waits_for_is_not_in_sync(rig: MasterRig, seconds: float, fall_behind_max: int) -> None:
    """It is stalled, or too far behind."""
    rig.append(1000)
    rig.connect(1000)
    rig.append(500)
    rig.turn()
    rig.pass_time(seconds)
    status = status_of(rig, ha_slave_fallbehind_max=fall_behind_max)
    assert [slave.in_sync for slave in status.ha_connection_info] == [False]
    assert status.in_sync_slave_nums == 0


def test_a_slave_names_the_master_that_it_follows(rig: MasterRig) -> None:
    rig.append(300)
    master_link = MasterLink()
    followed = status_of(rig, master_link, broker_role=BrokerRole.SLAVE).ha_client_runtime_info
    assert not followed.activated and not followed.master_addr
    master_link.set_followed("10.0.0.1:10911")
    status = status_of(rig, master_link, broker_role=BrokerRole.SLAVE)
    followed = status.ha_client_runtime_info
    assert (followed.activated, followed.master_addr, followed.max_offset) == (True, "10.0.0.1:10911", 300)
    assert (status.master, status.role, status.commit_log_max_offset) == (False, "SLAVE", 300)


def test_a_member_tells_its_state_and_epoch(rig: MasterRig) -> None:
    assert (status_of(rig).member_state, status_of(rig).epoch) == ("", -1)
    shown = MemberShown()
    shown.show(State.MASTER, 7, 2, 0.0)
    status = status_of(rig, shown=shown)
    assert (status.member_state, status.epoch) == ("MASTER", 7)
