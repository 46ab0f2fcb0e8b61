"""A store directory as text: records, units, index entries, files and state, one line each, always in the same form.

Used by `rocketpy store dump` and by the golden scripts in tests/unit/store/scripts. Read-only, on any 4.x directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from rocketpy.message import sys_flag as flags
from rocketpy.message.host import format_host
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord

from ..formats.consume_queue_ext import ExtUnit, is_ext_address, real_offset
from ..formats.index_file import IndexHeader
from ..formats.unit import BLANK_SIZE, ConsumeQueueUnit
from .reader import Damage, IndexEntry, QueueDirectory, StoreReader
from .state_files import StoreState, read_state
from .verify import StoreStats, VerifyReport, count_store, verify_store

TRANSACTION_KINDS = ("", "prepared", "commit", "rollback")


class StoreDump(StoreReader):
    """A StoreReader with the sums, the check and the state that `rocketpy store` prints."""

    def stats(self) -> StoreStats:
        return count_store(self)

    def verify(self) -> VerifyReport:
        return verify_store(self)

    def state(self) -> StoreState:
        return read_state(self.files, self.paths)


def describe_record(record: StoredRecord) -> str:
    """One line: log offset, queue, times, flags, body size, properties."""
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    text = " ".join(f"{name}={value}" for name, value in properties.items())
    return (
        f"{record.phy_offset:>12} {record.size:>7} {record.topic}/{record.queue_id}@{record.queue_offset} "
        f"stored={record.store_timestamp_ms} flags=0x{record.sys_flag & 0xFFFFFFFF:x} body={len(record.body)} {text}"
    ).rstrip()


def describe_damage(damage: Damage) -> str:
    return f"{damage.phy_offset:>12} {damage.size:>7} DAMAGED: {damage.reason}"


def describe_unit(offset: int, unit: ConsumeQueueUnit, ext: ExtUnit | None = None) -> str:
    """One line; `ext`: the unit's extension, if it has one."""
    if unit.size == BLANK_SIZE:
        return f"{offset:>12} blank"
    text = f"{offset:>12} at {unit.phy_offset:>14} size {unit.size:>8} tags code"
    if not is_ext_address(unit.tags_code):
        return f"{text} {unit.tags_code}"
    place = f"extension at {real_offset(unit.tags_code)}"
    if ext is None:
        return f"{text} lost ({place})"
    bits = f" filter bits {ext.bitmap.hex()}" if ext.bitmap else ""
    return f"{text} {ext.tags_code} ({place}: stored={ext.store_timestamp_ms}{bits})"


def describe_entry(entry: IndexEntry) -> str:
    return (
        f"{entry.number:>12} hash {entry.key_hash:>10} at {entry.phy_offset:>14} time {entry.time_ms} "
        f"previous {entry.previous}"
    )


def record_fields(record: StoredRecord) -> dict[str, Any]:
    """A record for JSON."""
    transaction = TRANSACTION_KINDS[(record.sys_flag & flags.TRANSACTION_MASK) >> 2]
    return {
        "phyOffset": record.phy_offset,
        "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "transaction": transaction,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": format_host(record.born_host),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": format_host(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCrc": record.body_crc,
        "bodySize": len(record.body),
        "properties": decode_properties(record.properties.decode("utf-8", "replace")),
    }


def damage_fields(damage: Damage) -> dict[str, Any]:
    return {"phyOffset": damage.phy_offset, "size": damage.size, "damage": damage.reason}


def unit_fields(
    queue: QueueDirectory, offset: int, unit: ConsumeQueueUnit, ext: ExtUnit | None = None
) -> dict[str, Any]:
    """The fields of a unit for JSON."""
    fields = {
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "phyOffset": unit.phy_offset,
        "size": unit.size,
        "tagsCode": unit.tags_code,
    }
    if ext is None:
        return fields
    extension = {"tagsCode": ext.tags_code, "storeTimestamp": ext.store_timestamp_ms, "bitMap": ext.bitmap.hex()}
    return fields | {"extension": extension}


def entry_fields(path: Path, entry: IndexEntry) -> dict[str, Any]:
    return {
        "file": path.name,
        "number": entry.number,
        "hash": entry.key_hash,
        "phyOffset": entry.phy_offset,
        "time": entry.time_ms,
        "previous": entry.previous,
    }


def header_line(path: Path, header: IndexHeader) -> str:
    return (
        f"{path.name}: {header.index_count - 1} units in {header.slot_count} slots, "
        f"time {header.begin_timestamp_ms} to {header.end_timestamp_ms}, "
        f"log {header.begin_phy_offset} to {header.end_phy_offset}"
    )


def state_fields(state: StoreState) -> dict[str, Any]:
    """checkpoint, abort, lock and control, for JSON and tables; missing files are null."""
    return {
        "checkpoint": attrs.asdict(state.checkpoint) if state.checkpoint else None,
        "abort": state.has_abort,
        "inUseBy": state.in_use_by,
        "control": attrs.asdict(state.control) if state.control else None,
    }
