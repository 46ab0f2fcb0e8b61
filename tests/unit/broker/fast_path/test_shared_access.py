"""SharedAccess: accounts as other processes read them. Its decisions are tested with the C that reads them
(tests/unit/native/test_access.py)."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.acl.addresses import AddressPattern
from rocketpy.acl.validator import Reason
from rocketpy.broker.fast_path.shared_access import SharedAccess
from rocketpy.native.core import ffi

ACCOUNTS = Accounts.of([Account("account-1", "secret-ä", is_admin=True)], [AddressPattern.of("10.0.0.{1,2}")])


def test_a_forked_process_reads_what_is_published_later() -> None:
    shared = SharedAccess()
    go, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go, 1)
        os._exit(0 if shared.read() == (2, ACCOUNTS) else 1)
    shared.publish(ACCOUNTS)
    os.write(ready, b"1")
    assert os.waitpid(pid, 0)[1] == 0


def resident_kib(shared: SharedAccess) -> int:
    """Return the memory of the table."""
    start = int(ffi.cast("uintptr_t", shared.pointer))
    place = re.search(rf"^{start:x}-.*?^Rss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.M | re.S)
    assert place
    return int(place[1])


def test_a_table_of_few_accounts_takes_few_pages() -> None:
    """Fault: A table of one account took the memory of all that fit, as it was cleared before each publication."""
    shared = SharedAccess()
    for _ in range(3):
        shared.publish(ACCOUNTS)
    assert resident_kib(shared) <= 16 * mmap.PAGESIZE // 1024


def test_accounts_of_before_are_gone() -> None:
    shared = SharedAccess()
    shared.publish(ACCOUNTS)
    shared.publish(Accounts())
    assert b"account-1" not in bytes(ffi.buffer(shared.pointer.accounts))
    shared.publish(ACCOUNTS)
    assert b"account-1" in bytes(ffi.buffer(shared.pointer.accounts))


def test_nothing_is_published_at_first() -> None:
    assert SharedAccess().read() == (0, Accounts())


def test_refusals_of_all_processes_are_counted_together() -> None:
    shared = SharedAccess()
    pid = os.fork()
    if pid == 0:
        shared.count(Reason.ROLE)
        os._exit(0)
    os.waitpid(pid, 0)
    shared.count(Reason.ROLE)
    assert shared.refused == {reason.value: 2 if reason is Reason.ROLE else 0 for reason in Reason}
