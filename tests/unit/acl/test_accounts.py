"""Permissions, accounts, and the table of accounts."""

from __future__ import annotations

import itertools
import pickle

import pytest

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.acl.addresses import AddressPattern
from rocketpy.acl.permissions import (
    ANY,
    DENY,
    PUB,
    SUB,
    PermissionInvalid,
    allows,
    check_entry,
    parse_entry,
    parse_permission,
    shown,
)
from tests.support.cases import cases

SECRET = "the-secret-text"


@cases(
    "word, bits",
    [("PUB", PUB), (" SUB\t", SUB), ("PUB|SUB", PUB | SUB), ("SUB|PUB", PUB | SUB), ("DENY", DENY)]
    + [(word, DENY) for word in (None, "", "ANY", "pub", "PUB | SUB", "PUB,SUB", "\u00a0PUB")],
)
def test_words(word: str | None, bits: int) -> None:
    assert parse_permission(word) == bits


def test_bits() -> None:
    for owned, needed in itertools.product(range(16), (PUB, SUB, ANY)):
        wanted = {PUB: owned & PUB, SUB: owned & SUB, ANY: owned & (PUB | SUB)}[needed]
        assert allows(owned, needed) == (not owned & DENY and wanted != 0)


def test_entries() -> None:
    assert parse_entry(" t = PUB ", of_group=False) == ("t", PUB)
    assert parse_entry("g==SUB", of_group=True) == ("%RETRY%g", SUB)
    assert parse_entry("t=nonsense", of_group=False) == ("t", DENY)
    for entry in ("", "t", "=", "t=", "=PUB", "t=PUB=SUB"):
        with pytest.raises(PermissionInvalid, match=r"^Parse resource permission failed for group:"):
            parse_entry(entry, of_group=True)
        with pytest.raises(PermissionInvalid, match=r"^Parse Resource format error for "):
            check_entry(entry)
    check_entry("t= SUB|PUB ")
    with pytest.raises(PermissionInvalid, match=r"^Parse resource permission error for t=ANY.\nThe expected"):
        check_entry("t=ANY")
    assert shown("%RETRY%g") == "group:g" and shown("t") == "topic:t"


def test_names_come_before_defaults() -> None:
    account = Account(
        "account",
        SECRET,
        default_topic_permission=PUB | SUB,
        default_group_permission=SUB,
        permissions={"denied": DENY, "read": SUB, "%RETRY%denied": DENY},
    )
    assert account.may("other", PUB) and account.may("read", SUB) and account.may("%RETRY%other", SUB)
    assert not account.may("denied", ANY) and not account.may("read", PUB) and not account.may("%RETRY%denied", SUB)
    assert not account.may("%RETRY%other", PUB)


@pytest.mark.parametrize("permissions", [{}, {"t": SUB}])
def test_an_administrator_with_permissions_by_name_is_not_almighty(permissions: dict[str, int]) -> None:
    """Holds: trap, administrators with resources in access control."""
    account = Account("account", SECRET, is_admin=True, permissions=permissions)
    assert account.may("other", PUB) == account.may("%RETRY%g", SUB) == account.may_somewhere(PUB) == (not permissions)
    assert account.may("t", SUB) and account.may_somewhere(SUB)


def test_some_topic_is_no_group() -> None:
    assert not Account("account", SECRET, permissions={"%RETRY%g": PUB | SUB, "t": DENY}).may_somewhere(SUB)
    assert Account("account", SECRET, default_topic_permission=SUB).may_somewhere(SUB)


def test_the_first_account_of_a_key_counts_and_the_table_can_be_sent_to_processes() -> None:
    first, second = Account("account", SECRET, is_admin=True), Account("account", SECRET)
    table = Accounts.of([first, second], map(AddressPattern.of, ["", "10.0.0.*"]))
    assert table.by_key["account"] is first and len(table.white_addresses) == 1
    assert table.is_white("10.0.0.9") and not table.is_white("10.0.1.9")
    assert pickle.loads(pickle.dumps(table)) == table
    assert SECRET not in repr(table) + str(first)
