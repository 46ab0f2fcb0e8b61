"""The three protocols by which a slave opens the stream of a master. `open_stream` chooses one of them.

    ReferenceProtocol  a master of the reference: it compares nothing, so the slave has it send what should be the end
                       of the slave's log
    RocketpyProtocol   a master of rocketpy: it compares both ends itself, in the handshake (slave_handshake.py)
    MemberProtocol     a master with automatic failover: both sides compare the epochs of their logs first

A plain slave asks each time anew what its master speaks: another version may have been installed.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.remoting.signature import Credentials
from rocketpy.store.files import StorePaths
from rocketpy.store.reading.commitlog import CommitLog

from .connection import connect_ha
from .errors import CannotFollow, CutAsked, Diverged, MasterReplaced, ReplicatorStopped
from .follower import Follower
from .guide import MasterAddress, NamedMaster
from .handshake_messages import Extent, Group, Welcome
from .handshake_rules import ReadLog
from .master_log import Caller, MasterLog, ask_master
from .reference_start import Start, compare_end, start_of
from .slave_handshake import crc_of, introduce, tell_fenced
from .stream import Agreement, ByteReader, Intake, LogStream, MemberStream, send_report
from .truncation import Truncation, find_cut

if TYPE_CHECKING:
    from rocketpy.tls import Certificates

TIMEOUT_S = 3.0
MEMBER_TIMEOUT_S = 0.5  # no orders are read meanwhile


@attrs.frozen(eq=False)
class SlaveSide:
    """The slave's side of every protocol: what it says of itself, its log, and how it waits.

    Args:
        secret: of haSecretFile; empty: none.
        truncation: haTruncateDiverged; None also if a cut was asked for and could not be done.
        calls: for requests to the master by TLS (useTLS), and with haUseTLS for its log; None: they are plain.
        credentials: asked for before each connection, for requests to the master; None: they have no signature.
    """

    intake: Intake
    guide: NamedMaster | Follower
    settings: BrokerSettings
    secret: bytes = attrs.field(default=b"", repr=False)
    truncation: Truncation | None = None
    calls: Certificates | None = None
    credentials: Callable[[], Credentials | None] = lambda: None

    @property
    def group(self) -> Group:
        broker = self.settings.broker
        return Group(
            cluster=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            file_size=self.intake.file_size,
            secret=self.secret,
        )

    @property
    def broker_id(self) -> int:
        return self.settings.broker.broker_id

    def connect(self, master: MasterAddress, timeout_s: float) -> contextlib.AbstractContextManager[socket.socket]:
        """A connection to the HA port of the master, by TLS with haUseTLS. Raises: MasterUnusable."""
        calls = self.calls if self.settings.store.ha_use_tls else None
        return connect_ha(master.ha, timeout_s, None if calls is None else calls.context)

    @property
    def caller(self) -> Caller:
        """The way of its requests to the master."""
        return Caller(None if self.calls is None else self.calls.context, self.credentials())

    @contextlib.contextmanager
    def log(self) -> Iterator[ReadLog]:
        """Reads (position, size) of this slave's log."""
        paths = StorePaths.of(self.settings.store.store_path_root_dir, self.settings.store.store_path_commit_log)
        with contextlib.closing(CommitLog(paths.commitlog, self.intake.control)) as log:

            def read(at: int, size: int) -> bytes:
                self.beat()
                return log.read(at, size) or b""

            yield read

    def reader(self, connection: socket.socket) -> ByteReader:
        return ByteReader(connection, self.intake.settings.silence_max_ns / 1e9, self.beat, self.guide.turn_s)

    def beat(self) -> None:
        """Show that the worker is alive.

        Raises:
            ReplicatorStopped: the broker stops. OtherOrders: this master is not to be followed any more.
        """
        block = self.intake.block
        block.beat(time.monotonic_ns())
        if block.stop:
            raise ReplicatorStopped
        self.guide.check()


@attrs.frozen(eq=False)
class ReferenceProtocol:
    """One stream of a master of the reference, which had `log` a moment ago. `own`: this slave's."""

    side: SlaveSide
    master: MasterAddress
    own: Extent
    log: MasterLog

    @contextlib.contextmanager
    def stream(self) -> Iterator[LogStream]:
        """The stream, when its first bytes were found equal to the end of the slave's log."""
        start = self._start()
        self.side.beat()
        with self.side.connect(self.master, TIMEOUT_S) as connection:
            send_report(connection, start.report)
            agreement = Agreement(
                phy_offset=start.end,
                master_end=self.log.end,
                is_rocketpy=False,
                body_left=self._compare(connection, start),
                report_least=start.report,
                adds_zero=start.adds_zero,
            )
            with contextlib.closing(LogStream(connection, agreement, self.side.intake)) as stream:
                yield stream

    def _start(self) -> Start:
        if self.side.secret:
            raise CannotFollow(
                "it is a broker of the reference, or an older one of rocketpy, and cannot prove that it knows the "
                "secret in haSecretFile; remove haSecretFile to follow it"
            )
        return start_of(self.log, self.own.begin, self.own.end, self.side.intake.file_size)

    def _compare(self, connection: socket.socket, start: Start) -> int:
        """Return the bytes that the master has still to send of its first frame, after the end of the slave's log."""
        if start.end <= start.report:
            return 0
        with self.side.log() as read_log:
            return compare_end(start, self.side.reader(connection).read, read_log)


