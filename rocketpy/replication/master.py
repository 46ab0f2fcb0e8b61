"""The replicator of a master: decides who may be a slave, and runs the C loop that serves the slaves.

    listener -> address in haAddresses? room? -> csrc/replication/master.c, which sends the log and reads reports

What a slave does wrong is a line in the log that names it, the positions and the remedy; lines of one kind are limited.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.log_limit import LogLimit, and_more
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.networks import Network, is_in, parse_address

from .slave_table import SlaveTable

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
ACCEPT_AGAIN_NS = 50_000_000  # after a failure
LOG_INTERVAL_S = 10.0
WHY = {
    lib.RP_SLAVE_LEFT: "slave %(address)s has left; it had the log up to %(acked)d (%(behind)d bytes behind)",
    lib.RP_SLAVE_SILENT: "closed slave %(address)s: it has sent nothing for haHousekeepingInterval",
    lib.RP_SLAVE_LONGER: "refused slave %(address)s: it reports %(reported)d, but this log ends at %(end)d: it has "
    "messages that this master does not have, or is the slave of another one; compare both, then empty its store",
    lib.RP_SLAVE_BEHIND: "refused slave %(address)s: it needs the log from %(reported)d on, but here it begins at "
    "%(begin)d; empty its store, and it will copy what there is",
    lib.RP_SLAVE_IMPLAUSIBLE: "closed slave %(address)s: it reported %(reported)d, which cannot be true (it had "
    "acknowledged %(acked)d, this log ends at %(end)d); it is no slave of this broker",
    lib.RP_SLAVE_FAILED: "closed slave %(address)s: sending failed at %(acked)d",
}
EXPECTED = frozenset({lib.RP_SLAVE_LEFT})


class Master:
    """Serves the slaves of one broker, in the process that opened it.

    Args:
        config: an `rp_master_config *`, kept alive by the caller.
        listener: the listening socket of the HA port, non-blocking.
        control: the header of the control block.
    """

    def __init__(
        self,
        config: Any,
        listener: socket.socket,
        control: Any,
        table: SlaveTable,
        networks: Sequence[Network],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener, self._control, self._table, self._networks = listener, control, table, networks
        self._limit = LogLimit(LOG_INTERVAL_S, now_s)
        self._pointer = lib.rp_master_open(config)
        if self._pointer == ffi.NULL:
            raise StoreError(f"cannot read the CommitLog for slaves: {os.strerror(ffi.errno)}")

    def close(self) -> None:
        lib.rp_master_close(self._pointer)

    def turn(self, timeout_ns: int) -> bool:
        """Serve for up to `timeout_ns`. Returns False once stopped."""
        status = lib.rp_master_run(self._pointer, timeout_ns)
        self._report_closed()
        if status == lib.RP_INCOMPLETE:
            self._accept()
        return bool(status != lib.RP_STOPPED)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:  # it has gone again, or there are no descriptors
                if told := self._limit.take("accept"):
                    logger.warning("cannot accept a slave: %s%s", exc.strerror, and_more(told))
                lib.rp_master_pause_accepting(self._pointer, ACCEPT_AGAIN_NS)
                return
            with contextlib.closing(connection):
                self._admit(connection, peer)

    def _admit(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        if not is_in(parse_address(peer[0]), self._networks):
            self._refuse(lib.RP_SLAVE_STRANGER, address, "its address is not in haAddresses")
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if lib.rp_master_add(self._pointer, connection.fileno(), address.encode()) != lib.RP_OK:
            self._refuse(lib.RP_SLAVE_TOO_MANY, address, "there are haConnectionsMax already")
            return
        connection.detach()
        if told := self._limit.take("connected"):
            logger.info("slave %s has connected%s", address, and_more(told))

    def _refuse(self, reason: int, address: str, why: str) -> None:
        self._table.count_refused(reason)
        if told := self._limit.take(reason):
            logger.warning("refused a connection to the HA port from %s: %s%s", address, why, and_more(told))

    def _report_closed(self) -> None:
        closed = ffi.new("rp_slave_closed *")
        while lib.rp_master_closed(self._pointer, closed):
            told = self._limit.take(closed.reason)
            if not told or closed.reason not in WHY:
                continue
            row, end = self._table.pointer.rows[closed.row], int(self._control.published_phy_offset)
            facts = {
                "address": ffi.string(row.address).decode(errors="replace"),
                "reported": int(closed.reported),
                "acked": int(closed.acked),
                "end": end,
                "begin": int(self._control.min_phy_offset),
                "behind": max(0, end - int(closed.acked)),
            }
            level = logging.INFO if closed.reason in EXPECTED else logging.WARNING
            logger.log(level, "%s%s", WHY[closed.reason] % facts, and_more(told))
