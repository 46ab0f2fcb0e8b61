"""Records with the magic of 5.x (V2), which 4.9 takes for the end of the log: read, never written."""

from __future__ import annotations

import shutil
import struct

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import lib
from rocketpy.remoting.work import result_of
from rocketpy.store.files import file_name
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.store_writer import StoreWriter


def as_second_version(image: bytes, topic: bytes, phy_offset: int) -> bytes:
    """The record as 5.x writes it for a topic beyond 127 bytes: two bytes for the topic's size."""
    topic_at = 88 + struct.unpack_from(">i", image, 84)[0]
    behind = image[topic_at + 1 + image[topic_at] :]
    record = bytearray(image[:topic_at] + len(topic).to_bytes(2, "big") + topic + behind)
    struct.pack_into(">iI", record, 0, len(record), 0xDAA320AB)
    struct.pack_into(">q", record, 28, phy_offset)
    return bytes(record)


@pytest.mark.parametrize("topic", [b"A", b"long" * 50, b"x" * 20_000])
def test_they_are_read(config: MessageStoreConfig, topic: bytes) -> None:
    """At the start of a file and in its middle. A topic too long for a queue of ours has none; its messages are found
    by offset and by key, the longest keys included.
    Fault: A 5.x record with a long topic and long keys overran dispatch's buffer and ended the broker."""
    config = attrs.evolve(config, mapped_file_size_commit_log=1 << 17)
    opened = open_store(config)
    paths = opened.paths
    with StoreWriter(config, opened.control) as writer:
        first = writer.put("A", 0, b"one", b"KEYS\x01old")
    second = as_second_version(first.image, topic, 0)[: -len(b"KEYS\x01old") - 2]
    keys = b"k" * 32_000
    images, log = [], b""
    for number, properties in enumerate((b"KEYS\x01new", b"KEYS\x01" + keys, b"KEYS\x01last")):
        image = bytearray(second + len(properties).to_bytes(2, "big") + properties)
        struct.pack_into(">i", image, 0, len(image))
        struct.pack_into(">qq", image, 20, number, len(log))
        images.append(bytes(image))
        log += image
    close_store(opened, clean=True)
    (paths.commitlog / file_name(0)).write_bytes(log + bytes((1 << 17) - len(log)))
    paths.control.unlink()
    shutil.rmtree(paths.index)
    shutil.rmtree(paths.consumequeue)
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES and opened.report.log_end == len(log)
    store = MessageStore(config, opened.control)
    for image, key in zip(images, (b"new", keys, b"last"), strict=True):
        assert store.look_message_by_offset(struct.unpack_from(">q", image, 28)[0]) == image
        assert result_of(store.message_query(topic.decode(), key.decode(), 64, 0, 1 << 60)).records == [image]
    if len(topic) < 128:
        assert store.get_message("A", 0, 0, 32).records == images
    else:
        assert not opened.control.queues() and not any(paths.consumequeue.rglob("0*"))
    store.close()
    close_store(opened, clean=True)
    assert StoreDump(paths.root).verify().problems == []
    damaged = bytes(50) + images[1]
    assert lib.rp_recovery_resync(damaged, len(damaged), len(images[0]) - 50) == 50, "not found behind damage"
