"""Epoch lists: the file of RocketMQ 5.x, and the common end of two logs against their bytes."""

from __future__ import annotations

import random

import pytest

from rocketpy.failover.rules.epochs import (
    BEFORE_FAILOVER,
    EPOCHS_MAX,
    Epoch,
    EpochList,
    EpochsInvalid,
    common_end,
)


def listed(*entries: tuple[int, int]) -> EpochList:
    return EpochList(tuple(Epoch(number, start) for number, start in entries))


def test_what_a_log_held_before_its_first_epoch_has_a_name() -> None:
    assert EpochList().opened(1, 500) == listed((BEFORE_FAILOVER, 0), (1, 500))
    assert EpochList().opened(1, 0) == listed((1, 0))
    assert listed((1, 0)).opened(2, 0) == listed((1, 0), (2, 0))


def test_a_list_has_an_upper_bound() -> None:
    """A follower reads the file at each start, and a peer sends the list."""
    assert len(listed(*((number, 0) for number in range(EPOCHS_MAX))).entries) == EPOCHS_MAX
    with pytest.raises(EpochsInvalid, match="100001 epochs, at most 100000"):
        listed(*((number, 0) for number in range(EPOCHS_MAX + 1)))


def test_epochs_behind_a_cut_are_dropped_and_one_at_it_stays() -> None:
    assert listed((1, 0), (2, 10), (3, 20)).until(10) == listed((1, 0), (2, 10))


@pytest.mark.parametrize(
    ("one", "one_end", "other", "other_end", "end"),
    [
        (listed((1, 0)), 10, listed((1, 0)), 7, 7),
        (listed((1, 0), (2, 10)), 15, listed((1, 0), (3, 10)), 20, 10),
        (listed((1, 0), (2, 10), (3, 10)), 10, listed((1, 0), (3, 10)), 30, 10),
        (listed((1, 0), (2, 10)), 10, listed((1, 0), (3, 8)), 30, 8),
        (listed((1, 5)), 9, listed((1, 6)), 9, None),
        (EpochList(), 0, listed((1, 0)), 9, 0),
        (EpochList(), 5, listed((1, 0)), 9, None),
    ],
)
def test_common_ends(one: EpochList, one_end: int, other: EpochList, other_end: int, end: int | None) -> None:
    assert common_end(one, one_end, other, other_end) == end
    assert common_end(other, other_end, one, one_end) == end


def test_the_common_end_is_where_the_bytes_part() -> None:
    """Random histories of three logs: masters append, followers copy, cut first, are cut back, and take over."""
    chance = random.Random(5)
    for _ in range(2000):
        logs: list[list[tuple[int, int]]] = [[], [], []]
        lists = [EpochList()] * 3
        serial = 0
        for epoch in range(1, chance.randint(2, 7)):
            master = chance.randrange(3)
            lists[master] = lists[master].opened(epoch, len(logs[master]))
            for _ in range(chance.randint(0, 3)):
                serial += 1
                logs[master].append((epoch, serial))
            for follower in range(3):
                if follower != master and chance.random() < 0.6:
                    common = _longest_common_prefix(logs[follower], logs[master])
                    end = chance.randint(common, len(logs[master]))
                    logs[follower], lists[follower] = logs[master][:end], lists[master].until(end)
        for one in range(3):
            for other in range(3):
                found = common_end(lists[one], len(logs[one]), lists[other], len(logs[other]))
                assert (found or 0) == _longest_common_prefix(logs[one], logs[other]), (lists, logs)


def _longest_common_prefix(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
