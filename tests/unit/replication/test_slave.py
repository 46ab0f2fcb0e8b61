"""The replicator of a slave against a master that the test plays: it follows, connects again, and stops when the logs
do not fit."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.config import BrokerRole, BrokerSettings, FlushDiskType
from rocketpy.native.core import lib
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.ring import Ring, WorkerBlock
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.replication import protocols
from rocketpy.replication.guide import NamedMaster
from rocketpy.replication.master_log import MasterLog, ask_master
from rocketpy.replication.protocols import SlaveSide
from rocketpy.replication.slave import SlaveReplicator
from rocketpy.replication.stream import Intake, StreamSettings
from rocketpy.replication.truncation import Truncation
from rocketpy.store.control_block import ControlBlock
from tests.support.fake_master import FakeMaster
from tests.support.slave_rig import FILE_SIZE, SlaveRig, always, log_image

IMAGE = log_image(2)
DEADLINE_S = 60.0


class Slave:
    """A replicator in a thread, and a send worker that takes turns with the test."""

    def __init__(
        self,
        root: Path,
        master: FakeMaster | None,
        *,
        known: bytes = b"",
        secret: bytes = b"",
        truncates: bool = False,
        kind: type[SlaveReplicator] = SlaveReplicator,
        **store: object,
    ) -> None:
        self.rig = rig = SlaveRig(root)
        if known:
            rig.begin_stream()
            rig.receive(attrs.evolve(IMAGE, data=known), always(FILE_SIZE))
        self.block = WorkerBlock("replicator", 6)
        self.master_link = MasterLink()
        self.master_link.pointer.stream = rig.stream
        self.ring = Ring(1 << 18, self.block, WorkerBlock("send", 1))
        self.ring.pointer = rig.log_ring
        rig.master_link.stream = rig.stream
        self.master_link.pointer = rig.master_link
        if master is not None:
            self.master_link.set_master(master.address, master.ha)
        config = BrokerSettings()
        parts = {"broker_role": BrokerRole.SLAVE, "store_path_root_dir": str(root), **store}
        parts["store_path_commit_log"] = str(root / "commitlog")
        settings = attrs.evolve(config, store=attrs.evolve(config.store, **parts))
        self.control = ControlBlock.__new__(ControlBlock)
        self.control.block, self.control.header = rig.block, rig.control
        intake = Intake(self.block, self.control, self.master_link, self.ring, StreamSettings.of(settings))
        guide = NamedMaster(self.master_link, settings.store.ha_master_address)
        truncation = Truncation(root, settings.store.ha_diverged_size_max) if truncates else None
        self.replicator = kind(SlaveSide(intake, guide, settings, secret, truncation))
        context = WorkerContext("r", self.block, lambda: None)
        self.thread = threading.Thread(target=self.replicator, args=(context,), daemon=True)  # a failed test ends
        self.thread.start()

    def turn_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline
            self.rig.turn()
            lib.rp_worker_wake(self.block.pointer, 1)
            time.sleep(0.001)

    @property
    def following(self) -> int:
        return self.block.counter(lib.RP_COUNT_FOLLOWING)

    def close(self) -> None:
        self.block.order(2)
        deadline = time.monotonic() + DEADLINE_S
        while self.thread.is_alive():
            assert time.monotonic() < deadline
            self.rig.turn()
            self.thread.join(0.01)
        self.rig.close()


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster(FILE_SIZE, log=IMAGE.data) as master:
        yield master


def test_a_slave_without_a_log_gets_all_of_it(tmp_path: Path, master: FakeMaster) -> None:
    slave = Slave(tmp_path, master)
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    assert slave.rig.log()[: len(IMAGE.data)] == IMAGE.data
    slave.turn_until(lambda: master.reports[-1] == len(IMAGE.data))
    assert master.reports[0] == 1 and slave.following == lib.RP_FOLLOWING
    slave.close()


def test_a_slave_with_a_part_of_it_goes_on(tmp_path: Path, master: FakeMaster) -> None:
    end = IMAGE.records[15]
    slave = Slave(tmp_path, master, known=IMAGE.data[:end])
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    assert slave.rig.log()[: len(IMAGE.data)] == IMAGE.data
    assert master.reports[0] == 1 and master.reports[1] == end
    slave.close()


class SilentMaster(FakeMaster):
    """It accepts connections for its log and sends nothing."""

    def _stream(self, connection: socket.socket) -> None:
        while not self._stop.is_set() and self._receive(connection) != b"":
            pass


def test_a_stop_while_the_master_is_silent_is_no_fault_of_the_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A slave stopped while its master was silent logged that it cannot follow."""
    with SilentMaster(FILE_SIZE, log=IMAGE.data) as master:
        slave = Slave(tmp_path, master, known=IMAGE.data[: IMAGE.records[15]])
        slave.turn_until(lambda: master.connections)
        slave.close()
    assert not caplog.records


