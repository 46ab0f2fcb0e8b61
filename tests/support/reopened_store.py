"""Stores that are filled, ended in one way or another, and opened again.

Every case ends in the same check: what was acknowledged is there, whole, once, and queues go on where they were.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import ffi
from rocketpy.remoting.work import result_of
from rocketpy.store.files import DiskFiles, StorePaths, numbered_files
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import Put, StoreWriter

TOPICS = (("A", 0), ("A", 1), ("B", 7))
Filled = dict[tuple[str, int], list[Put]]


def fill(opened: OpenedStore, count: int = 150, *, dispatch_until: int | None = None) -> Filled:
    """Messages over three queues and many files; the last ones are not dispatched if so wished."""
    puts: Filled = {queue: [] for queue in TOPICS}
    with StoreWriter(opened.config, opened.control) as writer:
        for i in range(count):
            topic, queue_id = TOPICS[i % len(TOPICS)]
            properties = b"KEYS\x01key%d\x02TAGS\x01Tag" % i
            dispatched = dispatch_until is None or i < dispatch_until
            put = writer.put(topic, queue_id, b"%d" % i * 50, properties, dispatch=dispatched)
            puts[topic, queue_id].append(put)
    return puts


def check(opened: OpenedStore, puts: Filled, *, with_index: bool = True) -> None:
    """Everything is there; and one more message gets the next offset of its queue."""
    store = MessageStore(opened.config, opened.control)
    with StoreWriter(opened.config, opened.control) as writer:
        writer.dispatch.run_to_end()  # as the store worker does
        for (topic, queue_id), expected in puts.items():
            found: list[bytes] = []
            while len(found) < len(expected):
                result = store.get_message(topic, queue_id, len(found), 32)
                assert result.records, (topic, queue_id, len(found), result.status)
                found += result.records
            assert found == [put.image for put in expected]
            assert store.max_offset(topic, queue_id) == len(expected)
            assert writer.put(topic, queue_id).queue_offset == len(expected)
            assert store.max_offset(topic, queue_id) == len(expected) + 1
            if with_index and expected:
                key = f"key{TOPICS.index((topic, queue_id)) + 3 * (len(expected) - 1)}"
                assert expected[-1].image in result_of(store.message_query(topic, key, 64, 0, 1 << 60)).records
    store.close()


def another_boot(paths: StorePaths) -> None:
    """As if the machine had gone down: the boot id (16 bytes at 24) is another one."""
    with paths.control.open("r+b") as file:
        file.seek(24)
        file.write(bytes(16))


def lose_log_from(root: Path, file_size: int, end: int) -> None:
    """Leave the store at `root`, whose broker is dead, as a power failure of the machine does.

    Its log is on the disk up to `end`. Consume queues and the tables in `config` were written back later, as a kernel
    may do.
    """
    paths = StorePaths.of(str(root), str(root / "commitlog"))
    for start in numbered_files(DiskFiles(), paths.commitlog, file_size):
        kept = max(0, end - start)
        if kept < file_size:
            with (paths.commitlog / f"{start:020d}").open("r+b") as file:
                file.truncate(kept)
                file.truncate(file_size)
    with paths.control.open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as page:
        view = ffi.from_buffer(page)
        header = ffi.cast("rp_control *", view)
        header.durable_phy_offset = min(header.durable_phy_offset, end)
        header.units_durable_phy_offset = min(header.units_durable_phy_offset, end)
        del header
        ffi.release(view)
    another_boot(paths)


def kill(opened: OpenedStore) -> None:
    """All processes are gone; the page cache is not."""
    close_store(opened, clean=False)


def reopen(config: MessageStoreConfig) -> OpenedStore:
    return open_store(config)