@attrs.frozen(eq=False)
class RocketpyProtocol:
    """One stream of a master of rocketpy, which had `log` a moment ago. `own`: this slave's."""

    side: SlaveSide
    master: MasterAddress
    own: Extent
    log: MasterLog

    @contextlib.contextmanager
    def stream(self) -> Iterator[LogStream]:
        """The stream, when the master has found the end of the slave's log in its own."""
        self.side.beat()
        with self.side.connect(self.master, TIMEOUT_S) as connection:
            try:
                welcome = self._introduce(connection)
            except Diverged as exc:
                self._ask_for_cut(exc)
            agreement = Agreement(phy_offset=welcome.start, master_end=self.log.end, is_rocketpy=True)
            with contextlib.closing(LogStream(connection, agreement, self.side.intake)) as stream:
                yield stream

    def _introduce(self, connection: socket.socket) -> Welcome:
        side, reader = self.side, self.side.reader(connection)
        with side.log() as read_log:
            return introduce(connection, reader, side.group, side.broker_id, self.own, self._extent, read_log)

    def _ask_for_cut(self, why: Diverged) -> NoReturn:
        """With haTruncateDiverged: have this log cut where it begins to differ from the master's.

        Raises:
            CutAsked: the broker is to open its store again. Diverged: the log cannot be cut.
        """
        side = self.side
        if side.truncation is None:
            raise why
        with side.connect(self.master, TIMEOUT_S) as connection, side.log() as read_log:
            reader = side.reader(connection)
            find = functools.partial(
                find_cut, connection, reader, side.group, side.broker_id, self.own, self._extent, read_log
            )
            side.truncation.ask(why, self.master.ha, self.own.end, find)
        raise CutAsked

    @property
    def _extent(self) -> Extent:
        return Extent(self.log.begin, self.log.end)


@attrs.frozen(eq=False)
class MemberProtocol:
    """One stream of a master with automatic failover. `own`: this member's log."""

    side: SlaveSide
    master: MasterAddress
    own: Extent
    follower: Follower

    @contextlib.contextmanager
    def stream(self) -> Iterator[LogStream]:
        """The stream, when the follower has agreed on it and the epochs of its log are on the disk."""
        side, membership = self.side, self.follower.membership()
        with side.connect(self.master, MEMBER_TIMEOUT_S) as connection:
            reader = side.reader(connection)
            welcome = introduce(connection, reader, side.group, side.broker_id, self.own, None, None, membership)
            self._join(connection, welcome)
            agreement = Agreement(phy_offset=welcome.start, master_end=welcome.master_end, is_rocketpy=True)
            with contextlib.closing(MemberStream(connection, agreement, side.intake, self.follower)) as stream:
                yield stream

    def _join(self, connection: socket.socket, welcome: Welcome) -> None:
        try:
            with self.side.log() as read_log:
                self.follower.join(welcome, self.own, functools.partial(crc_of, read_log, self.side.group.file_size))
        except MasterReplaced:
            tell_fenced(connection, self.follower.known_epoch)
            raise


@contextlib.contextmanager
def open_stream(side: SlaveSide, master: MasterAddress) -> Iterator[LogStream]:
    """Open the stream of a master, by the protocol that both speak.

    Raises:
        CannotFollow, NeedsCut: the logs do not fit. CutAsked: they will.
        MasterUnusable, StoreError: another try may succeed.
        OtherOrders: this master is not to be followed any more. ReplicatorStopped: the broker stops.
    """
    if side.calls is not None:
        side.calls.refreshed()
    with _protocol(side, master, side.intake.own).stream() as stream:
        side.intake.master_link.set_followed(master.requests)
        yield stream


def _protocol(
    side: SlaveSide, master: MasterAddress, own: Extent
) -> ReferenceProtocol | RocketpyProtocol | MemberProtocol:
    if isinstance(side.guide, Follower):
        return MemberProtocol(side, master, own, side.guide)
    log = ask_master(master.requests, TIMEOUT_S, side.caller)
    return (ReferenceProtocol if log.versions is None else RocketpyProtocol)(side, master, own, log)
