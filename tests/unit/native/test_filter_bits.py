"""Filter bits in the pull worker: which units they exclude, over how many messages, and what they leave to the records.

The group's expression for pulls selects everything, that for dispatch some messages. What a pull does not find has been
excluded by bits.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.broker.fast_path.filter_messages import encode_filter, encode_subscription
from rocketpy.filter.parser import parse
from rocketpy.filter.program import compile_program
from rocketpy.native.core import ffi, lib, shared
from rocketpy.remoting.fast_path import FilterPlace
from tests.support.fast_path import EXT_FILE_SIZE, FastPath
from tests.support.fast_path_requests import pull, ready, records_of, send_v2

PLACE = FilterPlace(id=5, mark=3, bit_count=112, positions=(7, 50, 111))
BITMAP_SIZE = PLACE.bit_count // 8
UNIT_SIZE = 20 + BITMAP_SIZE
UNITS_PER_FILE = (EXT_FILE_SIZE - 4) // UNIT_SIZE
EXAMINED = 800  # RP_EXAMINED_MIN


@pytest.fixture
def marks() -> Any:
    return shared("rp_filter_marks", "a test")


@pytest.fixture
def rig(tmp_path: Path, marks: Any) -> Iterator[FastPath]:
    directory = ffi.new("char[]", str(tmp_path / "commitlog").encode())
    options = {"commitlog_directory": directory, "count_in_memory": 1000, "bytes_in_memory": 1 << 20}
    rig = ready(FastPath(tmp_path, options, is_extended=True, cq_file_size=20_000, filter_marks=marks))
    rig.tell_pull(
        lib.RP_MSG_SUBSCRIPTION,
        encode_subscription(
            "G", "T", flags=lib.RP_SUBSCRIPTION_ALL, sub_version=1, program=program("1 = 1"), place=PLACE
        ),
    )
    know(rig, PLACE)
    yield rig
    rig.close()


def program(text: str) -> bytes:
    return compile_program(parse(text))


def know(rig: FastPath, place: FilterPlace) -> None:
    """Let dispatch write the bits of messages that are wanted from now on."""
    data = encode_filter("G", "T", program=program("wanted = 'yes'"), place=place)
    assert lib.rp_dispatch_take_filter(rig.dispatch, data, len(data)) == lib.RP_OK
    lib.rp_dispatch_filters_are_whole(rig.dispatch)


def put(rig: FastPath, wanted: list[bool]) -> None:
    for is_wanted in wanted:
        rig.frame(send_v2(properties="wanted\x01yes" if is_wanted else "wanted\x01no"))
        rig.turn()
    assert {reply.code for _, reply in rig.answers()} == {0}


def pulled(rig: FastPath, offset: int, maximum: int = 1000) -> tuple[list[int], int]:
    """The offsets of the messages found, and where the next pull begins."""
    rig.frame(pull(offset, flags=0, maximum=maximum))
    rig.turn()
    ((_, reply),) = rig.answers()
    return [record.queue_offset for record in records_of(reply)], int(reply.ext_field("nextBeginOffset") or -1)


def all_pulled(rig: FastPath, count: int) -> list[int]:
    found, at = [], 0
    while at < count:
        offsets, at = pulled(rig, at)
        found += offsets
    return found


def ext_file(rig: FastPath, number: int = 0) -> Path:
    return rig.root / "consumequeue_ext" / "T" / "0" / f"{number * EXT_FILE_SIZE:020d}"


def test_messages_without_the_bits_are_passed_over(rig: FastPath) -> None:
    chance = random.Random(11)
    wanted = [chance.random() < 0.1 for _ in range(3 * UNITS_PER_FILE + 20)]
    put(rig, wanted)
    assert ext_file(rig, 3).exists()
    assert all_pulled(rig, len(wanted)) == [at for at, is_wanted in enumerate(wanted) if is_wanted]


def test_a_pull_passes_over_a_bounded_number_of_messages(rig: FastPath) -> None:
    put(rig, [False] * (EXAMINED + 5))
    assert pulled(rig, 0, 32) == ([], EXAMINED)
    assert pulled(rig, EXAMINED, 32) == ([], EXAMINED + 5)


def test_a_full_answer_ends_at_the_next_message_that_may_match(rig: FastPath) -> None:
    put(rig, [True, True, False, False, True, False])
    assert pulled(rig, 0, 1) == ([0], 1)
    assert pulled(rig, 1, 1) == ([1], 4)
    assert pulled(rig, 4, 1) == ([4], 6)


def test_bits_count_behind_the_mark_alone(rig: FastPath, marks: Any) -> None:
    put(rig, [False, True, False])
    know(rig, PLACE)  # anew: the mark moves to the end of the log
    put(rig, [False, True, False])
    assert all_pulled(rig, 6) == [0, 1, 2, 4]
    lib.rp_filter_marks_set(marks, PLACE.mark, PLACE.id + 1, 0)  # another subscription has the mark
    assert all_pulled(rig, 6) == list(range(6))
    lib.rp_filter_marks_set(marks, PLACE.mark, PLACE.id, 0)
    assert all_pulled(rig, 6) == [1, 4]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, bytes(UNIT_SIZE)),  # a page that never reached the disk
        (0, b"\xff\xff\0\0"),  # the end
        (0, struct.pack(">h", UNIT_SIZE - 1)),
        (18, struct.pack(">h", BITMAP_SIZE - 1)),
        (18, struct.pack(">h", -1)),
        (20, b"\xff" * BITMAP_SIZE),  # all bits
    ],
)
def test_a_message_with_a_damaged_extension_is_found(rig: FastPath, at: int, data: bytes) -> None:
    put(rig, [False, False, False])
    path = ext_file(rig)
    image = bytearray(path.read_bytes())
    image[UNIT_SIZE + at : UNIT_SIZE + at + len(data)] = data
    path.write_bytes(image)
    assert all_pulled(rig, 3) == [1]


def test_messages_whose_extension_file_is_lost_are_found(rig: FastPath) -> None:
    put(rig, [False] * (2 * UNITS_PER_FILE))
    ext_file(rig).unlink()
    assert all_pulled(rig, 2 * UNITS_PER_FILE) == list(range(UNITS_PER_FILE))


def test_a_unit_at_the_end_of_its_file_is_passed_over_and_one_that_is_cut_off_is_found(rig: FastPath) -> None:
    put(rig, [False] * UNITS_PER_FILE)
    assert all_pulled(rig, UNITS_PER_FILE) == []
    path = ext_file(rig)
    image = path.read_bytes()
    path.unlink()
    path.write_bytes(image[: UNITS_PER_FILE * UNIT_SIZE - 1])
    lib.rp_pull_run(rig.pull, 0)  # it lets go of mapped files
    assert all_pulled(rig, UNITS_PER_FILE) == [UNITS_PER_FILE - 1]
