"""The replicator of a slave: follows the master, one connection after the other.

    find the master -> ask for its log -> compare both ends -> receive, until something ends the stream -> again
    guide.py           protocols.py                            stream.py

The first try after a stream comes at once; after failures the waits double, up to 5 s. If the logs do not fit, nothing
is received from this master any more: the slave goes on serving reads, and says why it stopped. slave_states.py has
this as a table.
"""

from __future__ import annotations

import logging
import select
import time

import attrs

from rocketpy.errors import StoreError
from rocketpy.logs import LogLimit, and_more
from rocketpy.native.core import lib
from rocketpy.reactor.worker_spec import EXIT_REOPEN, WorkerContext

from .errors import CannotFollow, CutAsked, MasterUnusable, NeedsCut, OtherOrders, ReplicatorStopped
from .guide import MasterAddress
from .protocols import SlaveSide, open_stream
from .slave_states import Event, State, next_failures, next_state
from .stream import LogStream

logger = logging.getLogger(__name__)

BACKOFF_S = 0.05  # after the first failure; it doubles
LOOK_S = 0.2  # while the master is not known
TURN_S = 1.0  # while it cannot be followed
RING_S = 0.01  # while the ring is being emptied
BAD_RECORDS_MAX = 3  # at one position
SHOWN = {
    State.SEARCHING: lib.RP_FOLLOWING_SEARCHING,
    State.FOLLOWING: lib.RP_FOLLOWING,
    State.HALTED: lib.RP_FOLLOWING_HALTED,
    State.REOPENING: lib.RP_FOLLOWING_SEARCHING,
}


