"""Opening and closing a store: what of the control block outlives the kernel that wrote it."""

from __future__ import annotations

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.store.clocks import CautiousClock
from rocketpy.store.recovery.lifecycle import close_store, open_store


@pytest.mark.parametrize("is_other_kernel", [False, True])
def test_the_broker_s_clock_goes_on_under_the_same_kernel_only(
    config: MessageStoreConfig, is_other_kernel: bool
) -> None:
    opened = open_store(config)
    opened.control.header.clock_slow_base_ms = 7_000_000
    if is_other_kernel:
        opened.control.header.boot_id[0] ^= 1
    close_store(opened, clean=False)
    opened = open_store(config)
    assert opened.control.clock_ms(5000, 2000) == (5000 if is_other_kernel else 7_001_000)
    close_store(opened, clean=False)


@pytest.mark.parametrize("has_java_come", [False, True])
@pytest.mark.parametrize("is_other_kernel", [False, True])
def test_so_does_the_cautious_clock(config: MessageStoreConfig, is_other_kernel: bool, has_java_come: bool) -> None:
    opened = open_store(config)
    now_ms, boot_ms = 1_700_000_000_000, 5_000
    CautiousClock(opened.control.header, lambda: now_ms, lambda: boot_ms)
    if is_other_kernel:
        opened.control.header.boot_id[0] ^= 1
    close_store(opened, clean=True)
    if has_java_come:
        opened.paths.lock.write_bytes(b"lock")
    opened = open_store(config)
    clock = CautiousClock(opened.control.header, lambda: now_ms + 86_400_000, lambda: boot_ms)
    assert clock.now_ms() == now_ms + (86_400_000 if is_other_kernel else 0)
    close_store(opened, clean=False)
