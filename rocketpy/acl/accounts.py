"""Accounts and their table: frozen values, so that processes share them and a reload replaces them whole.

An account owns permissions for topics and groups by name, and a default for all others. An administrator without any
permission by name may do everything; with some, the defaults count for all others, and they are DENY unless given.

Source: RocketMQ 4.9 `PlainAccessResource`, `PlainPermissionManager#checkPerm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from .addresses import NOBODY, AddressPattern
from .permissions import DENY, allows, is_group

KEY_LENGTH_MIN = 7  # characters of an access key and of a secret key


@attrs.frozen
class Account:
    """One account. Its secret is in no text."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    white_addresses: AddressPattern = NOBODY
    is_admin: bool = False
    default_topic_permission: int = DENY
    default_group_permission: int = DENY
    permissions: Mapping[str, int] = attrs.field(factory=dict)
    """Permissions by resource: topics under their names, groups under their retry topics."""

    @property
    def may_everything(self) -> bool:
        return self.is_admin and not self.permissions

    def may(self, resource: str, needed: int) -> bool:
        """Return True if the account has one of the needed permissions for a topic or, by its retry topic, a group."""
        if self.may_everything:
            return True
        owned = self.permissions.get(resource)
        if owned is None:
            owned = self.default_group_permission if is_group(resource) else self.default_topic_permission
        return allows(owned, needed)

    def may_somewhere(self, needed: int) -> bool:
        """Return True if there can be a topic for which the account has one of these permissions."""
        if self.may_everything or allows(self.default_topic_permission, needed):
            return True
        return any(allows(owned, needed) for name, owned in self.permissions.items() if not is_group(name))


@attrs.frozen
class Accounts:
    """All accounts of a server, and the addresses that need none."""

    by_key: Mapping[str, Account] = attrs.field(factory=dict)
    white_addresses: tuple[AddressPattern, ...] = ()

    @classmethod
    def of(cls, accounts: Iterable[Account], white: Iterable[AddressPattern] = ()) -> Accounts:
        """Make the table: of accounts with the same key the first one counts."""
        by_key: dict[str, Account] = {}
        for account in accounts:
            by_key.setdefault(account.access_key, account)
        return cls(by_key, tuple(pattern for pattern in white if not pattern.is_empty))

    def is_white(self, host: str) -> bool:
        return any(pattern.has(host) for pattern in self.white_addresses)
