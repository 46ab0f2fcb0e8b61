"""Which tests go to a worker of pytest-xdist together, and which begin first.

Workers take units from a list. A unit is a file, because its tests may share fixtures that cost seconds, or a single
test of the places in APART, whose tests start brokers of their own and share nothing. The longest units begin first:
otherwise one of them runs alone at the end, while the other workers have nothing to do. The files of SOURCES are one
unit, because each reads the syntax tree of all sources: a second or two. Files of WAITING, whose tests
wait for brokers half of their time, are spread among the others, which compute: one after another, they would leave
processors idle.
"""

from __future__ import annotations

import re

import pytest
from xdist.scheduler import LoadScopeScheduling

APART = re.compile(
    r"tests/(?:fault/|ha/(?!test_upgrade)|interop/test_(?:java_slave|orderly|store_both_ways|store_matrix|worker_deaths))"
)
SOURCES = re.compile(r"tests/unit/test_(?:layering|operations_page|tidy)\.py::")
WAITING = ("tests/system/", "tests/security/")
# Beginnings of the names of tests: SOURCES, then others by their seconds in a run of CI.
LONGEST = (
    "tests/unit/test_layering.py",  # with the others of SOURCES
    "tests/unit/test_operations_page.py",
    "tests/unit/test_tidy.py",
    "tests/fault/test_deletion.py",
    "tests/fault/test_hostile_requests.py",
    "tests/fault/test_exact_restarts.py",
    "tests/fault/test_confirm_race.py",
    "tests/fault/test_crash_points.py",
    "tests/fault/test_killed_workers.py",
    "tests/fault/test_memory.py",
    "tests/fault/test_transaction_crashes.py",
    "tests/fault/test_transactions.py",
    "tests/fault/test_timers.py",
    "tests/fault/test_slave_crashes.py",
    "tests/ha/test_brokers.py::test_three_members_with_faults_at_random",
    "tests/ha/test_asynchronous.py",
    "tests/ha/test_brokers.py",
    "tests/interop/test_mqadmin_texts.py",
    "tests/interop/test_store_matrix.py",
    "tests/interop/test_worker_deaths.py",
    "tests/interop/test_store_both_ways.py",
    "tests/interop/test_request_reply.py",
    "tests/interop/test_orderly.py::test_order_outlives",
    "tests/interop/test_offset_reset.py",
    "tests/interop/test_mqadmin.py",
    "tests/interop/test_reading_from_slaves.py",
    "tests/interop/test_push.py",
    "tests/interop/test_send.py",
    "tests/interop/test_java_histories.py",
    "tests/interop/test_lite_pull.py",
    "tests/interop/test_client_accounts.py",
    "tests/interop/test_store_damage.py",
    "tests/spark/test_topics.py",
    "tests/spark/test_stream_reader.py",
    "tests/spark/test_exactness.py",
    "tests/spark/test_demo_job.py",
    "tests/spark/test_archive_topics.py",
    "tests/spark/test_dedup_stream.py",
)


def unit_of(name: str) -> str:
    """Return the unit of the test with this name: its file, SOURCES, or itself."""
    if SOURCES.match(name):
        return SOURCES.pattern
    return name if APART.match(name) else name.split("::", 1)[0]


def begins_of(names: list[str]) -> dict[str, float]:
    """When each file begins, from 0 to 1: those of WAITING and the others in their order, evenly spread; the last ones
    compute, because they are shorter."""
    files = list(dict.fromkeys(name.split("::", 1)[0] for name in names))
    waiting = [file for file in files if file.startswith(WAITING)]
    others = [file for file in files if not file.startswith(WAITING)]
    return {file: 0.9 * at / len(waiting) for at, file in enumerate(waiting)} | {
        file: at / len(others) for at, file in enumerate(others)
    }


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the tests by LONGEST; the others by `begins_of`, behind."""
    begins = begins_of([item.nodeid for item in items])

    def rank(item: pytest.Item) -> tuple[int, float]:
        name = item.nodeid
        longest = next((rank for rank, begin in enumerate(LONGEST) if name.startswith(begin)), len(LONGEST))
        return longest, begins[name.split("::", 1)[0]] if longest == len(LONGEST) else 0.0

    items.sort(key=rank)


class Scheduling(LoadScopeScheduling):
    """Gives units to workers in the order of the tests (make passes --no-loadscope-reorder)."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
