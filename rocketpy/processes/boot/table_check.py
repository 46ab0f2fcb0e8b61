"""Holds saved tables to the log when the store is opened, before the workers are forked (broker/files/log_marks.py).

A table that presumes messages which the log does not have (after a power failure, a cut, a change of master) is lowered
in its file to what the log supports: progress to its newest mark that the log has, a committed offset to the end of its
queue. The position up to which the table of topics knows all topics is lowered in its own file. The check is repeated
if it is interrupted: nothing is appended to the log before it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from rocketpy.atomic_file import write_atomically
from rocketpy.broker.files import json_file
from rocketpy.broker.files.log_marks import LogExtent, LogMarks
from rocketpy.broker.files.position_file import PositionFile
from rocketpy.broker.managers.topics_position import position_at_end, position_path, saved_position
from rocketpy.broker.transactions.transaction_progress import FILE_NAME as TRANSACTION_PROGRESS
from rocketpy.errors import StoreError
from rocketpy.failover.rules.epochs import EpochsInvalid
from rocketpy.remoting.bodies.offset import PHY_OFFSET, ConsumerOffsetSerializeWrapper, MarkedOffsets
from rocketpy.remoting.json_writer import pretty_pieces
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.recovery.lifecycle import OpenedStore
from rocketpy.store.recovery.positions import RecoveryKind

MARKED_FILES = ("delayOffset.json", TRANSACTION_PROGRESS)
"""Files in `config` whose content is a MarkedOffsets."""

OFFSETS_FILE = "consumerOffset.json"
TOPICS_FILE = "topics.json"
logger = logging.getLogger(__name__)


def check_tables(opened: OpenedStore) -> None:
    """Lower the tables that presume more than the log has.

    Raises:
        ConfigError: a file is damaged. StoreError: one cannot be read or written.
    """
    config, extent = opened.paths.root / "config", log_extent(opened)
    try:
        for name in MARKED_FILES:
            check_marked(config / name, extent)
        check_offsets(config / OFFSETS_FILE, extent.end, opened.control, opened.report.kind)
        check_topics(config / TOPICS_FILE, extent.end, is_slave=opened.config.is_slave)
    except OSError as exc:
        raise StoreError(f"cannot hold the tables in {config} to the log: {exc}") from exc


def log_extent(opened: OpenedStore) -> LogExtent:
    """Return the log as it was opened, with the epochs of a member."""
    end = int(opened.control.published_phy_offset)
    try:
        epochs = EpochFile(opened.paths.root).read()
    except EpochsInvalid:  # the member halts
        return LogExtent(end)
    return LogExtent(end, {entry.number: epochs.end_of(entry.number, end) for entry in epochs.entries})


def check_marked(path: Path, extent: LogExtent) -> None:
    """Remove the marks of a progress table that presume more than the log has.

    Raises:
        ConfigError: the file is damaged. OSError: it cannot be read or written.
    """
    saved = json_file.load_as(path, MarkedOffsets)
    marks = LogMarks.of(saved)
    newest = marks.newest
    if newest is None or not marks.keep(extent):
        return
    lowered = marks.to_save(extent.end)
    _replace(path, pretty_pieces(lowered))
    logger.warning(
        "lowered %s to what the log had at %d: it presumed the log up to %d, which ends at %d",
        path.name,
        lowered.phy_offset,
        newest.phy_offset,
        extent.end,
    )


def check_offsets(path: Path, end: int, control: ControlBlock, kind: RecoveryKind) -> None:
    """Lower the committed offsets that are beyond the ends of their queues, if the log may have lost its end.

    The next message of a queue gets the queue's next offset, and a group beyond that would pass over the message. The
    file may be large: it is read if the position at its end is beyond the log. If the log was not simply trusted, it is
    read as well if the log has nothing below that position, because a power failure may have taken its first files, or
    if it has no position (of a Java broker).

    Raises:
        ConfigError: the file is damaged. OSError: it cannot be read or written.
    """
    position = position_at_end(path) if path.exists() else position_at_end(Path(f"{path}.bak"))
    is_supported = is_trusted = kind is RecoveryKind.TRUSTED
    if position is not None:
        is_supported = position <= end and (is_trusted or control.min_phy_offset < position)
    if is_supported:
        return
    saved = json_file.load_as(path, ConsumerOffsetSerializeWrapper)
    if saved is None:
        return
    ends = {(queue.topic, queue.queue_id): queue.next_offset for queue in control.queues()}
    lowered = 0
    for key, queues in saved.offset_table.items():
        topic = key.partition("@")[0]
        beyond = {queue_id: ends.get((topic, queue_id), 0) for queue_id in queues}
        beyond = {queue_id: most for queue_id, most in beyond.items() if queues[queue_id] > most}
        queues.update(beyond)
        lowered += len(beyond)
    if lowered or position is not None:
        _replace(path, pretty_pieces({"offsetTable": saved.offset_table, PHY_OFFSET: end}))
    if lowered:
        logger.warning(
            "lowered committed offsets of %s to the ends of their queues: %d were beyond, because the log lost its end "
            "(now at %d)",
            path.name,
            lowered,
            end,
        )


def check_topics(path: Path, end: int, *, is_slave: bool = True) -> None:
    """Lower the position up to which a table of topics knows all topics to the end of the log, in its position file.

    A table without a position, or no table, begins with the end of the log: later records may be of topics that it
    does not have. The file is made here and overwritten in place later, which works on a full disk.

    Raises:
        OSError: a file cannot be read, or a slave's position cannot be lowered. A master serves without.
    """
    table, position = saved_position(path)
    slots = PositionFile(position_path(path))
    if position is not None and position <= end and slots.path.exists():
        return
    try:
        slots.write(table, end if position is None else min(position, end), sync=True)
    except OSError as exc:
        if is_slave and position is not None and position > end:
            raise
        logger.warning(
            "cannot write %s: %s; after a kill or a power failure delayed messages and half messages for a topic that "
            "was created moments before may be lost",
            slots.path,
            exc,
        )


def _replace(path: Path, pieces: Iterable[str]) -> None:
    """Replace a file, and remove its .bak first, which presumes what the file presumed."""
    Path(f"{path}.bak").unlink(missing_ok=True)
    write_atomically(path, [piece.encode("utf-8", "replace") for piece in pieces], keep_old=False)