@attrs.define(eq=False)
class SlaveReplicator:
    """`main` of the replicator of a slave."""

    side: SlaveSide
    state: State = attrs.field(init=False, default=State.SEARCHING)
    _failures: int = attrs.field(init=False, default=0)  # tries in a row that brought nothing
    _named: MasterAddress | None = attrs.field(init=False, default=None)  # the master that was named last
    _halted_for: MasterAddress | None = attrs.field(init=False, default=None)  # the master that cannot be followed
    _bad: tuple[int, int] = attrs.field(init=False, default=(-1, 0))  # position, streams that were refused there
    _limit: LogLimit = attrs.field(init=False, factory=LogLimit)

    def __call__(self, context: WorkerContext) -> int | None:
        """Follow until told to stop. Returns EXIT_REOPEN if the log has to be cut first."""
        self._leave()  # the previous replicator may have been killed while it followed
        context.report_ready()
        while not self.side.intake.block.stop:
            master = self._master()
            if master is not None and master != self._named:
                self._named = master
                self._see(Event.MISFIT_NAMED if master == self._halted_for else Event.OTHER_MASTER)
            self._show()
            if master is None or master == self._halted_for:
                self._pause(LOOK_S if master is None else TURN_S)
                continue
            self._try(master)
            if self.state is State.REOPENING:
                return EXIT_REOPEN
            if self._failures:
                self._pause(min(self.side.guide.backoff_max_s, BACKOFF_S * 2 ** min(self._failures - 1, 10)))
        return None

    def _master(self) -> MasterAddress | None:
        """Return the master to try; None: not known."""
        guide, intake = self.side.guide, self.side.intake
        try:
            master = guide.master(lambda: intake.is_drained)
        except MasterUnusable as exc:
            self._tell(f"cannot follow the master {exc}")
            return None
        if master is None and guide.halt_ends_without_master:
            self._see(Event.NO_MASTER)
            self._halted_for = None
        return master

    def _try(self, master: MasterAddress) -> None:
        """Follow until the stream ends. A fault of the master ends no more than this try."""
        try:
            self._follow(master)
        except CutAsked:
            self._see(Event.CUT_ASKED)
        except ReplicatorStopped:
            pass  # __call__ sees the order, too
        except OtherOrders:
            self._see(Event.TOLD_TO_LEAVE)
        except NeedsCut as exc:
            self._halt(Event.NEEDS_CUT, master)  # the guardian opens the store anew
            logger.warning("cannot follow the master %s before this log is cut: %s", master.ha, exc)
        except CannotFollow as exc:
            if self.side.guide.is_final(exc):
                self._halt(Event.MISFIT, master)
                self.side.guide.halt()
                text = "stopped following the master %s: %s; restart this slave when that is done"
                logger.error(text, master.ha, exc)
            else:
                self._fail(f"cannot follow the master: {exc}")
        except MasterUnusable as exc:
            self._fail(f"cannot follow the master: {exc}; trying again")
        except StoreError as exc:
            self._fail(f"cannot follow the master {master.ha}: {exc}; trying again")
        except Exception:
            logger.exception("an unexpected fault ended a stream of the master %s; trying again", master.ha)
            self._see(Event.FAILED)
        finally:
            self._leave()

    def _follow(self, master: MasterAddress) -> None:
        """One stream, from the question for the master's log to its end."""
        self._wait_for_ring()
        with open_stream(self.side, master) as stream:
            self._receive(stream, master.ha)

    def _receive(self, stream: LogStream, ha: str) -> None:
        self._see(Event.STREAM_BEGUN)
        self._show()
        block = self.side.intake.block
        block.add(lib.RP_COUNT_STREAMS)
        logger.info("following the master %s from log offset %d on", ha, stream.agreement.phy_offset)
        if not stream.run():
            self._see(Event.TOLD_TO_LEAVE)
            return
        block.add(lib.RP_COUNT_STREAMS_ENDED)
        self._see(Event.STREAM_ENDED if stream.received_bytes else Event.NOTHING_CAME)
        if stream.is_refused:
            self._see_refusal()
        else:
            self._tell(f"stopped following the master {ha}: {stream.reason}; connecting again")

    def _see_refusal(self) -> None:
        """The send worker has refused a part of the log.

        Raises:
            CannotFollow: for a record that is damaged each time.
        """
        intake = self.side.intake
        if not intake.master_link.is_refused_for_a_record:
            logger.info("the send worker was restarted: fetching the log again, from where this slave's log ends")
            return
        position = intake.master_link.refused_position
        intake.block.add(lib.RP_COUNT_BAD_RECORDS)
        tries = self._bad[1] + 1 if self._bad[0] == position else 1
        self._bad = position, tries
        if tries >= BAD_RECORDS_MAX:
            raise CannotFollow(
                f"the master sent a damaged record at log offset {position}, {tries} times; check its store with "
                "`rocketpy store verify`, and that maxMessageSize is not smaller here"
            )
        logger.error("the master sent a damaged record at log offset %d: fetching it again", position)

    # --- states -----------------------------------------------------------------------------------------------------

    def _see(self, event: Event) -> None:
        self.state = next_state(self.state, event)
        self._failures = next_failures(self._failures, event)

    def _halt(self, event: Event, master: MasterAddress) -> None:
        self._see(event)
        self._halted_for = master

    def _fail(self, text: str) -> None:
        self._tell(text)
        self._see(Event.FAILED)

    def _leave(self) -> None:
        """No master is followed from here on: its tables are not to be copied."""
        self.side.intake.master_link.set_followed("")
        self._show()

    def _show(self) -> None:
        self.side.intake.block.show(lib.RP_COUNT_FOLLOWING, SHOWN[self.state])

    def _tell(self, text: str) -> None:
        told = self._limit.take()
        if told:
            logger.warning("replication: %s%s", text, and_more(told))

    # --- turns ------------------------------------------------------------------------------------------------------

    def _wait_for_ring(self) -> None:
        """Until the send worker has taken all of the last stream; with SYNC_FLUSH, until that is on the disk as well.

        The first report of a stream asks for the log from there on, and acknowledges what is below.
        """
        while not self.side.intake.is_settled and not self.side.intake.block.stop:
            self._pause(RING_S)

    def _pause(self, seconds: float) -> None:
        """Wait, or until told to stop."""
        block, guide, until_s = self.side.intake.block, self.side.guide, time.monotonic() + seconds
        poller = select.poll()
        poller.register(block.doorbell, select.POLLIN)
        while not block.stop and (left_s := until_s - time.monotonic()) > 0:
            block.beat(time.monotonic_ns())
            poller.poll(min(left_s, guide.turn_s) * 1000)
            block.awake()
            if guide.has_news:
                break
        block.beat(time.monotonic_ns())
