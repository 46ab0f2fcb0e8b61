"""A master and a follower of a group with automatic failover in one process: both replicators are real and talk over a
socket, in a thread each. The test gives the orders of both coordinators."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from rocketpy.config import BrokerRole, BrokerSettings
from rocketpy.failover.member_block import Following, MemberBlock, MemberOrders
from rocketpy.failover.rules.epochs import Epoch, EpochList
from rocketpy.native.core import ffi, lib
from rocketpy.networks import parse_networks
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.ring import STOP_LEAVE, Ring, WorkerBlock
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.follower import Follower
from rocketpy.replication.guide import NamedMaster
from rocketpy.replication.handshake_messages import Group
from rocketpy.replication.master import Master, MasterMember
from rocketpy.replication.master_handshakes import HaPort
from rocketpy.replication.protocols import SlaveSide
from rocketpy.replication.slave import SlaveReplicator
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.replication.stream import Intake, StreamSettings
from rocketpy.store.control_block import ControlBlock
from tests.support.slave_rig import FILE_SIZE, SlaveRig, always, log_image
from tests.support.waiting import wait_until

A, B = ("a", "1f"), ("b", "2e")
IMAGE = log_image(2)
SECOND_NS = 1_000_000_000
GROUP = Group(cluster="DefaultCluster", broker_name="broker-a", file_size=FILE_SIZE)


def epochs(*entries: tuple[int, int]) -> EpochList:
    return EpochList(tuple(Epoch(*entry) for entry in entries))


class MemberMaster:
    """Member a, which serves the last epoch of the list; `log` is what it has. Both members count."""

    def __init__(self, root: Path, epoch_list: EpochList, log: bytes, *, secret: bytes = b"") -> None:
        directory = root / "commitlog"
        directory.mkdir(parents=True)
        for start in range(0, len(log), FILE_SIZE):
            (directory / f"{start:020d}").write_bytes(log[start : start + FILE_SIZE].ljust(FILE_SIZE, b"\0"))
        self.control, self.table, self.block = ControlBlock(root / "control", FILE_SIZE), SlaveTable(), MemberBlock()
        self.control.header.published_phy_offset = len(log)
        EpochFile(root).write(epoch_list)
        self.epoch = epoch_list.last
        self.block.set_own(A)
        self.block.opened_epoch = self.epoch
        self.worker, self.send, self.store = (
            WorkerBlock("replicator", 0),
            WorkerBlock("send", 1),
            WorkerBlock("store", 2),
        )
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self._directory = ffi.new("char[]", os.fsencode(directory))
        self.config = ffi.new(
            "rp_master_config *",
            {
                "worker": self.worker.pointer,
                "send": self.send.pointer,
                "store": self.store.pointer,
                "block": self.control.block,
                "table": self.table.pointer,
                "commitlog_directory": self._directory,
                "member": self.block.pointer,
                "rocketpy_only": 1,
                "slaves_max": 16,
                "heartbeat_ns": 5 * SECOND_NS,
                "housekeeping_ns": 20 * SECOND_NS,
                "stall_ns": SECOND_NS,
            },
        )
        group = attrs.evolve(GROUP, secret=secret)
        member = MasterMember(self.block, epoch_list)
        port = HaPort(self.listener, parse_networks("127.0.0.0/8"))
        self._master = Master(self.config, port, self.control.header, self.table, group, member=member)
        self.serve(A, B)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._master.turn(SECOND_NS // 50):
            pass

    def serve(self, *counting: tuple[str, str], sends_stream: bool = True) -> int:
        return self.block.give(
            MemberOrders(
                is_master=True,
                epoch=self.epoch,
                sends_stream=sends_stream,
                takes_sends=True,
                counting=frozenset(counting),
            )
        )

    @property
    def ha_address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    @property
    def confirmed(self) -> int:
        return int(self.control.header.confirmed_phy_offset)

    def close(self) -> None:
        self.worker.order(STOP_LEAVE)
        self._thread.join(30)
        self._master.close()
        self.listener.close()
        self.control.close()
        for block in (self.worker, self.send, self.store):
            os.close(block.doorbell)


class MemberFollower:
    """Member b; its send worker takes turns with the test."""

    def __init__(
        self,
        root: Path,
        *,
        known: bytes = b"",
        epoch_list: EpochList | None = None,
        is_sync: bool = True,
        is_member: bool = True,
        secret: bytes = b"",
        **store: object,
    ) -> None:
        self.rig = rig = SlaveRig(root)
        if known:
            rig.begin_stream()
            rig.receive(attrs.evolve(IMAGE, data=known), always(FILE_SIZE))
        self.file, self.block = EpochFile(root), MemberBlock()
        if epoch_list is not None:
            self.file.write(epoch_list)
        self.block.set_own(B)
        self.worker, self.master_link = WorkerBlock("replicator", 6), MasterLink()
        self.master_link.pointer = rig.master_link
        ring = Ring(1 << 18, self.worker, WorkerBlock("send", 1))
        ring.pointer = rig.log_ring
        config = BrokerSettings()
        parts = {
            "broker_role": BrokerRole.SLAVE,
            "store_path_root_dir": str(root),
            "store_path_commit_log": str(root / "commitlog"),
            **store,
        }
        named = attrs.evolve(config.broker, broker_name="broker-a", broker_cluster_name="DefaultCluster")
        settings = attrs.evolve(config, store=attrs.evolve(config.store, **parts), broker=named)
        control = ControlBlock.__new__(ControlBlock)
        control.block, control.header = rig.block, rig.control
        guide: NamedMaster | Follower = NamedMaster(self.master_link, None)
        if is_member:
            guide = Follower(self.block, self.file, rig.control, rig.workers["store"], is_sync)
        intake = Intake(self.worker, control, self.master_link, ring, StreamSettings.of(settings))
        self.replicator = SlaveReplicator(SlaveSide(intake, guide, settings, secret))
        context = WorkerContext("r", self.worker, lambda: None)
        self._thread = threading.Thread(target=self.replicator, args=(context,))
        self._thread.start()

    def follow(self, master: MemberMaster, epoch: int | None = None) -> int:
        following = Following(
            member=A[0],
            epoch=master.epoch if epoch is None else epoch,
            ha_address=master.ha_address,
            address="127.0.0.1:1",
        )
        return self.block.give(MemberOrders(following=following))

    def turn_until(self, condition: Callable[[], object], what: str) -> None:
        def look() -> bool:
            self.rig.turn()
            lib.rp_worker_wake(self.worker.pointer, 1)
            return bool(condition())

        wait_until(look, what)

    @property
    def log(self) -> bytes:
        return self.rig.log()[: self.rig.published]

    @property
    def confirmed(self) -> int:
        return int(self.rig.control.confirmed_phy_offset)

    def count(self, counter: Any) -> int:
        return self.worker.counter(counter)

    def close(self) -> None:
        self.worker.order(STOP_LEAVE)
        until_s = time.monotonic() + 60
        while self._thread.is_alive():
            assert time.monotonic() < until_s
            self.rig.turn()
            self._thread.join(0.01)
        self.rig.close()