@attrs.define(eq=False)
class SlowDisk(SlaveReplicator):
    """Its log gets to the disk when it waits; `waits`: where the disk was before."""

    waits: list[int] = attrs.field(factory=list)

    def _pause(self, seconds: float) -> None:
        header = self.side.intake.control.header
        self.waits.append(int(header.durable_phy_offset))
        header.durable_phy_offset = header.published_phy_offset
        super()._pause(seconds)


def test_under_sync_flush_a_stream_begins_when_the_log_is_on_the_disk(tmp_path: Path, master: FakeMaster) -> None:
    """Fault: With SYNC_FLUSH, a reconnecting slave acknowledged data that was not yet on its disk."""
    end = IMAGE.records[15]
    slave = Slave(tmp_path, master, known=IMAGE.data[:end], kind=SlowDisk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    slave.turn_until(lambda: len(master.reports) >= 2)
    assert isinstance(slave.replicator, SlowDisk) and slave.replicator.waits[:1] == [0]
    assert master.reports[:2] == [1, end]
    slave.close()


def test_a_log_with_another_end_is_left_alone(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    mine = IMAGE.data[: IMAGE.records[15]]
    other = bytearray(IMAGE.data)
    other[len(mine) - 5] ^= 1
    master.log = bytes(other)
    slave = Slave(tmp_path, master, known=mine)
    slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
    slave.close()
    assert slave.replicator is not None and master.connections == 1
    assert f"differs from its master's at {len(mine) - 5}" in caplog.text


def test_a_log_longer_than_the_master_s_is_left_alone(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    master.log = IMAGE.data[: IMAGE.records[3]]
    slave = Slave(tmp_path, master, known=IMAGE.data[: IMAGE.records[15]])
    slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
    slave.close()
    assert master.connections == 0 and "the master has lost the end of its log" in caplog.text


def test_a_damaged_record_is_fetched_again_and_then_given_up(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, place = bytearray(IMAGE.data), IMAGE.records[14]
    damaged[place + 100] ^= 1
    master.log = bytes(damaged)
    slave = Slave(tmp_path, master)
    slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
    assert slave.rig.published == place and slave.block.counter(lib.RP_COUNT_BAD_RECORDS) == 3
    slave.close()
    assert f"a damaged record at log offset {place}, 3 times" in caplog.text


def test_a_damaged_record_that_comes_whole_later(tmp_path: Path, master: FakeMaster) -> None:
    damaged, place = bytearray(IMAGE.data), IMAGE.records[14]
    damaged[place + 100] ^= 1
    master.log = bytes(damaged)
    master.later = IMAGE.data
    slave = Slave(tmp_path, master)
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    assert slave.block.counter(lib.RP_COUNT_BAD_RECORDS) == 1
    slave.close()


def test_another_master_ends_the_halt(tmp_path: Path, master: FakeMaster) -> None:
    with FakeMaster(2 * FILE_SIZE, log=IMAGE.data) as wrong:
        slave = Slave(tmp_path, wrong)
        slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
    slave.master_link.set_master(master.address, master.ha)
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    slave.close()


def test_a_halt_is_shown_for_its_master_alone(tmp_path: Path, master: FakeMaster) -> None:
    """Fault: A slave halted for one master showed `halted` while it looked for another one."""
    with FakeMaster(2 * FILE_SIZE, log=IMAGE.data) as wrong:
        slave = Slave(tmp_path, wrong)
        slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
        fitting = master.address, master.ha
        slave.master_link.set_master(*fitting)
        slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING)
        master.__exit__(None, None, None)  # the stream ends
        slave.turn_until(lambda: slave.following != lib.RP_FOLLOWING)
        assert slave.following == lib.RP_FOLLOWING_SEARCHING
        slave.master_link.set_master(wrong.address, wrong.ha)
        slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
        slave.master_link.set_master(*fitting)  # nobody answers there now
        slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_SEARCHING)
        slave.close()


def test_the_send_worker_may_be_restarted(tmp_path: Path, master: FakeMaster) -> None:
    slave = Slave(tmp_path, master)
    slave.turn_until(lambda: slave.rig.published)
    slave.rig.restart_send()
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    assert slave.rig.log()[: len(IMAGE.data)] == IMAGE.data
    slave.close()


def test_the_address_of_the_log_can_be_given(tmp_path: Path, master: FakeMaster) -> None:
    """haMasterAddress stands in place of what the name server tells, and says where the positions come from."""
    with FakeMaster(2 * FILE_SIZE) as other:
        slave = Slave(tmp_path, None, ha_master_address=master.ha)
        slave.master_link.set_master(other.address, other.ha)
        slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
        assert slave.master_link.followed == master.address
        slave.close()
    assert other.connections == 0 and slave.master_link.followed == ""


def test_tables_may_be_copied_from_a_master_that_is_followed_alone(tmp_path: Path, master: FakeMaster) -> None:
    with FakeMaster(FILE_SIZE) as empty:
        slave = Slave(tmp_path, master)
        slave.turn_until(lambda: slave.master_link.followed == master.address)
        slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
        slave.master_link.set_master(empty.address, empty.ha)
        master.__exit__(None, None, None)  # the stream ends
        slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
        assert slave.master_link.followed == ""
        slave.close()


@pytest.mark.parametrize("ha", ["h:1", "h:1;", "h:", ":5", "h:99999999", "\ud800", "h:x"])
def test_an_address_that_is_none_ends_nothing(
    tmp_path: Path, master: FakeMaster, ha: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A malformed HA address stopped a slave broker."""
    slave = Slave(tmp_path, None)
    slave.master_link.pointer.ha = ha.encode("utf-8", "replace")
    slave.turn_until(lambda: "cannot follow the master" in caplog.text)
    slave.master_link.set_master(master.address, master.ha)
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    slave.close()


def test_a_fault_that_nobody_foresaw_ends_one_try(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(address: str, timeout_s: float, tls: None) -> MasterLog:
        asked.append(address)
        if len(asked) == 1:
            raise OverflowError("too large")
        return ask_master(address, timeout_s)

    monkeypatch.setattr(protocols, "ask_master", ask)
    slave = Slave(tmp_path, master)
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    slave.close()
    assert "an unexpected fault ended a stream of the master" in caplog.text


def test_without_a_master_it_waits(tmp_path: Path, master: FakeMaster) -> None:
    slave = Slave(tmp_path, None)
    slave.turn_until(lambda: slave.block.heartbeat_ns)
    assert slave.rig.published == 0 and slave.following == lib.RP_FOLLOWING_SEARCHING
    slave.master_link.set_master(master.address, master.ha)
    slave.turn_until(lambda: slave.rig.published == len(IMAGE.data))
    slave.close()


def test_with_a_secret_a_master_of_the_reference_is_not_followed(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = Slave(tmp_path, master, secret=b"a secret of 20 bytes")
    slave.turn_until(lambda: slave.following == lib.RP_FOLLOWING_HALTED)
    slave.close()
    assert master.connections == 0 and "remove haSecretFile to follow it" in caplog.text
