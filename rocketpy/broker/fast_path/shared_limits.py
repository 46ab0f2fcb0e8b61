"""Limits of peer addresses and accounts in shared memory (csrc/ipc/limits.h), which all workers of a broker share.

Selectors apply the limits of addresses. Requests of accounts are refused where the account is known: by codecs in C, by
the manager and query workers here. Created before the first fork.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.networks import parse_address

_COUNTERS = {
    "untracked": lib.RP_LIMITS_UNTRACKED,
    "account_busy": lib.RP_LIMITS_BUSY,
    "address_blocked": lib.RP_LIMITS_BLOCKED,
}


class SharedLimits:
    """The tables of one broker; any process changes them, without a lock.

    Args:
        limits: fields of rp_limits_config.
        now_ns: as CLOCK_MONOTONIC.
    """

    def __init__(
        self, limits: Mapping[str, int], selector_count: int, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._now_ns = now_ns
        self._failures_max = limits.get("failures", 0)
        self.limits_accounts = any(limits.get(name) for name in ("account_requests", "account_bytes"))
        self.pointer: Any = lib.rp_limits_create([dict(limits)], selector_count, int.from_bytes(os.urandom(8)))
        if self.pointer == ffi.NULL:
            raise StoreError(f"no shared memory for limits: {os.strerror(ffi.errno)}")

    def failed(self, host: str) -> bool:
        """The identity of a request from the numeric address `host` was refused. Returns True if that blocks it now."""
        address = parse_address(host)
        peer = ffi.new("rp_host *", {"family": address.version, "address": address.packed.ljust(16, b"\0")})
        failures = int(lib.rp_limits_failed(self.pointer, peer, self._now_ns()))
        return failures > 0 and failures == self._failures_max

    def take(self, access_key: str, size: int) -> str | None:
        """A request of `size` bytes of this account. Returns: None: let it pass; else the remark to refuse it with."""
        key, row, now_ns = access_key.encode("utf-8", "replace"), ffi.new("uint32_t *"), self._now_ns()
        text = lib.rp_limits_busy(self.pointer, key, len(key), now_ns, row)
        if text != ffi.NULL:
            return str(ffi.string(text).decode())
        lib.rp_limits_take(self.pointer, row[0], size, now_ns)
        return None

    @property
    def counts(self) -> Mapping[str, int]:
        """Events in all processes since the start of the broker."""
        return {name: int(lib.rp_limits_counter(self.pointer, number)) for name, number in _COUNTERS.items()}
