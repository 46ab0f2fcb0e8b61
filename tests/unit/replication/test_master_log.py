"""What a slave asks its master before it takes bytes."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.errors import MasterUnusable
from rocketpy.replication.master_log import MasterLog, ask_master, connect
from tests.support.fake_master import FakeMaster


def test_the_log_of_a_master() -> None:
    with FakeMaster(1000, begin=3000, log=bytes(500)) as master:
        assert ask_master(master.address, 5.0) == MasterLog(1000, 3000, 3500)


def test_a_refusal_is_told() -> None:
    with FakeMaster(1000) as master:
        master.code = 16
        with pytest.raises(MasterUnusable, match="code 16 for GET_BROKER_CONFIG: refused"):
            ask_master(master.address, 5.0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "localhost:99999"])
def test_nobody_there(address: str) -> None:
    with pytest.raises(MasterUnusable, match="cannot connect"):
        connect(address, 5.0)
