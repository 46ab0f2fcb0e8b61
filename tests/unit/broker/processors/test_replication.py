"""What a broker says of its replication."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST
from rocketpy.remoting.bodies.replication import HaStatus
from tests.support.slow_path import SlowPathRig, body_of


def test_which_frames_it_speaks_on_the_replication_port(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    assert body_of(trio.run(lambda: rig.ask(30_001))) == {
        "version": REPLICATION_VERSION_LOWEST,
        "lowest": REPLICATION_VERSION_LOWEST,
        "highest": REPLICATION_VERSION,
    }


def test_its_state_is_the_one_of_the_moment(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    for end in (7, 8):
        rig.broker.replication_status = lambda end=end: HaStatus(role="SYNC_MASTER", commit_log_max_offset=end)
        body = body_of(trio.run(lambda: rig.ask(907)))
        assert (body["role"], body["commitLogMaxOffset"], body["haConnectionInfo"]) == ("SYNC_MASTER", end, [])
