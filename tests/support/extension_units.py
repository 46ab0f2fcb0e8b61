"""Stores with extension units, and what is in their files."""

from __future__ import annotations

from pathlib import Path

from rocketpy.config import MessageStoreConfig
from rocketpy.message.tags import string_hash
from rocketpy.store.files import file_name
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter

NOW = 1_700_000_000_000
EXT_FILE_SIZE = 1_024  # 51 units, and four bytes for the end
UNITS_PER_FILE = 51
TAG_A = string_hash("TagA")
JAVA_UNIT = bytes.fromhex("0022000000000027a8070000018bcfe56800000e0000020000000000400000000002")


def ext_path(config: MessageStoreConfig, number: int = 0, topic: str = "T", queue_id: int = 0) -> Path:
    directory = Path(config.store_path_root_dir) / "consumequeue_ext" / topic / str(queue_id)
    return directory / file_name(number * EXT_FILE_SIZE)


def ext_units(config: MessageStoreConfig, topic: str = "T", queue_id: int = 0) -> list[int]:
    """Tags codes of all extension units, as a walk finds them."""
    codes = []
    for path in sorted(ext_path(config, 0, topic, queue_id).parent.iterdir()):
        data, at = path.read_bytes(), 0
        assert len(data) == EXT_FILE_SIZE
        while (size := int.from_bytes(data[at : at + 2], "big", signed=True)) > 0:
            codes.append(int.from_bytes(data[at + 2 : at + 10], "big", signed=True))
            at += size
        assert not any(data[at + 2 :]), "something lies behind the end"
    return codes


def put(writer: StoreWriter, tag: str, *, topic: str = "T", dispatch: bool = True) -> None:
    writer.put(topic, 0, b"", b"TAGS\x01" + tag.encode(), store_timestamp_ms=NOW, dispatch=dispatch)


def tags_seen(opened: OpenedStore, tag: str, topic: str = "T") -> list[int]:
    """Queue offsets of the messages that a subscription to one tag gets."""
    store, offsets, at = MessageStore(opened.config, opened.control), [], store_min(opened, topic)
    while at < store.max_offset(topic, 0):
        result = store.get_message(topic, 0, at, 1, {string_hash(tag)})
        if result.records:
            offsets.append(result.next_begin_offset - 1)
        at = result.next_begin_offset
    store.close()
    return offsets


def store_min(opened: OpenedStore, topic: str) -> int:
    queue = opened.control.queue(topic, 0)
    return 0 if queue is None else int(queue.min_offset)


def reopen(opened: OpenedStore, config: MessageStoreConfig | None = None, *, clean: bool = False) -> OpenedStore:
    close_store(opened, clean=clean)
    return open_store(config or opened.config)
