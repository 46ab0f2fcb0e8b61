"""The next log file: when it is mostly needed, whole, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.store.files import file_name
from rocketpy.store.recovery.lifecycle import OpenedStore
from rocketpy.store.services.housekeeping import allocate_ahead
from tests.support.store_writer import StoreWriter


def test_allocation_waits_until_the_file_is_mostly_full(writer: StoreWriter, opened: OpenedStore) -> None:
    """Holds: store, mapped files of fixed size."""
    directory = opened.paths.commitlog
    assert allocate_ahead(opened.control, directory) == 0  # the very first
    writer.put(body=b"x" * 8_000)
    assert allocate_ahead(opened.control, directory) is None
    writer.put(body=b"x" * 2_000)
    assert allocate_ahead(opened.control, directory) == 16_384
    assert allocate_ahead(opened.control, directory) == 16_384  # found, not made again
    assert (directory / file_name(16_384)).stat().st_size == 16_384
    for _ in range(2):
        writer.put(body=b"x" * 7_000)
    assert len(list(directory.iterdir())) == 2


def test_allocation_that_cannot_be_is_an_error(opened: OpenedStore, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(StoreError, match="cannot create the next file"):
        allocate_ahead(opened.control, blocked)
