"""A slave's log, crashed while it takes what its master sends.

`python -m tests.support.crash.slave --seed 1 --crashes 1000`

A life is one store before the send worker of a slave, and a master's log, which may begin later than 0. Its bytes come
in streams of chunks; now and then one is damaged, a stream ends anywhere, or the worker is restarted. At chosen points
it is looked at what a crash would leave: the send worker dies alone, all processes die, or the power fails. What is
published then is the master's log up to the end of a record, with all that was acknowledged; a new stream from there
on is accepted, and makes both logs equal.
"""

from __future__ import annotations

from tests.support.crash import core

core.load()  # before anything of rocketpy

import sys  # noqa: E402  the core comes first
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from rocketpy.message.record import encode_blank  # noqa: E402
from rocketpy.store.recovery.lifecycle import close_store, open_store  # noqa: E402
from tests.support.crash.seeded import SeededLife, run_lives  # noqa: E402
from tests.support.log_images import record  # noqa: E402
from tests.support.slave_rig import FILE_SIZE, SlaveRig  # noqa: E402
from tests.support.store_writer import small_config  # noqa: E402

FILES = 3
CHUNKS = (1, 30, 500, 500, 3000, 9000)
SHARES = {"append.": 0.05, "receive.": 0.2, "begin.": 1.0}
QUEUES = 3
MAGIC_AT = 4  # in a record; a flaw there is always found


class MasterLog:
    """What the master has: from `start` on whole files, and a part of one. `ends`: of its records and blanks."""

    def __init__(self, start: int, body: int) -> None:
        self.start, self.data = start, b""
        self.ends = [start]
        offsets = [start] * QUEUES  # a log that begins later has queues that do
        number = 0
        while (at := self.end) < start + FILES * FILE_SIZE - 3000:
            message = record("T", bytes([number % 251]) * (1 + number * 37 % body), queue_id=number % QUEUES)
            room = FILE_SIZE - at % FILE_SIZE
            if message.size + 8 > room:
                self._add(encode_blank(room).ljust(room, b"\0"))
                continue
            self._add(message.encode(phy_offset=at, queue_offset=offsets[number % QUEUES]))
            offsets[number % QUEUES] += 1
            number += 1

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def _add(self, image: bytes) -> None:
        self.data += image
        self.ends.append(self.end)

    def slice(self, begin: int, end: int) -> bytes:
        return self.data[begin - self.start : end - self.start]


class Life(SeededLife):
    """A slave that follows."""

    operations_max = 60
    kinds_of_crash = ("send worker", "death", "power")
    points = ("receive.", "begin.", "append.", "new_file.")
    written_back = 0.05

    def open(self) -> Any:
        self._master = MasterLog(self.rng.choice((0, FILE_SIZE, 7 * FILE_SIZE)), self.rng.choice((100, 2000, 5000)))
        close_store(open_store(_config(self.root)), clean=False)
        self._rig = _rig(self.root)
        self._begin_stream(self._rig)
        return self._rig.control

    def close(self) -> None:
        self._rig.close()

    def share(self, point: str) -> float:
        return next((share for begin, share in SHARES.items() if point.startswith(begin)), 0.3)

    def operate(self) -> None:
        rng, rig = self.rng, self._rig
        what = rng.random()
        if what < 0.1:
            self.flush()
        elif what < 0.2:
            self._begin_stream(rig)
        elif what < 0.25:
            rig.restart_send()
        else:
            self._send_chunk(rng.choice(CHUNKS), is_damaged=what > 0.97)
        if rig.refused == rig.stream:
            self._begin_stream(rig)

    def _begin_stream(self, rig: SlaveRig) -> None:
        rig.begin_stream()
        self._next = max(self._master.start, rig.published)

    def _send_chunk(self, size: int, *, is_damaged: bool) -> None:
        data = self._master.slice(self._next, min(self._next + size, self._master.end))
        if not data:
            return
        if is_damaged and self._next in self._master.ends:
            data = data[:MAGIC_AT] + bytes(byte ^ 1 for byte in data[MAGIC_AT : MAGIC_AT + 1]) + data[MAGIC_AT + 1 :]
        self._rig.chunk(self._next, data)
        self._next += len(data)
        self._rig.turn()

    # --- aftermath ---

    def look(self, kind: str, root: Path) -> None:
        control = self._rig.control
        certain = int(control.durable_phy_offset if kind == "power" else control.published_phy_offset)
        disk = self.disk.lose_power(root, self.rng) if kind == "power" else self.disk.survive(root)
        if kind != "send worker":
            close_store(open_store(_config(disk.root)), clean=False)
        rig = _rig(disk.root)
        try:
            self._validate(rig, certain)
        finally:
            rig.close()

    def _validate(self, rig: SlaveRig, certain: int) -> None:
        master, end = self._master, rig.published
        assert end >= certain or certain == master.start, f"the log ends at {end}, {certain} was acknowledged"
        assert end in master.ends or end == 0, f"the log ends at {end}, inside of a record"
        rig.begin_stream()
        position = max(master.start, end)
        while position < master.end:
            rig.chunk(position, master.slice(position, position + 4000))
            rig.turn()
            position += 4000
        assert not rig.refused, f"a stream from {end} on is refused at {rig.published}"
        assert rig.published == master.end
        begin = int(rig.control.min_phy_offset)
        # The name of the first file may be lost with the power while nothing in it is certain.
        assert begin == master.start or (begin % FILE_SIZE == 0 and certain <= begin), f"the log begins at {begin}"
        log = b"".join(rig.log_file(start) for start in range(begin, master.end, FILE_SIZE))
        expected = master.slice(begin, master.end)
        differing = [begin + i for i, pair in enumerate(zip(log, expected, strict=False)) if pair[0] != pair[1]]
        assert not differing, f"the logs differ from {differing[0]} to {differing[-1]}, {end} was published"
        assert not any(log[len(expected) :]), "something stands behind the end of the log"


def _config(root: Path) -> Any:
    return small_config(root, message_index_enable=False)


def _rig(root: Path) -> SlaveRig:
    config = small_config(root)
    rig = SlaveRig(root, cq_file_size=config.mapped_file_size_consume_queue)
    rig.tables_end()
    return rig


if __name__ == "__main__":
    sys.exit(run_lives(Life))
