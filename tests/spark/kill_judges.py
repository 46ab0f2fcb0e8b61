"""Judges of kill_rounds.py: DuckDB reads what streams and archives have written; their logs tell what they left out."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import duckdb

from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import Bounds

Place = tuple[str, int]
"""A topic and the number of a queue: there is one broker."""

RANGE = re.compile(
    r"queue (\d+) of topic (\w+) on \S+: \d+ of the offsets (\d+) to (\d+) "
    r"(?:are not there any more|were deleted before they were archived)"
)
COUNT = re.compile(r"(\w+)@\S+:(\d+): (\d+) offsets were not there any more")


def files_of_sink(out: Path) -> list[str]:
    """The files that the log of Spark's file sink names."""
    logs = (out / "data/_spark_metadata").glob("[0-9]*")
    lines = {line for log in logs for line in log.read_text().splitlines()[1:]}
    return sorted({urlsplit(json.loads(line)["path"]).path for line in lines})


def last_batch_of_sink(out: Path) -> int:
    """The newest batch that Spark's file sink has. A restart does not write it again, and commits it unseen."""
    logs = (out / "data/_spark_metadata").glob("[0-9]*")
    return max((int(log.name.removesuffix(".compact")) for log in logs), default=-1)


def stored_rows(files: Iterable[str]) -> list[tuple[str, int, int, int]]:
    """(topic, queue, queue offset, phy offset) of each row, as DuckDB reads the files; a body begins with its topic."""
    if not (names := list(files)):
        return []
    columns = "split_part(decode(body), ' ', 1), queueId, queueOffset, physicalOffset"
    query = f"SELECT {columns} FROM read_parquet({names}, hive_partitioning = false)"
    return duckdb.sql(query).fetchall()


def stored_numbers(files: Iterable[str], topic: str) -> dict[tuple[int, int], int]:
    """Return the number that is the second word of each body, by queue and queue offset."""
    if not (names := list(files)):
        return {}
    query = "SELECT queueId, queueOffset, CAST(split_part(decode(body), ' ', 2) AS INT) "
    query += f"FROM read_parquet({names}, hive_partitioning = false) WHERE split_part(decode(body), ' ', 1) = '{topic}'"
    return {(queue, offset): number for queue, offset, number in duckdb.sql(query).fetchall()}


def check_acknowledged(
    acknowledged: Mapping[tuple[int, int], int],
    numbers: Mapping[tuple[int, int], int],
    ends: Mapping[int, int],
    what: str,
) -> None:
    """Check that acknowledged messages are where the broker has said; `check_rows` asks for places without rows.

    Args:
        acknowledged: a message's number by queue and queue offset, of one topic. numbers: those of a reader's rows.
        ends: the offset after the last message of each queue.
    Raises: AssertionError.
    """
    gone = [place for place in acknowledged if place[1] >= ends.get(place[0], 0)]
    assert not gone, f"acknowledged, and behind the ends {dict(ends)} of the queues: {sorted(gone)[:5]} of {len(gone)}"
    others = [(at, want, numbers[at]) for at, want in acknowledged.items() if numbers.get(at, want) != want]
    assert not others, f"{what}: (queue, offset), acknowledged and found: {sorted(others)[:5]} of {len(others)}"


@attrs.define
class Reports:
    """What logs say of messages that are not there."""

    ranges: dict[Place, list[tuple[int, int]]] = attrs.field(factory=lambda: defaultdict(list))
    counts: Counter[Place] = attrs.field(factory=Counter)

    @classmethod
    def of(cls, logs: Iterable[Path]) -> Reports:
        reports = cls()
        for log in logs:
            text = log.read_text(errors="replace")
            for queue, topic, begin, end in RANGE.findall(text):
                reports.ranges[topic, int(queue)].append((int(begin), int(end)))
            for topic, queue, count in COUNT.findall(text):
                reports.counts[topic, int(queue)] += int(count)
        return reports

    def check(self, place: Place, missing: Iterable[int], what: str) -> None:
        """Raises AssertionError unless a line tells of each of these offsets."""
        untold = [at for at in missing if not any(begin <= at < end for begin, end in self.ranges[place])]
        told = self.counts[place]
        assert len(untold) <= told, f"{what}, {place}: missing, and logged for {told} offsets only: {untold[:5]}"


def check_rows(
    rows: Iterable[tuple[str, int, int, int]],
    bounds: Mapping[MessageQueue, Bounds],
    reports: Reports,
    what: str,
    *,
    is_whole: bool = False,
) -> Counter[Place]:
    """Check that messages are there once, and that only those are missing that the broker has deleted.

    Args:
        is_whole: also the last message that the broker has must be there.
    Returns: the number of offsets that are missing in each queue, because of retention.
    Raises: AssertionError.
    """
    offsets: dict[Place, list[int]] = defaultdict(list)
    records = Counter[int]()
    for topic, queue, offset, record in rows:
        offsets[topic, queue].append(offset)
        records[record] += 1
    twice = [record for record, count in records.items() if count > 1]
    assert not twice, f"{what}: records that are there twice: {twice[:5]}"
    lost = Counter[Place]()
    for place, found in offsets.items():
        doubled = [offset for offset, count in Counter(found).items() if count > 1]
        assert not doubled, f"{what}, {place}: twice: {doubled[:5]}"
    there = {(queue.topic, queue.queue_id): bound for queue, bound in bounds.items()}
    for place in there | offsets:
        have, bound = set(offsets[place]), there.get(place)
        first = bound.min_offset if bound is not None else 0
        end = bound.max_offset if is_whole and bound is not None else max(have, default=-1) + 1
        missing = [offset for offset in range(end) if offset not in have]
        if bound is not None:
            skipped = [offset for offset in missing if offset >= first]
            assert not skipped, f"{what}, {place}: missing, and the broker has them: {skipped[:5]} of {len(skipped)}"
        reports.check(place, missing, what)
        lost[place] += len(missing)
    return +lost
