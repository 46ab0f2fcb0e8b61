"""A slave's send worker in one process and one thread; the test plays the replicator and the master."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rocketpy.native.core import ffi, lib, shared
from tests.support.fast_path import FastPath
from tests.support.log_images import Image, image_of, record
from tests.support.shared_memory import worker_block

FILE_SIZE = 16_384


class SlaveRig(FastPath):
    """The fast path of a slave, without a replicator."""

    def __init__(self, root: Path, *, file_size: int = FILE_SIZE, **options: Any) -> None:
        self.master_link = shared("rp_master_link", "a test")
        self.stream = 0
        super().__init__(root, file_size=file_size, **options)

    def open_send(self) -> Any:
        if "replicator" not in self.workers:
            self.workers["replicator"] = worker_block(6)
            self.log_ring = self._ring("replicator", "send")
            self.log_writer = lib.rp_ring_writer_open(self.log_ring)
        self.send_options = {"check_crc": 1} | self.send_options
        self.send_options |= {
            "is_slave": 1,
            "master_link": self.master_link,
            "from_replicator": self.log_ring,
            "replicator": self.workers["replicator"],
        }
        return super().open_send()

    @property
    def control(self) -> Any:
        return lib.rp_control_header(self.block)

    @property
    def published(self) -> int:
        return int(self.control.published_phy_offset)

    @property
    def refused(self) -> int:
        """The last stream that was refused."""
        return int(self.master_link.refused_stream)

    def begin_stream(self) -> None:
        self.stream += 1
        self.master_link.stream = self.stream

    def chunk(self, phy_offset: int, data: bytes) -> None:
        """Bytes of the log into the ring."""
        head = bytes(ffi.buffer(ffi.new("rp_msg_log *", {"stream": self.stream, "phy_offset": phy_offset})))
        self._tell(self.log_writer, lib.RP_MSG_LOG, head + data)

    def receive(self, image: Image, sizes: Iterable[int], *, start: int | None = None) -> None:
        """The image from `start` on, by default its begin, in chunks of these sizes, each taken at once."""
        position = image.start if start is None else start
        for size in sizes:
            data = image.data[position - image.start :][:size]
            if not data:
                return
            self.chunk(position, data)
            self.turn()
            position += len(data)

    def restart_send(self) -> None:
        """The send worker dies and another one takes its place."""
        lib.rp_send_close(self.send)
        self.send = self.open_send()

    def log_file(self, start: int) -> bytes:
        """The file of the log that begins at `start`."""
        return (self.root / "commitlog" / f"{start:020d}").read_bytes()

    def log(self) -> bytes:
        """The files of the log, one after the other."""
        return b"".join(path.read_bytes() for path in sorted((self.root / "commitlog").iterdir()))


def log_image(files: int, *, start: int = 0, last: int = 9) -> Image:
    """Whole files of records, then a file with `last` of them."""
    pieces, places = [], []
    for number in range(files + 1):
        is_last = number == files
        at = start + number * FILE_SIZE
        records = [
            record(body=bytes([number, i]) * (300 + 40 * i), queue_id=i % 3) for i in range(last if is_last else 12)
        ]
        image = image_of(records, at, file_size=None if is_last else FILE_SIZE)
        pieces.append(image.data)
        places += [at - start + place for place in image.records]
    return Image(b"".join(pieces), start, tuple(places))


def always(size: int) -> Iterator[int]:
    while True:
        yield size
