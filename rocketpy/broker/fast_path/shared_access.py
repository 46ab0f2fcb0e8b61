"""Accounts in shared memory (csrc/ipc/access.h): published by the manager, read by every process that decides.

The fast path reads prepared keys and decisions from there, processes of Python the accounts themselves. Created before
the first fork.
"""

from __future__ import annotations

import mmap
import pickle
import secrets
import struct
from collections.abc import Mapping

from rocketpy.acl.accounts import Accounts
from rocketpy.acl.validator import Reason
from rocketpy.errors import ConfigError
from rocketpy.native.core import ffi, lib, shared

_HEAD = struct.Struct("=QiIII")  # version, code, sizes of access key, topic and group
_REASONS = tuple(Reason)
assert len(_REASONS) <= lib.RP_ACCESS_REASONS


class SharedAccess:
    """The table of one broker. One process at a time publishes; all others read, without a lock.

    Args:
        brokers: access keys of the brokers' own accounts, which have no limits.
    """

    def __init__(self, brokers: frozenset[str] = frozenset()) -> None:
        self._brokers = brokers
        self.pointer = shared("rp_access", "accounts")
        lib.madvise(self.pointer, ffi.sizeof("rp_access"), mmap.MADV_DONTDUMP)
        self.pointer.seed = secrets.randbits(64)

    @property
    def version(self) -> int:
        """The version of the accounts, which changes with each publication; odd: one is under way."""
        return int(self.pointer.version)

    def publish(self, accounts: Accounts) -> None:
        """Replace all accounts. Decisions about the former ones end.

        Raises:
            ConfigError: they are too many bytes; nothing has changed.
        """
        image = pickle.dumps(accounts, pickle.HIGHEST_PROTOCOL)
        if len(image) > lib.RP_ACCESS_PUBLISHED_MAX:
            raise ConfigError(f"accounts of {len(image)} bytes, more than {lib.RP_ACCESS_PUBLISHED_MAX}")
        lib.rp_access_begin(self.pointer)
        for account in accounts.by_key.values():
            key, secret = account.access_key.encode(), account.secret_key.encode("utf-8", "replace")
            is_broker = account.access_key in self._brokers
            lib.rp_access_add(self.pointer, key, len(key), secret, len(secret), is_broker)  # else it is Python's
        ffi.memmove(self.pointer.published, image, len(image))
        lib.rp_access_end(self.pointer, len(image))

    def read(self) -> tuple[int, Accounts] | None:
        """The accounts with their version. None: they are just being replaced."""
        access, size = self.pointer, ffi.new("uint64_t *")
        lock = ffi.addressof(access, "version")
        before = lib.rp_sequence_copy(lock, size, ffi.addressof(access, "published_size"), ffi.sizeof("uint64_t"))
        image = bytearray(size[0] if before else 0)
        version = lib.rp_sequence_copy(lock, ffi.from_buffer(image), access.published, len(image))
        if not before or version != before:
            return None
        return int(version) - 1, pickle.loads(image) if image else Accounts()  # written by this tree of processes

    def allow(self, version: int, code: int, access_key: str, topic: str, group: str) -> None:
        """Let the fast path serve requests of this code, account, topic and group until the version changes."""
        names = [name.encode("utf-8", "replace") for name in (access_key, topic, group)]
        head = _HEAD.pack(version, code, *map(len, names))
        content = head + b"".join(names)
        if len(content) <= lib.RP_ACCESS_DECISION_MAX:
            lib.rp_access_allow(self.pointer, content, len(content))

    def count(self, reason: Reason) -> None:
        """Count a refused request."""
        lib.rp_access_refused(self.pointer, _REASONS.index(reason), 1)

    @property
    def refused(self) -> Mapping[str, int]:
        """Refused requests by reason, of all processes since the start of the broker."""
        return {reason.value: int(lib.rp_access_refused(self.pointer, at, 0)) for at, reason in enumerate(_REASONS)}
