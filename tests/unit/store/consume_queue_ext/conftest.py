"""A store with extension units."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from tests.support.extension_units import EXT_FILE_SIZE
from tests.support.store_writer import small_config


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    return small_config(
        tmp_path / "store", enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=EXT_FILE_SIZE
    )
