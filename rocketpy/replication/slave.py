"""The replicator of a slave: follows the master, one connection after the other.

    find the master -> ask for its log -> compare both ends -> receive, until something ends the stream -> again

A master of rocketpy compares both ends itself (greeting.py). One of the reference cannot: the slave has it send what
should be the end of the slave's log.

The first try after a stream comes at once; after failures the waits double, up to 5 s. If the logs do not fit, nothing
is received from this master any more: the slave goes on serving reads, and says why it stopped.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import select
import socket
import time
from collections.abc import Iterator
from typing import NoReturn

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.errors import StoreError
from rocketpy.logs import LogLimit, and_more
from rocketpy.native.core import lib
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.ring import Ring, WorkerBlock
from rocketpy.reactor.worker_spec import EXIT_REOPEN, WorkerContext
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import StorePaths
from rocketpy.store.reading.commitlog import CommitLog

from .common_part import find_cut
from .errors import CannotFollow, Diverged, MasterUnusable, ReplicatorStopped
from .follower import Follower, OtherOrders
from .greeting import ReadLog, crc_of, introduce, tell_fenced
from .introduction import Extent, Group
from .master_log import MasterLog, ask_master, connect, request_address
from .membership import MasterReplaced, NeedsCut
from .start import Start, compare_end, start_of
from .stream import ByteReader, LogStream, StreamSettings, send_report
from .truncation import Truncation

logger = logging.getLogger(__name__)

TIMEOUT_S = 3.0
BACKOFF_S, BACKOFF_MAX_S = 0.05, 5.0
MEMBER_BACKOFF_MAX_S = 0.5  # with automatic failover: whom the master waits for leaves the in-sync set after 3 s
CONNECT_S = 0.5  # the same: meanwhile no orders are read
ORDERS_S = 0.02  # the same: between two looks at the orders
LOOK_S = 0.2  # while the master is not known, or the ring is being emptied
TURN_S = 1.0
BAD_RECORDS_MAX = 3  # at one position


@attrs.define(eq=False)
class SlaveReplicator:
    """`main` of the replicator of a slave."""

    block: WorkerBlock
    control: ControlBlock
    master_link: MasterLink
    to_send: Ring
    settings: BrokerSettings
    secret: bytes = attrs.field(default=b"", repr=False)  # of haSecretFile; empty: none
    follower: Follower | None = None  # with automatic failover
    truncation: Truncation | None = None  # haTruncateDiverged; None also if a cut was asked for and could not be done
    _reopens: bool = attrs.field(init=False, default=False)  # a cut has been asked for
    _halted_for: tuple[str, str] | None = attrs.field(init=False, default=None)  # the master that cannot be followed
    _bad: tuple[int, int] = attrs.field(init=False, default=(-1, 0))  # position, streams that were refused there
    _tried: tuple[str, str] = attrs.field(init=False, default=("", ""))  # the master that was tried last
    _failures: int = attrs.field(init=False, default=0)  # tries of it in a row that brought nothing
    _limit: LogLimit = attrs.field(init=False, factory=LogLimit)

    def __call__(self, context: WorkerContext) -> int | None:
        """Follow until told to stop. Returns EXIT_REOPEN if the log has to be cut first."""
        self._leave()  # the previous replicator may have been killed while it followed
        context.report_ready()
        while not self.block.stop:
            master = self._master()
            if master is None or master == self._halted_for:
                self._halted_for = None if master is None and self.follower else self._halted_for
                self._pause(LOOK_S if master is None else TURN_S)
                continue
            if master != self._tried:
                self._tried, self._failures = master, 0
            self._try(master)
            if self._reopens:
                return EXIT_REOPEN
            if self._failures:
                longest_s = BACKOFF_MAX_S if self.follower is None else MEMBER_BACKOFF_MAX_S
                self._pause(min(longest_s, BACKOFF_S * 2 ** min(self._failures - 1, 10)))
        return None

    def _try(self, master: tuple[str, str]) -> None:
        """Follow until the stream ends. A fault of the master ends no more than this try."""
        try:
            self._follow(*master)
        except ReplicatorStopped:
            pass  # __call__ sees the order, too
        except OtherOrders:
            self._failures = 0
        except NeedsCut as exc:
            self._halted_for = master  # the guardian opens the store anew
            logger.warning("cannot follow the master %s before this log is cut: %s", master[1], exc)
        except CannotFollow as exc:
            if self.follower is None or isinstance(exc, Diverged):
                self._halt(master, str(exc))
            else:
                self._tell(f"cannot follow the master: {exc}")
                self._failures += 1
        except MasterUnusable as exc:
            self._tell(f"cannot follow the master: {exc}; trying again")
            self._failures += 1
        except StoreError as exc:
            self._tell(f"cannot follow the master {master[1]}: {exc}; trying again")
            self._failures += 1
        except Exception:
            logger.exception("an unexpected fault ended a stream of the master %s; trying again", master[1])
            self._failures += 1
        finally:
            self._leave()

    # --- the master -------------------------------------------------------------------------------------------------

    def _master(self) -> tuple[str, str] | None:
        """Return the master's address for requests and its HA address; None: not known."""
        if self.follower is not None:
            return self.follower.master(lambda: not self.to_send.depth_bytes)
        known = self.master_link.master()
        if known is None:
            return None
        master, ha = known
        given = self.settings.store.ha_master_address
        if given and given != ha:  # positions and tables must come from the broker that sends the log
            master, ha = "", given
        if not ha:
            return None
        try:
            return master or request_address(ha), ha
        except ValueError as exc:
            self._tell(f"cannot follow the master {ha!r}: {exc}; correct haMasterAddress")
            return None

    def _follow(self, master: str, ha: str) -> None:
        """One stream, from the question for the master's log to its end."""
        self._wait_for_ring()
        header = self.control.header
        own = Extent(int(header.min_phy_offset), int(header.published_phy_offset))
        if self.follower is not None:
            self._follow_member(self.follower, master, ha, own)
            return
        log = ask_master(master, TIMEOUT_S)
        start = None if log.versions else self._reference_start(log, own)
        if self.block.stop:
            return
        with connect(ha, TIMEOUT_S) as connection:
            body_left = 0
            if start is None:
                try:
                    start = self._introduce(connection, log, own)
                except Diverged as exc:
                    self._ask_for_cut(exc, log, own, ha)
            else:
                body_left = self._compare(connection, start)
            self._take_stream(connection, start, body_left, master, ha, log.end, is_rocketpy=log.versions is not None)

    def _take_stream(
        self,
        connection: socket.socket,
        start: Start,
        body_left: int,
        master: str,
        ha: str,
        master_end: int,
        *,
        is_rocketpy: bool,
    ) -> None:
        stream = LogStream(
            connection,
            start,
            body_left,
            master_end=master_end,
            is_rocketpy=is_rocketpy,
            block=self.block,
            control=self.control,
            master_link=self.master_link,
            to_send=self.to_send,
            settings=self._settings,
            follower=self.follower,
        )
        with contextlib.closing(stream):
            self.master_link.set_followed(master)
            self._receive(stream, start, ha)

    def _follow_member(self, follower: Follower, master: str, ha: str, own: Extent) -> None:
        """One stream of a master with automatic failover, from the handshake to its end."""
        membership = follower.membership()
        group, broker_id = self._group, self.settings.broker.broker_id
        with connect(ha, CONNECT_S) as connection:
            reader = self._reader(connection)
            welcome = introduce(connection, reader, group, broker_id, own, None, None, membership)
            try:
                with self._own_log() as read_log:
                    follower.join(welcome, own, functools.partial(crc_of, read_log, group.file_size))
            except MasterReplaced:
                tell_fenced(connection, follower.known_epoch)
                raise
            start = Start(welcome.start, welcome.start)
            self._take_stream(connection, start, 0, master, ha, welcome.master_end, is_rocketpy=True)

    def _introduce(self, connection: socket.socket, log: MasterLog, own: Extent) -> Start:
        """Return the start of a stream from a master of rocketpy, as both sides agree on it."""
        master, broker_id = Extent(log.begin, log.end), self.settings.broker.broker_id
        with self._own_log() as read_log:
            welcome = introduce(connection, self._reader(connection), self._group, broker_id, own, master, read_log)
        return Start(welcome.start, welcome.start)

    def _ask_for_cut(self, why: Diverged, log: MasterLog, own: Extent, ha: str) -> NoReturn:
        """With haTruncateDiverged: have this log cut where it begins to differ from that of a master of rocketpy.

        Raises:
            ReplicatorStopped: the broker is to open its store again. Diverged: the log cannot be cut.
        """
        if self.truncation is None:
            raise why
        master, broker_id = Extent(log.begin, log.end), self.settings.broker.broker_id
        with connect(ha, TIMEOUT_S) as connection, self._own_log() as read_log:
            reader = self._reader(connection)
            find = functools.partial(find_cut, connection, reader, self._group, broker_id, own, master, read_log)
            self.truncation.ask(why, ha, own.end, find)
        self._reopens = True
        raise ReplicatorStopped

    @property
    def _group(self) -> Group:
        broker, file_size = self.settings.broker, int(self.control.header.commitlog_file_size)
        return Group(
            cluster=broker.broker_cluster_name, broker_name=broker.broker_name, file_size=file_size, secret=self.secret
        )

    def _reference_start(self, log: MasterLog, own: Extent) -> Start:
        """The same of one of the reference."""
        if self.secret:
            raise CannotFollow(
                "it is a broker of the reference, or an older one of rocketpy, and cannot prove that it knows the "
                "secret in haSecretFile; remove haSecretFile to follow it"
            )
        return start_of(log, own.begin, own.end, int(self.control.header.commitlog_file_size))

    def _compare(self, connection: socket.socket, start: Start) -> int:
        """The bytes that a master of the reference has still to send of its first frame, after the end of our log."""
        send_report(connection, start.report)
        if start.end <= start.report:
            return 0
        with self._own_log() as read_log:
            return compare_end(start, self._reader(connection).read, read_log)

    def _reader(self, connection: socket.socket) -> ByteReader:
        turn_s = TURN_S if self.follower is None else ORDERS_S
        return ByteReader(connection, self._settings.silence_max_ns / 1e9, self._beat, turn_s)

    @contextlib.contextmanager
    def _own_log(self) -> Iterator[ReadLog]:
        """Reads (position, size) of this slave's log."""
        paths = StorePaths.of(self.settings.store.store_path_root_dir, self.settings.store.store_path_commit_log)
        with contextlib.closing(CommitLog(paths.commitlog, self.control)) as log:

            def read(at: int, size: int) -> bytes:
                self._beat()
                return log.read(at, size) or b""

            yield read

    def _receive(self, stream: LogStream, start: Start, ha: str) -> None:
        self._show(lib.RP_FOLLOWING)
        self.block.add(lib.RP_COUNT_STREAMS)
        logger.info("following the master %s from log offset %d on", ha, start.end)
        if not stream.run():
            self._failures = 0  # told to stop, or to follow another one
            return
        self.block.add(lib.RP_COUNT_STREAMS_ENDED)
        self._failures = 0 if stream.received_bytes else self._failures + 1
        if stream.is_refused:
            self._see_refusal()
        else:
            self._tell(f"stopped following the master {ha}: {stream.reason}; connecting again")

    def _see_refusal(self) -> None:
        if not self.master_link.is_refused_for_a_record:
            logger.info("the send worker was restarted: fetching the log again, from where this slave's log ends")
            return
        position = self.master_link.refused_position
        self.block.add(lib.RP_COUNT_BAD_RECORDS)
        tries = self._bad[1] + 1 if self._bad[0] == position else 1
        self._bad = position, tries
        if tries >= BAD_RECORDS_MAX:
            raise CannotFollow(
                f"the master sent a damaged record at log offset {position}, {tries} times; check its store with "
                "`rocketpy store verify`, and that maxMessageSize is not smaller here"
            )
        logger.error("the master sent a damaged record at log offset %d: fetching it again", position)

    def _halt(self, master: tuple[str, str], reason: str) -> None:
        self._halted_for = master
        self._failures = 0
        if self.follower is not None:
            self.follower.halt()
        logger.error("stopped following the master %s: %s; restart this slave when that is done", master[1], reason)

    # --- turns ------------------------------------------------------------------------------------------------------

    @property
    def _settings(self) -> StreamSettings:
        store = self.settings.store
        return StreamSettings(
            is_durable=self.settings.is_sync_flush,
            report_interval_ns=store.ha_send_heartbeat_interval * 1_000_000,
            silence_max_ns=store.ha_housekeeping_interval * 1_000_000,
        )

    def _leave(self) -> None:
        """No master is followed from here on: its tables are not to be copied."""
        self.master_link.set_followed("")
        self._show(lib.RP_FOLLOWING_HALTED if self._halted_for else lib.RP_FOLLOWING_SEARCHING)

    def _show(self, following: int) -> None:
        self.block.show(lib.RP_COUNT_FOLLOWING, following)

    def _tell(self, text: str) -> None:
        told = self._limit.take()
        if told:
            logger.warning("%s%s", text, and_more(told))

    def _beat(self) -> None:
        self.block.beat(time.monotonic_ns())
        if self.block.stop:
            raise ReplicatorStopped
        if self.follower is not None:
            self.follower.check()

    def _wait_for_ring(self) -> None:
        """Until the send worker has taken all of the last stream; with SYNC_FLUSH, until that is on the disk as well.

        The first report of a stream asks for the log from there on, and acknowledges what is below.
        """
        while (self.to_send.depth_bytes or self._is_disk_behind) and not self.block.stop:
            self._pause(0.01)

    @property
    def _is_disk_behind(self) -> bool:
        header = self.control.header
        return self._settings.is_durable and int(header.durable_phy_offset) < int(header.published_phy_offset)

    def _pause(self, seconds: float) -> None:
        """Wait, or until told to stop."""
        until_s, turn_s = time.monotonic() + seconds, TURN_S if self.follower is None else ORDERS_S
        poller = select.poll()
        poller.register(self.block.doorbell, select.POLLIN)
        while not self.block.stop and (left_s := until_s - time.monotonic()) > 0:
            self.block.beat(time.monotonic_ns())
            poller.poll(min(left_s, turn_s) * 1000)
            self.block.awake()
            if self.follower is not None and self.follower.has_news:
                break
        self.block.beat(time.monotonic_ns())
