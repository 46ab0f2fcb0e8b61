"""The main function of the store worker: dispatch, flush, allocation and cleaning, connected to other workers by
rings.

Short: the loop is that of rocketpy/store/services/store_service.py; here it gets its rings.
"""

from __future__ import annotations

import attrs

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.topology import MANAGER, REPLICATOR, SEND, STORE
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.store.services.store_service import StoreSeams, StoreService

from .inherited import Inherited


@attrs.frozen(eq=False)
class StoreMain:
    """`main` of the store worker."""

    inherited: Inherited

    def __call__(self, context: WorkerContext) -> None:
        inherited, topology = self.inherited, self.inherited.topology
        told = (*topology.sizes.pulls, MANAGER)
        writers = [lib.rp_ring_writer_open(topology.ring(STORE, name).pointer) for name in told]
        reader = lib.rp_ring_reader_open(topology.ring(MANAGER, STORE).pointer)
        if ffi.NULL in (*writers, reader):
            raise StoreError("no memory for the rings of the store worker")
        seams = StoreSeams(
            worker=context.block.pointer,
            pulls=writers[:-1],
            manager_in=reader,
            manager_out=writers[-1],
            send=topology.blocks[self._waits_for_disk].pointer,
            timers=inherited.timers,
            timers_out=None if topology.sizes.is_slave else topology.ring(STORE, SEND).pointer,
            filter_marks=inherited.filter_marks.pointer,
            needed_by_slaves=lambda: inherited.slaves.needed_phy_offset,
        )
        service = StoreService(inherited.settings.store, inherited.control, seams)
        service.run(context.report_ready, context.beat_s)

    @property
    def _waits_for_disk(self) -> str:
        """The worker that waits until the log is on the disk: a slave reports that to its master."""
        return REPLICATOR if self.inherited.topology.sizes.is_slave else SEND
