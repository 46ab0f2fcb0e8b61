"""haTruncateDiverged: a slave whose log has diverged has its store opened again with a cut, or says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.native.core import lib
from rocketpy.reactor.worker_spec import EXIT_REOPEN, WorkerContext
from rocketpy.replication import protocols
from rocketpy.replication.errors import Diverged
from rocketpy.replication.handshake_messages import Extent
from rocketpy.replication.slave import SlaveReplicator
from rocketpy.store.recovery.diverged import take_cut_request
from tests.support.fake_master import FakeMaster
from tests.support.slave_rig import FILE_SIZE
from tests.unit.replication.test_slave import IMAGE, Slave

CUT, END = IMAGE.records[10], IMAGE.records[15]


@attrs.define(eq=False)
class Ended(SlaveReplicator):
    result: int | None = -1

    def __call__(self, context: WorkerContext) -> int | None:
        self.result = super().__call__(context)
        return self.result


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    """A master of rocketpy whose log is the slave's up to CUT."""

    def refuse(*_: Any) -> Any:
        raise Diverged("the master refused this slave (longer)")

    def find(*arguments: Any) -> int:
        assert arguments[4] == Extent(0, END), "the slave's log"
        return CUT

    monkeypatch.setattr(protocols, "introduce", refuse)
    monkeypatch.setattr(protocols, "find_cut", find)
    with FakeMaster(FILE_SIZE, log=IMAGE.data) as master:
        master.version = b'{"version":2}'
        yield master


def test_a_cut_is_asked_for_and_the_store_opened_again(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = Slave(tmp_path, master, known=IMAGE.data[:END], truncates=True, kind=Ended)
    slave.turn_until(lambda: not slave.thread.is_alive())
    assert isinstance(slave.replicator, Ended) and slave.replicator.result == EXIT_REOPEN
    assert f"to cut {END - CUT} bytes" in caplog.text and "(longer)" in caplog.text
    assert take_cut_request(tmp_path) == CUT and slave.rig.published == END
    slave.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"truncates": True, "ha_diverged_size_max": END - CUT - 1}, "haDivergedSizeMax"),
        ({}, "(longer)"),
    ],
    ids=["no room", "off"],
)
def test_a_slave_that_may_not_be_cut_halts(
    tmp_path: Path,
    master: FakeMaster,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    text: str,
) -> None:
    slave = Slave(tmp_path, master, known=IMAGE.data[:END], **options)
    slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
    assert text in caplog.text and take_cut_request(tmp_path) is None
    slave.close()
