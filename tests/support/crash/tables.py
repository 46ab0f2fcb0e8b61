"""Tables beside a log that loses its end: the progress of delay levels, and the committed offsets of groups.

`python -m tests.support.crash.tables --seed 1 --crashes 1000`

A life is a store to which delayed messages and others are put, with the two tables of the manager and their files:
delayed messages are delivered, groups commit, tables are saved and the log is flushed in any order. At chosen points it
is looked at what a crash would leave. After it, and after another opening behind new messages: each delayed message
before the progress of its level has a delivered copy in the log, no offset is beyond its queue, and nothing is taken
back for nothing.
"""

from __future__ import annotations

from tests.support.crash import core

core.load()  # before anything of rocketpy

import sys  # noqa: E402  the core comes first
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import attrs  # noqa: E402
import trio  # noqa: E402

from rocketpy.broker.delays.levels import DelayProgress  # noqa: E402
from rocketpy.broker.managers.consumer_offset import ConsumerOffsetManager  # noqa: E402
from rocketpy.message.names import SCHEDULE_TOPIC  # noqa: E402
from rocketpy.message.record import decode_records  # noqa: E402
from rocketpy.processes.boot.table_check import check_tables  # noqa: E402
from rocketpy.store.reading.message_store import MessageStore  # noqa: E402
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store  # noqa: E402
from tests.support.crash.seeded import SeededLife, run_lives  # noqa: E402
from tests.support.store_writer import StoreWriter, small_config  # noqa: E402

LEVELS = (1, 2)
TOPIC, QUEUES, GROUP = "T", 2, "G"
LOOKED_AT = {"life.config": 0.5, "append.": 0.1}
BODIES = (10, 200, 3000)
LATER = 8  # messages that are put after a crash


@attrs.define(eq=False)
class Broker:
    """A store that is open, with its tables."""

    opened: OpenedStore
    writer: StoreWriter
    store: MessageStore
    delays: DelayProgress
    offsets: ConsumerOffsetManager

    @classmethod
    def open(cls, root: Path) -> Broker:
        opened = open_store(small_config(root, message_index_enable=False))
        check_tables(opened)
        store = MessageStore(opened.config, opened.control)
        config = root / "config"
        delays = DelayProgress(config / "delayOffset.json", len(LEVELS), store)
        offsets = ConsumerOffsetManager(config / "consumerOffset.json", log_end=store.log_end)
        writer = StoreWriter(opened.config, opened.control)
        writer.dispatch.run_to_end()  # as the store worker does
        delays.load()
        offsets.load()
        return cls(opened, writer, store, delays, offsets)

    def close(self) -> None:
        self.writer.close()
        self.store.close()
        close_store(self.opened, clean=False)

    def deliver(self, level: int) -> None:
        """Put the next delayed message of the level into its topic."""
        low, high = self.delays.bounds(level)
        offset = max(low, self.delays.offsets.get(level, low))
        if offset < high:
            self.writer.put(TOPIC, offset % QUEUES, b"copy %d %d " % (level, offset))
            self.delays.advance(level, offset + 1)

    def copies(self) -> set[tuple[int, int]]:
        """The delayed messages of which there is a copy in the log: level, offset."""
        found = set()
        for path in sorted(self.opened.paths.commitlog.iterdir()):
            for record in decode_records(path.read_bytes(), int(path.name), check_crc=True):
                if record.topic == TOPIC and bytes(record.body).startswith(b"copy "):
                    _, level, offset, _ = bytes(record.body).split(b" ", 3)
                    found.add((int(level), int(offset)))
        return found


class Life(SeededLife):
    """One life."""

    operations_max = 60
    kinds_of_crash = ("death", "power", "power")
    points = tuple(LOOKED_AT)
    written_back = 0.2

    def open(self) -> Any:
        self._broker = Broker.open(self.root)
        self._saved: dict[int, int] = {}  # the progress of the last completed save
        return self._broker.opened.control.header

    def close(self) -> None:
        self._broker.close()

    def share(self, point: str) -> float:
        return next(share for begin, share in LOOKED_AT.items() if point.startswith(begin))

    def operate(self) -> None:
        rng, broker = self.rng, self._broker
        match rng.randrange(8):
            case 0:
                self.flush()
            case 1:
                trio.run(broker.offsets.file.save)
            case 2:
                progress = dict(broker.delays.offsets)
                trio.run(broker.delays.file.save)
                self._saved = progress
            case 3:
                queue_id = rng.randrange(QUEUES)
                end = broker.store.max_offset(TOPIC, queue_id)
                broker.offsets.commit(GROUP, TOPIC, queue_id, rng.randrange(end // 2, end + 1))
            case 4 | 5:
                broker.deliver(rng.choice(LEVELS))
            case 6:
                body = b"." * rng.choice(BODIES)
                broker.writer.put(TOPIC, rng.randrange(QUEUES), body)
            case _:
                broker.writer.put(SCHEDULE_TOPIC, rng.choice(LEVELS) - 1, b"delayed")

    def look(self, kind: str, root: Path) -> None:
        saved = dict(self._saved)
        disk = self.disk.lose_power(root, self.rng) if kind == "power" else self.disk.survive(root)
        broker = Broker.open(disk.root)
        self._validate(broker)
        if kind == "death":
            back = [level for level, offset in saved.items() if broker.delays.offsets.get(level, 0) < offset]
            assert not back, f"levels {back} are taken back, though the log has lost nothing"
        begin, offsets = dict(broker.delays.offsets), broker.offsets.query_all(GROUP, TOPIC)
        for _ in range(LATER):  # they get the offsets and positions of what was lost
            broker.writer.put(TOPIC, self.rng.randrange(QUEUES), b"." * self.rng.choice(BODIES))
        broker.close()
        broker = Broker.open(disk.root)
        self._validate(broker)
        assert broker.delays.offsets == begin, "what was lowered has come back"
        assert broker.offsets.query_all(GROUP, TOPIC) == offsets, "offsets that were lowered have come back"
        broker.close()

    def _validate(self, broker: Broker) -> None:
        copies = broker.copies()
        for level, offset in broker.delays.offsets.items():
            missing = [number for number in range(offset) if (level, number) not in copies]
            assert not missing, f"level {level} goes on at {offset}, and {missing} were not delivered"
        for queue_id, offset in broker.offsets.query_all(GROUP, TOPIC).items():
            queue = broker.opened.control.queue(TOPIC, queue_id)
            end = 0 if queue is None else int(queue.next_offset)
            assert offset <= end, f"the group goes on at {offset} in a queue that ends at {end}"


if __name__ == "__main__":
    sys.exit(run_lives(Life))
