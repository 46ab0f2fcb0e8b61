"""Opening and closing a store: what of the control block outlives the kernel that wrote it."""

from __future__ import annotations

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.store.lifecycle import close_store, open_store


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
