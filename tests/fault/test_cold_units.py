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
    cold.drop(opened.paths.consumequeue)
    store = MessageStore(config, opened.control)
    assert len(store.consume_queue_units("T", 0, 3_000, 1)) == 1
    assert cached_pages(file) == set(range(8, 16)) or not takes_nowait(file)
    store.close()
    close_store(opened, clean=True)
