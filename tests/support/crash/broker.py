"""A broker with real log, queues and tables, in one process: what a member of a group is before and after a crash.

The send worker and dispatch are the compiled core, the tables are those of a BrokerController, and an opening does what
the boot does: recover the log, hold the tables to it, find the open half messages, load. Import it after `core.load()`.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import trio

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.config import BrokerRole
from rocketpy.message import names
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.native.core import lib
from rocketpy.processes.boot.half_messages import recovered_half_states
from rocketpy.processes.boot.table_check import check_tables
from rocketpy.reactor.worker_messages import decode_put_result, encode_put
from rocketpy.remoting.fast_path import MessageToPut, PutResult
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.fake_fast_path import FakeFastPath
from tests.support.fast_path import FastPath
from tests.support.shared_memory import remove_half_states
from tests.support.slave_rig import FILE_SIZE, SlaveRig
from tests.support.slow_path import SlowPathRig
from tests.support.store_writer import small_config

HOUR_MS = 3_600_000
BUSY = 2  # SYSTEM_BUSY
OWN_TOPICS = (names.SCHEDULE_TOPIC, names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC)


class HourLater(MessageStore):
    """Each delayed message is due."""

    def clock_ms(self) -> int:
        return super().clock_ms() + HOUR_MS


class DirectFastPath(FakeFastPath):
    """Stores what the manager puts, as long as `room` lasts, and knows the topics that it tells."""

    def __init__(self, path: FastPath, states: SharedHalfStates) -> None:
        super().__init__()
        self._path = path
        self.half_states = states  # type: ignore[assignment]
        self.room = 0

    def topic_changed(self, topic: str, *, write_queue_nums: int, **settings: object) -> None:
        self._path.add_topic(topic, write_queue_nums)

    async def put(self, message: MessageToPut) -> PutResult:
        await trio.lowlevel.checkpoint()
        if not self.room:
            return PutResult(BUSY)
        self.room -= 1
        return self.put_now(message)

    def put_now(self, message: MessageToPut) -> PutResult:
        self._path.put(encode_put(message, 1, 0))
        self._path.turn()
        (record,) = [record for kind, record in self._path.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
        return decode_put_result(record, ("127.0.0.1", 10911))[1]


@attrs.define(eq=False)
class Broker:
    """A broker on the store in `root`."""

    root: Path
    path: FastPath
    control: ControlBlock
    store: MessageStore
    states: SharedHalfStates
    fast_path: DirectFastPath
    rig: SlowPathRig

    @classmethod
    def open(cls, root: Path, *, is_slave: bool) -> Broker:
        role = BrokerRole.SLAVE if is_slave else BrokerRole.ASYNC_MASTER
        opened = open_store(small_config(root, message_index_enable=False, broker_role=role))
        check_tables(opened)
        states = recovered_half_states(opened)
        config = opened.config
        close_store(opened, clean=False)
        sizes = {"file_size": FILE_SIZE, "cq_file_size": config.mapped_file_size_consume_queue}
        path = SlaveRig(root, **sizes) if is_slave else FastPath(root, half_states=states.pointer, **sizes)
        if not is_slave:
            for topic in OWN_TOPICS:
                path.add_topic(topic, 2, flags=lib.RP_TOPIC_NO_SEND)
        path.tables_end()  # and what the log has more than the queues is dispatched
        control = ControlBlock(root / "control", FILE_SIZE)
        store = HourLater(config, control)
        fast_path = DirectFastPath(path, states)
        number = {"broker_id": 1} if is_slave else {}
        rig = SlowPathRig(root, store=store, fast_path=fast_path, broker_role=role, **number)
        rig.broker.load()
        if not is_slave:
            trio.run(rig.broker.topics_of_log.adopt)
            # as `announce` does, without the topics of each broker, which have a thousand queues
            topics = rig.services.topics
            for name, topic_config in topics.topics.items():
                if name not in topics.system_topics and name not in OWN_TOPICS:
                    path.add_topic(name, topic_config.write_queue_nums)
        return cls(root, path, control, store, states, fast_path, rig)

    def close(self) -> None:
        """All processes end at once."""
        self.store.close()
        self.control.close()
        self.path.close()
        remove_half_states(self.states.pointer)

    @property
    def end(self) -> int:
        return int(self.control.published_phy_offset)

    def log(self, begin: int, end: int) -> bytes:
        pieces = []
        while begin < end:
            size = min(end - begin, FILE_SIZE - begin % FILE_SIZE)
            pieces.append(FastPath.log(self.path, begin, size))
            begin += size
        return b"".join(pieces)

    def records(self) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        begin = self.control.min_phy_offset  # a power failure may take the first files
        for start in range(begin, self.end, FILE_SIZE):
            found += decode_records(self.log(start, min(start + FILE_SIZE, self.end)), start, check_crc=True)
        return found

    def known_below(self) -> int:
        """Up to where in the log a slave's table knows all topics. The only place of this model that knows where a
        broker has that position."""
        return self.rig.services.topics.position.below
