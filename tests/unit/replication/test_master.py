"""A master sends its log to slaves of the reference, and believes none of them further than it can be true."""

from __future__ import annotations

import errno
import logging
import random
import socket
import types
from collections.abc import Callable

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.replication import master
from tests.support.master_rig import FILE_SIZE, MasterRig, frames, log_of, report
from tests.support.waiting import is_readable, wait_until

Open = Callable[..., MasterRig]


def test_the_bytes_of_the_reference(rig: MasterRig) -> None:
    """A new slave, and a master with 320 bytes, as between two brokers of the reference."""
    log = rig.append(320)
    slave = rig.connect()
    rig.pass_time(5.0)
    assert rig.received(slave) == b"", "nothing before the first report"
    rig.say(slave, 0)
    header = bytes.fromhex("0000000000000000 000000000000000000000000 00000140")
    assert rig.received(slave, 320) == header + log
    rig.say(slave, 0x140)
    rig.pass_time(4.9)
    assert rig.received(slave) == b""
    rig.pass_time(0.1)
    beat = bytearray()
    wait_until(lambda: bool(beat.extend(rig.received(slave)) or beat))
    assert beat == bytes.fromhex("0000000000000140 00000000")


def test_the_end_of_a_file_ends_a_frame(rig: MasterRig) -> None:
    rig.append(FILE_SIZE - 497)
    slave = rig.connect(0)
    assert rig.received(slave, FILE_SIZE - 497)
    rig.say(slave, FILE_SIZE - 497)
    rig.append(1000)
    sent = frames(rig.received(slave, 1000))
    assert [(at, len(data)) for at, data in sent] == [(FILE_SIZE - 497, 497), (FILE_SIZE, 503)]
    assert b"".join(data for _, data in sent) == rig.log[FILE_SIZE - 497 :]


