"""The replicator of a master: decides who may be a slave, and runs the C loop that serves the slaves.

    listener -> address in haAddresses? room? -> master_handshakes.py -> csrc/replication/master.c, the log
                                                 a slave of rocketpy: handshake_rules.py, in between

What a slave does wrong is a line in the log that names it, the positions and the remedy; lines of one kind are limited.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import StoreError
from rocketpy.failover.member_block import MemberBlock, fill_store
from rocketpy.failover.rules.epochs import EpochList
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.host import format_host
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from .frames import POSITION_MAX, printable
from .handshake_messages import Extent, Group, Hello, Refusal, Tail, Welcome
from .handshake_rules import LATER, encode_challenge, log_crc, read_hello, start_for, stranger
from .master_handshakes import NS_PER_S, Ended, HaPort, Newcomer, Newcomers, is_magic
from .member_handshake_rules import Join, join_for, tail_below
from .secret import Nonces, new_nonce
from .slave_table import SlaveTable

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
ACCEPT_AGAIN_S = 0.05  # after a failure
LOG_INTERVAL_S = 10.0
WHY = {
    lib.RP_SLAVE_LEFT: "slave %(address)s has left; it had the log up to %(acked)d (%(behind)d bytes behind)",
    lib.RP_SLAVE_SILENT: "closed slave %(address)s: it sent nothing, or no whole handshake, for haHousekeepingInterval",
    lib.RP_SLAVE_LONGER: "refused slave %(address)s: it reports %(reported)d, but this log ends at %(end)d: it has "
    "messages that this master does not have, or is the slave of another one; after a loss of power promote it, "
    "otherwise compare both and empty its store",
    lib.RP_SLAVE_BEHIND: "refused slave %(address)s: it needs the log from %(reported)d on, but here it begins at "
    "%(begin)d; empty its store, and it will copy what there is",
    lib.RP_SLAVE_IMPLAUSIBLE: "closed slave %(address)s: it reported %(reported)d, which cannot be true (it had "
    "acknowledged %(acked)d, this log ends at %(end)d); it is no slave of this broker",
    lib.RP_SLAVE_FAILED: "closed slave %(address)s: sending failed at %(acked)d",
    lib.RP_SLAVE_STRANGER: "refused slave %(address)s: it is one of the reference, or an older one of rocketpy, and "
    "cannot prove that it knows the secret; with haSecretFile only slaves of rocketpy are served",
    lib.RP_SLAVE_TOO_MANY: "closed %(address)s: haConnectionsMax slaves are connected, or more than "
    f"{lib.RP_HANDSHAKES_MAX} connections have not said yet which slaves they are; raise haConnectionsMax, or narrow "
    "haAddresses",
    lib.RP_SLAVE_PLAIN: "refused slave %(address)s: it is not encrypted, and tls.server.mode is enforcing here; set "
    "useTLS=true and haUseTLS=true on it",
    lib.RP_SLAVE_NO_TLS: "refused slave %(address)s: it speaks TLS, and tls.server.mode is disabled here, or the TLS "
    "workers are behind (tlsWorkers)",
}
REASON_OF = {
    LATER: lib.RP_SLAVE_FAILED,
    "fileSize": lib.RP_SLAVE_DIVERGED,
    "longer": lib.RP_SLAVE_LONGER,
    "behind": lib.RP_SLAVE_BEHIND,
    "diverged": lib.RP_SLAVE_DIVERGED,
}  # all others: a stranger
EXPECTED = frozenset({lib.RP_SLAVE_LEFT})


@attrs.frozen
class _Asking:
    """A connection whose HELLO is to be answered."""

    newcomer: Newcomer
    nonces: Nonces


class MasterMember:
    """A master with automatic failover, which serves only the epoch that it was told to serve.

    Args:
        epochs: of the log, with the epoch that this process tree has opened; the same as long as the tree runs.
    """

    def __init__(self, block: MemberBlock, epochs: EpochList) -> None:
        self.block, self.epochs = block, epochs

    def epoch(self) -> int | None:
        """The epoch to serve; None: no stream may be sent now."""
        known = self.block.orders()
        if known is None or not known[0].sends_stream or known[0].epoch != self.block.opened_epoch:
            return None
        return known[0].epoch if self.epochs.last == known[0].epoch else None

    def encoded(self) -> Any:
        """`epochs` as rp_epoch[]."""
        return ffi.new("rp_epoch[]", [{"number": entry.number, "start": entry.start} for entry in self.epochs.entries])


def _clock_of(config: Any) -> Callable[[], float]:
    """The clock of the C loop, in seconds."""
    clock_ns = config.clock_ns
    return time.monotonic if clock_ns == ffi.NULL else lambda: float(clock_ns() / NS_PER_S)


class Master:
    """Serves the slaves of one broker, in the process that opened it.

    Args:
        config: an `rp_master_config *`, kept alive by the caller; its `handshakes` is set here. Its clock is that of
            the handshakes, too.
        control: the header of the control block.
        group: whose slaves are served.
        member: with automatic failover.
    """

    def __init__(
        self,
        config: Any,
        port: HaPort,
        control: Any,
        table: SlaveTable,
        group: Group,
        *,
        member: MasterMember | None = None,
    ) -> None:
        self._port, self._control, self._table = port, control, table
        self._group, self._member, self._epoch = group, member, -1
        self._epochs: Any = None  # rp_epoch[], which the loop reads
        self._config, self._now_s, self._accept_from_s, self._slaves = config, _clock_of(config), 0.0, 0
        self._newcomers = Newcomers(table, port, config.housekeeping_ns / NS_PER_S, self._now_s)
        config.handshakes = self._newcomers.fileno()
        self._limit = LogLimit(LOG_INTERVAL_S, self._now_s)
        self._directory = Path(os.fsdecode(ffi.string(config.commitlog_directory)))
        self._pointer = lib.rp_master_open(config)
        if self._pointer == ffi.NULL:
            raise StoreError(f"cannot read the CommitLog for slaves: {os.strerror(ffi.errno)}")

    def close(self) -> None:
        lib.rp_master_close(self._pointer)
        self._newcomers.close()

    def turn(self, timeout_ns: int) -> bool:
        """Serve for up to `timeout_ns`. Returns False once stopped."""
        is_accepting = not self._config.worker.stop and self._now_s() >= self._accept_from_s
        self._newcomers.listen(is_accepting)
        event = lib.rp_master_run(self._pointer, self._newcomers.left_ns(timeout_ns))
        self._report_closed()
        for newcomer in self._newcomers.ready():
            self._attend(newcomer)
        for newcomer in self._newcomers.overdue():
            self._end(newcomer, lib.RP_SLAVE_SILENT)
        if is_accepting:
            self._accept()
        return bool(event != lib.RP_MASTER_STOPPED)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, peer = self._port.listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:  # it has gone again, or there are no descriptors
                if told := self._limit.take("accept"):
                    logger.warning("cannot accept a slave: %s%s", exc.strerror, and_more(told))
                self._accept_from_s = self._now_s() + ACCEPT_AGAIN_S
                return
            if not self._admit(connection, peer[:2]):
                connection.close()

    def _admit(self, connection: socket.socket, peer: tuple[str, int]) -> bool:
        address = format_host(peer)
        if not self._port.admits(peer[0]):
            return self._refuse(lib.RP_SLAVE_STRANGER, address, "its address is not in haAddresses")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._begin(connection, peer):
            return self._refuse(lib.RP_SLAVE_TOO_MANY, address, "haConnectionsMax slaves are connected")
        if told := self._limit.take("connected"):
            logger.info("slave %s has connected%s", address, and_more(told))
        return True

    def _begin(self, connection: socket.socket, peer: tuple[str, int]) -> bool:
        if self._is_full:
            return False
        if (surplus := self._newcomers.surplus) is not None:
            self._end(surplus, lib.RP_SLAVE_TOO_MANY)
        return self._newcomers.begin(connection, peer) is not None

    def _refuse(self, reason: int, address: str, why: str) -> bool:
        self._table.count_closed(reason)
        if told := self._limit.take(reason):
            logger.warning("refused a connection to the HA port from %s: %s%s", address, why, and_more(told))
        return False

    @property
    def _is_full(self) -> bool:
        return self._slaves >= min(int(self._config.slaves_max), int(lib.RP_SLAVES_MAX))

    def _serve(self, newcomer: Newcomer, start: int, *, is_rocketpy: bool, acked: int = 0) -> None:
        """Give the connection to the C loop, which sends it the log."""
        written_ns = int((self._now_s() if is_rocketpy else newcomer.begun_s) * NS_PER_S)  # WELCOME; or nothing yet
        connection = self._newcomers.release(newcomer)
        lib.rp_master_add(self._pointer, newcomer.row, connection, is_rocketpy, start, acked, written_ns)
        self._slaves += 1

    def _end(self, newcomer: Newcomer, reason: int, reported: int = 0) -> None:
        self._newcomers.end(newcomer, reason)
        self._tell_closed(reason, newcomer.address, reported, 0)

    def _begin_reference(self, newcomer: Newcomer, report: int) -> None:
        """A slave of 4.9 has reported the end of its log. With an empty one (0) it gets everything that there is: the
        reference would begin with its last file, so that what is older would be lost with the master."""
        own = self._extent()
        start = report or own.begin
        if report > POSITION_MAX:
            self._end(newcomer, lib.RP_SLAVE_IMPLAUSIBLE, report)
        elif self._config.rocketpy_only:
            self._end(newcomer, lib.RP_SLAVE_STRANGER, report)
        elif report > own.end:
            self._end(newcomer, lib.RP_SLAVE_LONGER, report)
        elif start < own.begin:
            self._end(newcomer, lib.RP_SLAVE_BEHIND, report)
        elif self._is_full:
            self._end(newcomer, lib.RP_SLAVE_TOO_MANY, report)
        else:
            self._serve(newcomer, start, is_rocketpy=False, acked=report)

    # --- the handshake --------------------------------------------------------------------------------------------

    def _attend(self, newcomer: Newcomer) -> None:
        said = self._newcomers.read(newcomer)
        if isinstance(said, Ended):
            self._end(newcomer, said.reason)
        elif said is not None and newcomer.challenge:
            self._answer(newcomer, said)
        elif said is not None and is_magic(said):
            newcomer.challenge = new_nonce()
            if not self._newcomers.send(newcomer, encode_challenge(newcomer.challenge)):
                self._end(newcomer, lib.RP_SLAVE_LEFT)
        elif said is not None:
            self._begin_reference(newcomer, int.from_bytes(said, "big"))

    def _extent(self) -> Extent:
        begin = int(self._control.min_phy_offset)
        return Extent(begin - begin % self._group.file_size, int(self._control.published_phy_offset))

    def _answer(self, newcomer: Newcomer, body: bytes) -> None:
        """Answer a HELLO."""
        challenge, own, hello = newcomer.challenge, self._extent(), read_hello(body)
        if isinstance(hello, Refusal):
            self._refuse_hello(_Asking(newcomer, Nonces(challenge, "")), hello)
            return
        asking = _Asking(newcomer, Nonces(challenge, hello.nonce))
        if self._member is not None:
            self._answer_member(self._member, asking, hello, own)
            return
        start = start_for(hello, self._group, challenge, own, self._crc)
        if isinstance(start, Refusal):
            self._refuse_hello(asking, start)
            return
        self._welcome(asking, hello, Welcome(start, own.end, master_begin=own.begin, version=hello.version))

    def _answer_member(self, member: MasterMember, asking: _Asking, hello: Hello, own: Extent) -> None:
        """Answer a HELLO with automatic failover, by the epochs of both logs."""
        if (unknown := stranger(hello, self._group, asking.nonces.challenge)) is not None:
            self._refuse_hello(asking, unknown)
            return
        epoch = self._see_epochs(member, hello)
        join = join_for(hello, self._group, asking.nonces.challenge, own, member.epochs, epoch)
        welcome = join if isinstance(join, Refusal) else self._join_answer(member, join, hello, own)
        if isinstance(welcome, Refusal):
            self._refuse_hello(asking, welcome)
        elif welcome.truncate is not None:
            self._have_cut(asking, hello, welcome, welcome.truncate)
        elif self._identify(asking, hello):
            self._welcome(asking, hello, welcome)

    def _see_epochs(self, member: MasterMember, hello: Hello) -> int | None:
        """The epoch to serve; None: no stream may be sent now."""
        epoch = member.epoch()
        if epoch is not None and epoch != self._epoch:
            self._set_epochs(member)
            self._epoch = epoch
        if hello.membership.epochs.last > self._epoch >= 0:
            member.block.see_epoch(hello.membership.epochs.last)  # this master is the older one, if etcd says so, too
        return epoch

    def _join_answer(self, member: MasterMember, join: Join, hello: Hello, own: Extent) -> Welcome | Refusal:
        """WELCOME, with this log's bytes below the position where the stream begins, or the slave's log is cut."""
        tail = None
        if (place := tail_below(join.start, hello.log, own)) is not None:
            if (crc := self._crc(*place)) is None:
                return Refusal(LATER, f"this master cannot read its log from {place[0]} on now")
            tail = Tail(place[0], crc)
        return Welcome(join.start, own.end, member.epochs, join.truncate, own.begin, tail, hello.version)

    def _identify(self, asking: _Asking, hello: Hello) -> bool:
        """Say which member's store the connection is of. False: it cannot be named, and is refused."""
        store = ffi.new("rp_store_id *")
        try:
            fill_store(store, (hello.membership.member, hello.membership.incarnation))
        except ValueError as exc:
            self._refuse_hello(asking, Refusal("version", f"its name or incarnation does not fit: {exc}"))
            return False
        self._table.identify(asking.newcomer.row, store)
        return True

    def _set_epochs(self, member: MasterMember) -> None:
        """Tell the loop the epochs of the log, once: they stay the same as long as this process runs."""
        epochs = member.encoded()
        status = Status(lib.rp_master_set_epochs(self._pointer, epochs, len(epochs)))
        assert status is Status.OK, "the epochs were set before, for another epoch"
        self._epochs = epochs

    def _have_cut(self, asking: _Asking, hello: Hello, welcome: Welcome, position: int) -> None:
        frame = welcome.encode(self._group.secret, asking.nonces)
        self._newcomers.send(asking.newcomer, frame)
        self._newcomers.end(asking.newcomer, lib.RP_SLAVE_DIVERGED)
        if told := self._limit.take("truncate"):
            text = "member %s at %s has %d bytes after log offset %d that are not in this log: it cuts them off%s"
            name, behind = printable(hello.membership.member), hello.log.end - position
            logger.warning(text, name, asking.newcomer.address, behind, position, and_more(told))

    def _welcome(self, asking: _Asking, hello: Hello, welcome: Welcome) -> None:
        frame, start = welcome.encode(self._group.secret, asking.nonces), welcome.start
        if self._is_full:
            self._end(asking.newcomer, lib.RP_SLAVE_TOO_MANY)
            return
        if not self._newcomers.send(asking.newcomer, frame):
            self._end(asking.newcomer, lib.RP_SLAVE_LEFT)
            return
        self._serve(asking.newcomer, start, is_rocketpy=True)
        if told := self._limit.take("welcomed"):
            text = "slave %s (brokerId %d) gets the log from %d on; it ends at %d%s"
            logger.info(text, asking.newcomer.address, hello.broker_id, start, welcome.master_end, and_more(told))

    def _refuse_hello(self, asking: _Asking, refusal: Refusal) -> None:
        frame = refusal.encode(self._group.secret, asking.nonces)
        reason = REASON_OF.get(refusal.code, lib.RP_SLAVE_STRANGER)
        self._newcomers.send(asking.newcomer, frame)
        self._newcomers.end(asking.newcomer, reason)
        if told := self._limit.take(refusal.code):
            address = asking.newcomer.address
            logger.warning("refused slave %s (%s): %s%s", address, refusal.code, refusal.reason, and_more(told))

    def _crc(self, position: int, size: int) -> int | None:
        return log_crc(self._read_log, self._group.file_size, position, size)

    def _read_log(self, position: int, size: int) -> bytes:
        """Bytes of one file of the log; fewer, if they cannot be read now."""
        begin = position - position % self._group.file_size
        with contextlib.suppress(OSError), open(self._directory / f"{begin:020d}", "rb") as file:
            return os.pread(file.fileno(), size, position - begin)
        return b""

    def _report_closed(self) -> None:
        closed = ffi.new("rp_slave_closed *")
        while lib.rp_master_closed(self._pointer, closed):
            self._slaves -= 1
            address = ffi.string(self._table.pointer.rows[closed.row].address).decode(errors="replace")
            self._tell_closed(int(closed.reason), address, int(closed.reported), int(closed.acked))

    def _tell_closed(self, reason: int, address: str, reported: int, acked: int) -> None:
        told = self._limit.take(reason)
        if not told or reason not in WHY:
            return
        end = int(self._control.published_phy_offset)
        facts = {
            "address": address,
            "reported": reported,
            "acked": acked,
            "end": end,
            "begin": int(self._control.min_phy_offset),
            "behind": max(0, end - acked),
        }
        level = logging.INFO if reason in EXPECTED else logging.WARNING
        logger.log(level, "replication: %s%s", WHY[reason] % facts, and_more(told))
