"""give_back: removes the entries of deleted queues from the control block, at a start after a clean stop.

An entry of a deleted queue stays while the log or a file has anything of the queue, or a group an offset in its topic:
it tells which records are deleted, and which offset comes next (docs/adr/0030). Without this, entries of topics that
were ever deleted would fill the block, and no topic could be created any more.

The block is written anew and renamed, so a start that is cut short has the old one or the new one.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from pathlib import Path

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib

from ..control_block import QUEUE_DELETED, QUEUES_MAX, ControlBlock
from ..files import Files, StorePaths, translated

logger = logging.getLogger(__name__)

# While a block is emptier than that, a start does not look at its entries.
QUEUES_CROWDED = QUEUES_MAX // 4
TOPICS_CROWDED: int = lib.RP_CONTROL_TOPICS_MAX // 4
OFFSETS = Path("config/consumerOffset.json")
OFFSETS_OF = re.compile(rb'"([^"@]+)@')  # {"topic@group": {"0": 17}}; Java leaves out the quotes of queue ids
LEAST_SHARE = 4  # a fourth of all entries has to go: less is not worth a new block
# Of rp_queue: max_offset, min_offset, max_phy_offset, topic, state, deleted_below
ENTRY = struct.Struct("@8xQQQI8xI8xQ")
assert ENTRY.size == ffi.sizeof("rp_queue")


def give_back(paths: StorePaths, files: Files, commitlog_file_size: int) -> int:
    """Return the number of entries that were removed. Holds the store's lock; nobody has mapped the block."""
    if files.info(paths.control) is None or not _is_crowded(files, paths.control):
        return 0
    made = paths.root / "control.new.0"  # which the next start would remove
    old = ControlBlock(paths.control, commitlog_file_size)
    try:
        gone = _unused(old, paths, files)
        if len(gone) * LEAST_SHARE < old.header.queue_count:
            return 0
        new = ControlBlock(made, commitlog_file_size)
        try:
            _copy(old, new, gone)
            new.sync()
        finally:
            new.close()
        with translated(paths.control, "replace"):
            os.replace(made, paths.control)
        files.sync_directory(paths.root)
    except StoreError as exc:
        logger.info("cannot remove the entries of deleted queues from %s: %s", paths.control, exc)
        made.unlink(missing_ok=True)
        return 0
    finally:
        old.close()
    logger.info("removed the entries of %d deleted queues from %s", len(gone), paths.control)
    return len(gone)


def _is_crowded(files: Files, path: Path) -> bool:
    """Return True if there may be many unused entries, and the positions in the block hold."""
    data = files.read(path, 0, ffi.sizeof("rp_control"))
    if len(data) < ffi.sizeof("rp_control"):
        return False
    header = ffi.from_buffer("rp_control *", data)
    if not lib.rp_control_is_known(header) or not header.clean:
        return False
    is_dispatched = header.dispatched_phy_offset == header.published_phy_offset
    return bool(is_dispatched and (header.queue_count > QUEUES_CROWDED or header.topic_count > TOPICS_CROWDED))


def _unused(block: ControlBlock, paths: StorePaths, files: Files) -> set[int]:
    """Return the indexes of deleted queues that have no records in the log, no files, and no offsets of groups."""
    count, begin, log_end = int(block.header.queue_count), block.min_phy_offset, block.published_phy_offset
    found: set[int] = set()
    if count == 0:
        return found
    consumed = _consumed_topics(paths, files)
    in_use: dict[int, bool] = {}  # by topic
    entries = ffi.buffer(lib.rp_control_queue(block.block, 0), count * ENTRY.size)
    for index, (max_offset, min_offset, end, topic, state, below) in enumerate(ENTRY.iter_unpack(entries)):
        if state != QUEUE_DELETED or min_offset != max_offset or end > begin or below > log_end:
            continue  # a slave may be about to receive records of a topic that its master has deleted
        if topic not in in_use:
            name = block.topic_of(lib.rp_control_queue(block.block, index))
            places = (directory / os.fsdecode(name) for directory in (paths.consumequeue, paths.consumequeue_ext))
            in_use[topic] = name in consumed or any(files.info(place) is not None for place in places)
        if not in_use[topic]:
            found.add(index)
    return found


def _consumed_topics(paths: StorePaths, files: Files) -> set[bytes]:
    """Return the topics in which groups have offsets. A queue that began at 0 again would not reach them at once, and
    their consumers would miss its first messages."""
    found: set[bytes] = set()
    for path in (paths.root / OFFSETS, paths.root / f"{OFFSETS}.bak"):
        info = files.info(path)
        if info is not None:
            found.update(OFFSETS_OF.findall(files.read(path, 0, info.size)))
    return found


def _copy(old: ControlBlock, new: ControlBlock, gone: set[int]) -> None:
    names: dict[int, bytes] = {}
    for index, entry in enumerate(old.entries()):
        if index in gone:
            continue
        name = names.get(entry.topic) or names.setdefault(entry.topic, old.topic_of(entry))
        copy = new.add_queue(name, entry.queue_id)
        topic = copy.topic
        ffi.memmove(copy, entry, ffi.sizeof("rp_queue"))
        copy.topic = topic
    own = new.header.queue_count, new.header.topic_count, new.header.hash_seed
    ffi.memmove(new.header, old.header, ffi.sizeof("rp_control"))
    new.header.queue_count, new.header.topic_count, new.header.hash_seed = own
