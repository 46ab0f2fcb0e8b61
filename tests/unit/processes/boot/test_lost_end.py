"""A master that starts with less than a slave has says so, with both positions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import BrokerRole, BrokerSettings, FlushDiskType
from rocketpy.processes.boot.store_opening import begin_replication
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter, small_config


def settings_of(role: BrokerRole = BrokerRole.SYNC_MASTER, **store: Any) -> BrokerSettings:
    settings = BrokerSettings()
    return attrs.evolve(settings, store=attrs.evolve(settings.store, broker_role=role, **store))


def after_a_crash(
    root: Path, *, lost: int, other_kernel: bool = True, clean: bool = False, slave: bool = True
) -> OpenedStore:
    """A store of three messages that a slave had, of which the last `lost` did not reach the disk."""
    config = small_config(root)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        puts = [writer.put(body=b"%d" % number) for number in range(3)]
    header, end = opened.control.header, opened.control.published_phy_offset
    header.replicated_phy_offset = end if slave else 0
    if lost:
        header.durable_phy_offset = header.units_durable_phy_offset = puts[-lost].phy_offset
        (log,) = opened.paths.commitlog.glob("[0-9]*" + "0" * 19)
        with log.open("r+b") as file:
            file.seek(puts[-lost].phy_offset)
            file.write(bytes(end - puts[-lost].phy_offset))
    if other_kernel:
        header.boot_id[0] ^= 1
    close_store(opened, clean=clean)
    return open_store(config)


@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_a_master_that_has_lost_what_a_slave_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, role: BrokerRole
) -> None:
    """Fault: A SYNC_MASTER that lost acknowledged messages did not say that its slave had them."""
    opened = after_a_crash(tmp_path, lost=2)
    replicated, end = opened.replicated_before, opened.control.published_phy_offset
    assert 0 < end < replicated
    with caplog.at_level(logging.WARNING):
        begin_replication(opened, settings_of(role))
    (line,) = caplog.messages
    assert f"it ends at {end}, and a slave has it up to {replicated} at least" in line and line.startswith(
        "replication: lost the end"
    )
    assert opened.control.header.replicated_phy_offset == 0
    close_store(opened, clean=False)


def test_a_master_that_may_have_lost_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The block may be older than the log: what it names is there, but the slave may have more."""
    opened = after_a_crash(tmp_path, lost=0)
    with caplog.at_level(logging.WARNING):
        begin_replication(opened, settings_of())
    assert [
        line.startswith("replication: the log may have lost its end with the power") for line in caplog.messages
    ] == [True]
    close_store(opened, clean=False)


@pytest.mark.parametrize(
    ("crash", "settings"),
    [
        ({"other_kernel": False}, settings_of()),  # all of the broker was killed
        ({"clean": True}, settings_of()),
        ({"slave": False}, settings_of()),
        ({}, settings_of(flush_disk_type=FlushDiskType.SYNC_FLUSH)),
        ({}, settings_of(BrokerRole.SLAVE)),
    ],
)
def test_otherwise_it_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, crash: dict[str, bool], settings: BrokerSettings
) -> None:
    opened = after_a_crash(tmp_path, **{"lost": 0, **crash})
    with caplog.at_level(logging.WARNING):
        begin_replication(opened, settings)
    assert not caplog.messages
    assert opened.control.header.replicated_phy_offset == 0
    close_store(opened, clean=False)
