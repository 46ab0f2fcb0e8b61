"""Tallies of the parts of a log, joined, are those of one walk over it, wherever it is cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.store.inspection.tally import QueueTally, goes_on, join, tally_of
from tests.support.log_images import record

NO_LIMIT = (1 << 64) - 1


def walk(records: Sequence[bytes], start: int, limit: int = NO_LIMIT) -> tuple[QueueTally, int]:
    """(the tally of queue A/0, how many findings) of these records, which begin at `start` of the log."""
    image = b"".join(records)
    verify = lib.rp_verify_open()
    try:
        position = ffi.new("uint64_t *", start)
        status = lib.rp_verify_log(verify, image, len(image), start, position, NO_LIMIT, limit, True)
        assert status == Status.OK
        return tally_of(verify.tallies[0]), verify.totals.findings
    finally:
        lib.rp_verify_close(verify)


def log_of(queue_offsets: Sequence[int]) -> list[bytes]:
    """Records of queue A/0 with these queue offsets, one after the other from phy offset 0."""
    records: list[bytes] = []
    for number, offset in enumerate(queue_offsets):
        one = record("A", b"x" * (number + 1), queue_id=0)
        records.append(one.encode(phy_offset=sum(map(len, records)), queue_offset=offset))
    return records


@pytest.mark.parametrize("limit", [NO_LIMIT, 700, 0])
@pytest.mark.parametrize(
    "queue_offsets",
    [
        [0, 1, 2, 3, 4, 5],
        [7, 8, 9, 10, 11],
        [5, 6, 0, 1, 2, 3],  # deleted and created again
        [5, 6, 0, 1, 0, 1, 2],
        [0, 0, 0],
        [3, 4, 9, 10, 11],  # a gap
        [3, 4, 2, 3],
    ],
)
def test_joined_parts_are_one_walk(queue_offsets: list[int], limit: int) -> None:
    records = log_of(queue_offsets)
    whole, findings = walk(records, 0, limit)
    for cut in range(1, len(records)):
        at = sum(map(len, records[:cut]))
        before, found_before = walk(records[:cut], 0, limit)
        after, found_after = walk(records[cut:], at, limit)
        assert join(before, after) == whole
        assert found_before + found_after + (not goes_on(before, after, [])) == findings


def test_a_gap_over_damage_is_no_finding() -> None:
    records = log_of([0, 1, 5, 6])
    before, _ = walk(records[:2], 0)
    after, _ = walk(records[2:], 1000)
    assert not goes_on(before, after, [])
    assert goes_on(before, after, [before.max_phy_offset])
    assert not goes_on(before, after, [before.max_phy_offset - 1, 1000])
    backwards, _ = walk(log_of([1, 2]), 1000)
    assert not goes_on(before, backwards, [before.max_phy_offset])
