"""What survives a long collection of cyclic garbage is not visited again."""

from __future__ import annotations

import gc

import pytest

from rocketpy.processes.workers.garbage_collection import short_collections


class ProcessorTime:
    """Advances by `step_ns` at each reading; a collection reads it twice."""

    def __init__(self, step_ns: int) -> None:
        self.now_ns = 0
        self.step_ns = step_ns

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


@pytest.fixture(autouse=True)
def only_new_objects_are_visited() -> None:
    """Freeze what was there before, and leave it frozen, as the whole run does (tests/conftest.py): a collection of all
    that it has imported takes a second."""
    gc.freeze()


@pytest.mark.parametrize(("step_ns", "is_frozen"), [(4_999_999, False), (5_000_000, True)])
def test_survivors_of_a_collection_are_frozen_if_it_took_long(step_ns: int, is_frozen: bool) -> None:
    table = [[number] for number in range(1_000)]
    before = gc.get_freeze_count()
    with short_collections(now_ns=ProcessorTime(step_ns)):
        gc.collect()
    assert (gc.get_freeze_count() - before > len(table)) is is_frozen


def test_collections_of_young_objects_freeze_nothing() -> None:
    before = gc.get_freeze_count()
    with short_collections(now_ns=ProcessorTime(10**9)):
        gc.collect(0)
        gc.collect(1)
    assert gc.get_freeze_count() <= before  # less if an object of another test was frozen, and is freed meanwhile


def test_frozen_objects_are_freed_when_nothing_refers_to_them() -> None:
    class Entry:
        freed = 0

        def __del__(self) -> None:
            Entry.freed += 1

    table = [Entry() for _ in range(10)]
    with short_collections(now_ns=ProcessorTime(10**9)):
        gc.collect()
    del table
    assert Entry.freed == 10


def test_after_the_context_nothing_is_frozen() -> None:
    with short_collections(now_ns=ProcessorTime(10**9)):
        pass
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= before  # as above
