"""Filtered pulls in C: extension units that are read ahead, and the bounds of one look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from tests.support.fast_path import EXT_FILE_SIZE, FastPath
from tests.support.fast_path_requests import pull, ready, records_of, send_v2

EXT_UNIT = 20
UNITS_MAX = 800  # RP_EXAMINED_MIN: units that one pull of up to 800 messages examines


@pytest.fixture
def extended(tmp_path: Path) -> Iterator[FastPath]:
    rig = ready(FastPath(tmp_path, is_extended=True))
    yield rig
    rig.close()


def put(rig: FastPath, tags: list[str]) -> None:
    for tag in tags:
        rig.frame(send_v2(properties=f"TAGS\x01{tag}"))
        rig.turn()
    assert {reply.code for _, reply in rig.answers()} == {0}


def pulled(rig: FastPath, tag: str, offset: int) -> tuple[list[int], int]:
    """The offsets of the messages found, and where the next pull begins."""
    rig.frame(pull(offset, expression=tag))
    rig.turn()
    ((_, reply),) = rig.answers()
    return [record.queue_offset for record in records_of(reply)], int(reply.ext_field("nextBeginOffset") or -1)


def test_each_tag_gets_its_messages_over_all_extension_files(extended: FastPath) -> None:
    count = 3 * EXT_FILE_SIZE // EXT_UNIT
    tags = [f"Tag{number % 7}" for number in range(count)]
    put(extended, tags)
    files = [path for path in (extended.root / "consumequeue_ext").rglob("*") if path.is_file()]
    assert len(files) == 3 + 1  # four bytes of a file stay free
    for tag in sorted(set(tags)):
        found, at = [], 0
        while at < count:
            offsets, at = pulled(extended, tag, at)
            found += offsets
        assert found == [offset for offset in range(count) if tags[offset] == tag]


def test_what_was_read_ahead_is_not_used_for_messages_that_came_later(extended: FastPath) -> None:
    """The bytes behind the last unit are blank when a pull reads them, and those of the next message's unit then."""
    for offset in range(EXT_FILE_SIZE // EXT_UNIT + 10):
        put(extended, ["TagA"])
        assert pulled(extended, "TagB", offset) == ([], offset + 1)


def test_one_pull_examines_a_bounded_number_of_units(tmp_path: Path) -> None:
    rig = ready(FastPath(tmp_path, cq_file_size=40_000))
    put(rig, ["TagA"] * (UNITS_MAX + 10))
    assert pulled(rig, "TagB", 0) == ([], UNITS_MAX)
    assert pulled(rig, "TagB", UNITS_MAX) == ([], UNITS_MAX + 10)
    rig.close()