@pytest.mark.parametrize("start", [1, 1000, FILE_SIZE, FILE_SIZE + 7, 3 * FILE_SIZE + 99])
def test_a_slave_gets_every_byte_from_where_it_is(rig: MasterRig, start: int) -> None:
    rig.append(3 * FILE_SIZE + 100)
    sent = frames(rig.received(rig.connect(start), len(rig.log) - start))
    assert b"".join(data for _, data in sent) == rig.log[start:]
    assert all(len(data) <= 32_768 and at // FILE_SIZE == (at + len(data) - 1) // FILE_SIZE for at, data in sent)
    assert [at for at, _ in sent][1:] == [at + len(data) for at, data in sent][:-1]


def test_an_empty_slave_gets_the_log_from_its_first_file_on(rig: MasterRig) -> None:
    rig.control.header.min_phy_offset = FILE_SIZE
    rig.append(3 * FILE_SIZE + 100)
    sent = frames(rig.received(rig.connect(0), 2 * FILE_SIZE + 100))
    assert sent[0][0] == FILE_SIZE and b"".join(data for _, data in sent) == rig.log[FILE_SIZE:]


def test_a_slave_that_reads_slowly_gets_the_same_bytes_and_heartbeats_between_frames(rig: MasterRig) -> None:
    rig.append(60 * FILE_SIZE + 11)
    slave = rig.connect(0, buffer_bytes=65_536)
    sizes, data = random.Random(7), b""
    rig.pass_time(6.0)
    while len(log_of(data)) < len(rig.log):
        rig.turn(1)
        assert is_readable(slave.fileno(), 30)
        data += slave.recv(sizes.randrange(1, 200_000))
    assert b"".join(piece for _, piece in frames(data)) == rig.log
    rig.say(slave, len(rig.log))
    assert rig.replicated == len(rig.log)


def test_the_best_acknowledgement_is_shown_and_wakes_the_send_worker(rig: MasterRig) -> None:
    rig.append(1000)
    assert not rig.can_wait(1000)
    first, second = rig.connect(0), rig.connect(200)
    assert rig.replicated == 200 and rig.can_wait(1000)
    lib.rp_worker_prepare_sleep(rig.send.pointer)
    rig.say(first, 700)
    assert rig.replicated == 700 and not rig.send.pointer.asleep
    rig.say(second, 600)
    assert rig.replicated == 700
    assert sorted(slave.acked_phy_offset for slave in rig.slaves()) == [600, 700]
    assert rig.table.needed_phy_offset == 600


def test_a_lag_is_judged_by_the_slaves_that_are_connected(rig: MasterRig) -> None:
    rig.append(1000)
    good = rig.connect(900)
    rig.connect(100)
    assert rig.can_wait(1000, fall_behind_max=101) and not rig.can_wait(1000, fall_behind_max=100)
    good.close()
    rig.turn_until(lambda: len(rig.slaves()) == 1)
    assert not rig.can_wait(1000, fall_behind_max=900) and rig.can_wait(1000, fall_behind_max=901)


def test_a_connection_that_has_reported_nothing_does_not_count(rig: MasterRig) -> None:
    rig.append(1000)
    rig.connect()
    assert not rig.can_wait(1000)
    assert [slave.state for slave in rig.slaves()] == ["connected"] and rig.table.needed_phy_offset is None


@pytest.mark.parametrize("lie", [1001, 10**12, -5, -(2**63), 2**63 - 1])
def test_a_first_report_that_cannot_be_true_acknowledges_nothing(rig: MasterRig, lie: int) -> None:
    rig.append(1000)
    rig.wait_until_closed(rig.connect(lie))
    assert rig.replicated == 0 and not rig.can_wait(1000)
    closed = rig.table.closed()
    assert closed["longer"] + closed["implausible"] == 1


@pytest.mark.parametrize("lie", [301, 99, 1000, -1, 2**40])
def test_a_later_report_that_cannot_be_true_acknowledges_nothing(rig: MasterRig, lie: int) -> None:
    rig.append(300)
    slave = rig.connect(0)
    rig.say(slave, 100)
    rig.say(slave, lie)
    rig.wait_until_closed(slave)
    assert rig.replicated == 100


def test_what_was_not_sent_to_a_slave_cannot_be_acknowledged_by_it(open_rig: Open) -> None:
    rig = open_rig(bytes_per_second=1_000)
    rig.append(2 * FILE_SIZE)
    slave = rig.connect(0)
    assert int(rig.table.pointer.rows[0].sent_phy_offset) == 32_768
    rig.say(slave, 32_769)
    rig.wait_until_closed(slave)
    assert rig.replicated == 0


def test_of_several_reports_at_once_the_last_counts_and_pieces_are_joined(rig: MasterRig) -> None:
    rig.append(300)
    slave = rig.connect(0)
    whole = report(100) + report(200) + report(300)
    rig.say_bytes(slave, whole[:21])
    assert rig.replicated == 200
    for byte in whole[21:]:
        assert rig.replicated == 200
        rig.say_bytes(slave, bytes([byte]))
    assert rig.replicated == 300


def test_a_slave_behind_the_first_file_is_told_so(rig: MasterRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.control.header.min_phy_offset = FILE_SIZE
    rig.append(2 * FILE_SIZE)
    with caplog.at_level(logging.INFO):
        rig.wait_until_closed(rig.connect(FILE_SIZE - 1))
    assert f"needs the log from {FILE_SIZE - 1} on, but here it begins at {FILE_SIZE}" in caplog.text
    assert rig.table.closed()["behind"] == 1


def test_a_file_that_goes_while_it_is_needed(rig: MasterRig) -> None:
    rig.append(3 * FILE_SIZE)
    (rig.directory / f"{FILE_SIZE:020d}").unlink()
    rig.wait_until_closed(rig.connect(FILE_SIZE + 5))
    assert rig.table.closed()["behind"] == 1


def test_a_silent_connection_is_closed(rig: MasterRig) -> None:
    rig.append(100)
    silent, half, busy = rig.connect(), rig.connect(), rig.connect(0)
    rig.pass_time(19.9)
    rig.say(busy, 0)
    rig.say_bytes(half, b"\0" * 7)
    assert rig.is_open(silent) and rig.is_open(busy)
    rig.pass_time(0.2)
    rig.wait_until_closed(silent)
    rig.wait_until_closed(half)
    assert rig.is_open(busy)
    rig.pass_time(20.0)
    rig.wait_until_closed(busy)
    assert rig.table.closed()["silent"] == 3


def test_a_frozen_slave_counts_as_absent_until_it_acknowledges(rig: MasterRig) -> None:
    rig.append(300)
    slave = rig.connect(300)
    rig.pass_time(10.0)
    assert rig.can_wait(300), "it has everything: there is nothing to acknowledge"
    rig.append(100)
    rig.turn()
    rig.pass_time(2.9)
    assert rig.can_wait(400)
    rig.pass_time(0.2)
    assert not rig.can_wait(400) and [one.state for one in rig.slaves()] == ["stalled"]
    assert [one.behind_ns for one in rig.slaves()] == [3_100_000_000]
    rig.append(100)
    rig.say(slave, 400)
    assert rig.can_wait(500), "it makes progress again"
    rig.pass_time(2.0)
    rig.say(slave, 500)
    rig.append(100)
    rig.turn()
    rig.pass_time(2.0)
    assert rig.can_wait(600), "what it lacks has not waited for so long"


def test_a_slave_that_acknowledges_a_byte_at_a_time_is_not_waited_for(rig: MasterRig) -> None:
    """Each send that waited for it would time out. It counts again when it has what the log had when it was late.
    Fault: A slave that acknowledged one byte per slaveTimeout made every synchronous send wait."""
    rig.append(300)
    slave = rig.connect(300)
    rig.append(100)
    rig.turn()
    for acknowledged in (301, 302, 303, 304):
        assert rig.can_wait(400)
        rig.pass_time(0.9)
        rig.say(slave, acknowledged)
    assert not rig.can_wait(400) and [one.state for one in rig.slaves()] == ["catching_up"]
    rig.append(1000)
    rig.say(slave, 399)
    assert not rig.can_wait(1400)
    rig.say(slave, 400)
    assert rig.can_wait(1400) and [one.state for one in rig.slaves()] == ["replicating"]
    rig.pass_time(2.9)
    assert rig.can_wait(1400)
    rig.say(slave, 401)
    rig.pass_time(0.2)
    assert not rig.can_wait(1400), "the next position that it has to reach is the end of the log of that moment"


def test_strangers_and_too_many_are_refused(open_rig: Open, caplog: pytest.LogCaptureFixture) -> None:
    rig = open_rig(slaves_max=2)
    rig.append(10)
    good, early = rig.connect(10), rig.connect()
    rig.connect(10)
    rig.wait_until_closed(rig.connect())
    assert rig.is_open(good) and rig.table.closed()["too_many"] == 1
    early.sendall(report(10))
    rig.wait_until_closed(early)
    assert rig.is_open(good) and rig.table.closed()["too_many"] == 2
    strange = open_rig(addresses="10.0.0.0/8")
    strange.wait_until_closed(strange.connect())
    assert strange.table.closed()["stranger"] == 1 and not strange.slaves()
    assert "its address is not in haAddresses" in caplog.text


def test_a_thousand_connections_cost_the_slave_nothing(rig: MasterRig) -> None:
    rig.append(10)
    slave = rig.connect(10)
    for _ in range(40):
        rig.connect()
    assert (
        rig.table.closed()["too_many"] == 40 - lib.RP_HANDSHAKES_MAX and len(rig.slaves()) == 1 + lib.RP_HANDSHAKES_MAX
    )
    for _ in range(960):
        rig.connect().close()
    rig.append(10)
    assert frames(rig.received(slave, 10)) == [(10, rig.log[10:])]
    rig.say(slave, 20)
    assert rig.replicated == 20


def test_a_limit_on_bytes_per_second(open_rig: Open) -> None:
    rig = open_rig(bytes_per_second=10_000, frame_max=700)
    rig.append(50_000)
    slave = rig.connect(0)
    for tenth in range(1, 21):
        sent = int(rig.table.pointer.rows[0].sent_phy_offset)
        assert 1_000 * tenth <= sent < 1_000 * tenth + 700, "the end of a frame is taken off the next tenth"
        rig.pass_time(0.1)
    sent = int(rig.table.pointer.rows[0].sent_phy_offset)
    assert log_of(rig.received(slave, sent)) == rig.log[:sent]


def test_one_large_frame_is_made_up_for_by_a_pause(open_rig: Open) -> None:
    """Fault: maxHaTransferByteInSecond let a slave get 320 KiB a second where 10 KB was set."""
    rig = open_rig(bytes_per_second=10_000, frame_max=32_768)
    rig.append(60_000)
    rig.connect(0)
    rig.pass_time(3.1)
    assert int(rig.table.pointer.rows[0].sent_phy_offset) == 32_768
    rig.pass_time(0.2)
    assert int(rig.table.pointer.rows[0].sent_phy_offset) == 60_000


class TickingRig(MasterRig):
    """Each look at its clock takes a millisecond."""

    @property  # type: ignore[override]  # an attribute of the base
    def now_ns(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns

    @now_ns.setter
    def now_ns(self, value: int) -> None:
        self._now_ns = value


def test_a_limit_and_a_slave_that_does_not_read_leave_the_loop_asleep(open_rig: Open) -> None:
    """Fault: The replicator spun while a rate-limited slave did not read."""
    rig = open_rig(kind=TickingRig, bytes_per_second=100_000_000, is_sync_master=1)
    rig.append(256 * FILE_SIZE)
    rig.connect(0, buffer_bytes=4_096)
    for _ in range(5):
        rig.pass_time(0.1)
    assert int(rig.table.pointer.rows[0].sent_phy_offset) < len(rig.log), "the socket takes no more"
    rig.now_ns += 200_000_000
    before = rig.worker.counter(lib.RP_COUNT_SLEEPS)
    rig.master.turn(20_000_000)
    assert rig.worker.counter(lib.RP_COUNT_SLEEPS) > before


def test_a_stop_waits_until_the_slave_has_everything(rig: MasterRig) -> None:
    rig.append(500)
    slave = rig.connect(0)
    rig.connect()
    rig.stop()
    assert rig.turn(), "the slave lacks 500 bytes"
    assert frames(rig.received(slave, 500)) == [(0, rig.log)]
    slave.sendall(report(500))
    wait_until(lambda: not rig.turn(1), "the end of the replicator")


def test_a_stop_waits_for_a_frozen_slave_as_long_as_a_send_would(rig: MasterRig) -> None:
    rig.append(500)
    rig.connect(0)
    rig.stop()
    assert rig.turn()
    rig.now_ns += 3_000_000_000
    assert not rig.turn()


def test_a_master_that_cannot_be_opened_says_so(rig: MasterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "lib", types.SimpleNamespace(rp_master_open=lambda _: ffi.NULL))
    with pytest.raises(StoreError, match="cannot read the CommitLog for slaves"):
        rig.open()


def test_a_restarted_replicator_begins_without_slaves_and_keeps_the_position(rig: MasterRig) -> None:
    rig.append(500)
    left = rig.connect(400)
    assert rig.can_wait(500) and rig.received(left, 100)
    rig.master.close()
    assert is_readable(left.fileno(), 30) and left.recv(1) == b"", "its connection is closed"
    rig.master = rig.open()
    assert rig.replicated == 400 and not rig.can_wait(500) and not rig.slaves()
    slave = rig.connect(450)
    assert frames(rig.received(slave, 50)) == [(450, rig.log[450:])]
    assert rig.replicated == 450


class NoDescriptors:
    """A listener while every accept fails."""

    def __init__(self) -> None:
        self.tries = 0

    def accept(self) -> None:
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_lack_of_descriptors_neither_spins_nor_stops_slaves(rig: MasterRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.append(10)
    slave = rig.connect(0)
    none, port = NoDescriptors(), rig.master._port
    rig.master._port = attrs.evolve(port, listener=none)  # type: ignore[arg-type]  # all that is used
    late = socket.create_connection(rig.listener.getsockname())
    rig.turn_until(lambda: none.tries == 1)
    assert "cannot accept a slave: Too many open files" in caplog.text
    rig.turn(100)
    assert none.tries == 1, "the listener is left alone for a while"
    rig.say(slave, 10)
    assert rig.replicated == 10
    rig.master._port = port
    rig.now_ns += 50_000_000
    rig.turn_until(lambda: len(rig.slaves()) == 2)
    late.close()
