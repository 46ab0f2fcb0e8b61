"""A read of old units takes from the disk what is read next, too."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rocketpy.bench import cold
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.page_cache import cached_pages, is_in_memory
from tests.support.store_writer import StoreWriter, small_config

TRIES = 50


def takes_nowait(file: Path) -> bool:
    """Return True if the file system says what is in memory."""
    with file.open("rb") as opened:
        try:
            os.preadv(opened.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError as error:
            return error.errno != errno.EOPNOTSUPP
    return True


def test_units_come_with_those_around_them(tmp_path: Path) -> None:
    """Fault: Most random reads waited for the disk twice, one after the other: for their unit and for their message."""
    if is_in_memory(tmp_path):
        pytest.skip("the file system is in memory: no read comes from a disk")
    config = small_config(tmp_path, mapped_file_size_consume_queue=100_000)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for _ in range(3_500):
            writer.put("T", 0, b"x")
    (file,) = (opened.paths.consumequeue / "T" / "0").iterdir()

    def read_cold() -> set[int]:
        cold.drop(opened.paths.consumequeue)
        store = MessageStore(config, opened.control)  # the kernel reads ahead of a descriptor that is used again
        assert len(store.consume_queue_units("T", 0, 3_000, 1)) == 1
        store.close()
        return cached_pages(file)

    # The kernel begins to read a page while it looks whether the page is in memory. If the disk is done by then, that
    # page alone is read.
    around = set(range(8, 16))
    assert any(read_cold() == around for _ in range(TRIES)) or not takes_nowait(file)
    close_store(opened, clean=True)
