"""The main function of the store worker: dispatch, flush, allocation and cleaning, connected to other workers by
rings."""

from __future__ import annotations

import attrs

from rocketpy.broker.fast_path.shared_memory import FilterMarks
from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.topology import MANAGER, REPLICATOR, SEND, STORE, Topology
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.services.store_service import StoreSeams, StoreService
from rocketpy.store.timers import TimerMarks


@attrs.frozen(eq=False)
class StoreMain:
    """`main` of the store worker."""

    topology: Topology
    control: ControlBlock
    config: MessageStoreConfig
    timers: TimerMarks
    filter_marks: FilterMarks
    slaves: SlaveTable

    def __call__(self, context: WorkerContext) -> None:
        topology = self.topology
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
            timers=self.timers,
            timers_out=None if topology.sizes.is_slave else topology.ring(STORE, SEND).pointer,
            filter_marks=self.filter_marks.pointer,
            needed_by_slaves=lambda: self.slaves.needed_phy_offset,
        )
        service = StoreService(self.config, self.control, seams)
        service.run(context.report_ready)

    @property
    def _waits_for_disk(self) -> str:
        """The worker that waits until the log is on the disk: a slave reports that to its master."""
        return REPLICATOR if self.topology.sizes.is_slave else SEND
