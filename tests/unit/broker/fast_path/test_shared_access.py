"""SharedAccess: accounts as other processes read them. Its decisions are tested with the C that reads them
(tests/unit/native/test_access.py)."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.acl.addresses import AddressPattern
from rocketpy.acl.validator import Reason
from rocketpy.broker.fast_path.shared_access import SharedAccess

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
