"""The waits of a slave between tries of a master: longer after each failure in a row, none after progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.errors import StoreError
from rocketpy.replication.errors import MasterUnusable
from rocketpy.replication.guide import MasterAddress, NamedMaster
from rocketpy.replication.slave import BACKOFF_S, SlaveReplicator
from rocketpy.replication.stream import Agreement
from tests.support.fake_master import FakeMaster
from tests.support.slave_rig import FILE_SIZE
from tests.unit.replication.test_slave import Slave

STOP = 2
BACKOFF_MAX_S = NamedMaster.backoff_max_s
FROM_ZERO = Agreement(phy_offset=0, master_end=0, is_rocketpy=False)


@attrs.frozen
class Ended:
    """A stream that has ended after so many bytes."""

    received_bytes: int
    is_refused: bool = False
    agreement: Agreement = FROM_ZERO
    reason: str = "it closed the connection"

    def run(self) -> bool:
        return True


def pauses_of(root: Path, script: Iterator[Any]) -> list[float]:
    """Play what comes of each try: an exception or a stream. Returns the waits, until the script ends."""
    pauses: list[float] = []

    class Played(SlaveReplicator):
        def _follow(self, master: MasterAddress) -> None:
            outcome = next(script, None)
            if outcome is None:
                self.side.intake.block.order(STOP)
                self._failures = 0
            elif isinstance(outcome, Ended):
                self._receive(outcome, master.ha)  # type: ignore[arg-type]  # no more of a stream is asked for
            else:
                raise outcome

        def _pause(self, seconds: float) -> None:
            pauses.append(seconds)

    with FakeMaster(FILE_SIZE) as master:
        slave = Slave(root, master, kind=Played)
        slave.turn_until(lambda: not slave.thread.is_alive())
        slave.close()
    return pauses


@pytest.mark.parametrize("fault", [MasterUnusable("a test"), StoreError("a test"), RuntimeError("a test"), Ended(0)])
def test_each_failure_in_a_row_doubles_the_wait(tmp_path: Path, fault: Any) -> None:
    pauses = pauses_of(tmp_path, iter([fault] * 9))
    assert pauses == [min(BACKOFF_MAX_S, BACKOFF_S * 2**failures) for failures in range(9)]
    assert pauses[-1] == BACKOFF_MAX_S


def test_a_stream_that_brought_something_begins_anew(tmp_path: Path) -> None:
    outcomes = [MasterUnusable("a test"), Ended(0), Ended(5), Ended(0)]
    assert pauses_of(tmp_path, iter(outcomes)) == [BACKOFF_S, 2 * BACKOFF_S, BACKOFF_S]
