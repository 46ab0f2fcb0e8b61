"""Which broker the answer to a pull suggests: with slaveReadEnable the group's, by how far the pull is behind."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import encode_group
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import pull, ready, send_v2

MASTER, WHEN_SLOW = 2, 3


@pytest.mark.parametrize(
    ("slave_read", "is_far", "suggested"),
    [(0, False, 0), (0, True, 0), (1, False, MASTER), (1, True, WHEN_SLOW)],
)
def test_the_suggested_broker(tmp_path: Path, slave_read: int, is_far: bool, suggested: int) -> None:
    """Holds: replication, reading from a slave; answer, suggested broker of a pull."""
    options = {"slave_read_enable": slave_read, "memory_bytes": 100 if is_far else 1 << 40}
    rig = ready(FastPath(tmp_path, options))
    flags = lib.RP_GROUP_CONSUME_ENABLE
    rig.tell_pull(lib.RP_MSG_GROUP, encode_group("G", flags=flags, broker_id=MASTER, which_broker_when_slow=WHEN_SLOW))
    for _ in range(3):
        rig.frame(send_v2())
    rig.turn()
    rig.answers()
    rig.frame(pull(maximum=1))
    rig.turn()
    [(_, reply)] = rig.answers()
    assert (reply.code, reply.ext_field("suggestWhichBrokerId")) == (0, str(suggested))
    rig.close()
