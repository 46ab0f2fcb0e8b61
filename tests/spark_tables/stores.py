"""Stores whose records have any legal fields and are of three days, and the rows that a table must have of a store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketpy.message.compression import decompress_body
from rocketpy.message.host import format_host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord
from rocketpy.spark.columns import TIMES
from rocketpy.spark.jobs.table_archive import ROWS_SCHEMA
from rocketpy.store.inspection.reader import StoreReader
from tests.spark.test_segments import write_log
from tests.support.log_images import BORN_MS, varied_record

TOPICS = ("Orders", "%RETRY%größe|1", "t" * 127)
DAYS = ("2023-11-14", "2023-11-15", "2023-11-16")
DAY_MS = 86_400_000
SEGMENT = 8192  # an archive commits at the end of a file at the earliest
UNCOMMITTED = (0x4, 0xC)  # half messages, and marks of a rollback, in the bits 0xC of sysFlag

Row = Mapping[str, Any]


def make_days(root: Path, count: int, seed: int = 1) -> None:
    """Write a log of `count` records; with a larger count it has the same ones and more behind them, and is longer."""
    rng = random.Random(seed)
    records = [
        attrs.evolve(
            varied_record(rng, number),
            topic=TOPICS[number % len(TOPICS)],
            store_timestamp_ms=BORN_MS + number + DAY_MS * (number // len(TOPICS) % len(DAYS)),
        )
        for number in range(count)
    ]
    write_log(root, records, SEGMENT)


def stored_rows(root: Path, broker: str, topics: Iterable[str] | None = None) -> list[Row]:
    """Return the rows that a table must have, in the order of the log: times in microseconds, bytes as hex digits."""
    chosen = [
        record
        for record in StoreReader(root).records()
        if record.sys_flag & 0xC not in UNCOMMITTED and (topics is None or record.topic in topics)
    ]
    return [_row(record, broker) for record in chosen]


def _row(record: StoredRecord, broker: str) -> Row:
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    offset_id = encode_offset_message_id(record.store_host, record.phy_offset)
    return {
        "topic": record.topic,
        "brokerName": broker,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.phy_offset,
        "msgId": properties.get("UNIQ_KEY", offset_id),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body": decompress_body(record.body, record.sys_flag)[0].hex(),
        "properties": properties,
        "bornTimestamp": _micros(record.born_timestamp_ms),
        "storeTimestamp": _micros(record.store_timestamp_ms),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "storeSize": record.size,
        "bodyCRC": record.body_crc,
        "bornHost": format_host(record.born_host),
        "storeHost": format_host(record.store_host),
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "offsetMsgId": offset_id,
    }


def _micros(time_ms: int) -> int | None:
    """Return None for times that Spark's timestamps cannot hold."""
    return time_ms * 1000 if -62_135_596_800_000 <= time_ms < 253_402_300_800_000 else None


def select(table: str, names: Iterable[str] = tuple(ROWS_SCHEMA.names), where: str = "true") -> str:
    """Return a query whose rows compare with `stored_rows`."""
    columns = [f"unix_micros({name}) AS {name}" if name in TIMES else name for name in names]
    return f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY physicalOffset"
