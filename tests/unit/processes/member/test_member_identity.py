"""A member's store gets a new incarnation when acknowledged bytes may be gone, and epochs that fit its log."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.failover.member_block import MemberBlock
from rocketpy.failover.rules.epochs import EpochList
from rocketpy.processes.member.identity import StoreIdentity, distrust, forget, open_epoch, open_identity
from rocketpy.processes.member.tree import MemberMemory, MemberTree, Parked, Role
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import another_boot
from tests.support.store_writer import StoreWriter, small_config


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    return small_config(tmp_path / "store")


def write(opened: OpenedStore, count: int = 20) -> int:
    """Returns: the end of the log."""
    with StoreWriter(opened.config, opened.control) as writer:
        for _ in range(count):
            writer.put("A", 0, b"x" * 100, b"")
    return opened.control.published_phy_offset


class Runs:
    """One opening after the other of one store."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self.config = config
        self.opened: OpenedStore | None = None

    def open(self, *, is_sync_flush: bool = False, cut_at: int | None = None) -> StoreIdentity:
        self.open_and_die(cut_at=cut_at)
        assert self.opened is not None
        return open_identity(self.opened, is_sync_flush=is_sync_flush)

    def open_and_die(self, *, cut_at: int | None = None) -> None:
        """Recovery is done, and no file of the member has been written yet. `close` ends it like a kill."""
        told = partial(distrust, Path(self.config.store_path_root_dir))
        self.opened = open_store(self.config, cut_at=cut_at, distrust=told)

    def close(self, *, clean: bool = False) -> None:
        assert self.opened is not None
        close_store(self.opened, clean=clean)

    def lose_power(self) -> None:
        self.close()
        assert self.opened is not None
        another_boot(self.opened.paths)


@pytest.mark.parametrize("clean", [True, False])
def test_it_stays_over_a_stop_and_a_kill(config: MessageStoreConfig, clean: bool) -> None:
    runs = Runs(config)
    first = runs.open()
    assert first.is_new and len(first.incarnation) == 32
    assert runs.opened is not None
    write(runs.opened)
    runs.close(clean=clean)
    again = runs.open()
    assert again.incarnation == first.incarnation and not again.is_new
    runs.close()


def test_of_two_new_stores_none_is_the_other(tmp_path: Path) -> None:
    identities = []
    for name in ("a", "b"):
        runs = Runs(small_config(tmp_path / name))
        identities.append(runs.open().incarnation)
        runs.close()
    assert len(set(identities)) == 2


@pytest.mark.parametrize("flushes", list(itertools.product([False, True], repeat=2)))
def test_after_a_loss_of_power_it_stays_only_if_all_was_on_the_disk(
    config: MessageStoreConfig, flushes: tuple[bool, bool]
) -> None:
    """The setting of the run that acknowledged counts, not that of the next one."""
    runs = Runs(config)
    first = runs.open(is_sync_flush=flushes[0])
    assert runs.opened is not None
    write(runs.opened)
    runs.lose_power()
    again = runs.open(is_sync_flush=flushes[1])
    assert (again.incarnation == first.incarnation) is flushes[0]
    runs.close()


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_an_opening_that_is_cut_short_hides_no_loss_of_power(config: MessageStoreConfig, is_sync_flush: bool) -> None:
    """The next one trusts the store. So it is when the file could not be written, because the disk is full.
    Fault: A member that lost power and died while opening its store kept its incarnation."""
    runs = Runs(config)
    first = runs.open(is_sync_flush=is_sync_flush)
    assert runs.opened is not None
    write(runs.opened)
    runs.lose_power()
    runs.open_and_die()
    runs.close()
    again = runs.open()
    assert runs.opened.report.kind is RecoveryKind.TRUSTED
    assert (again.incarnation == first.incarnation) is is_sync_flush
    runs.close()


def test_an_opening_that_is_cut_short_hides_no_copy_and_no_other_program(
    config: MessageStoreConfig, tmp_path: Path
) -> None:
    runs, root = Runs(config), Path(config.store_path_root_dir)
    first = runs.open()
    assert runs.opened is not None and open_epoch(runs.opened, first, 3) is not None
    write(runs.opened)
    runs.close(clean=True)
    shutil.copytree(root, tmp_path / "copy")
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    runs.open_and_die()
    runs.close()
    copied = runs.open()
    assert copied.incarnation != first.incarnation
    assert copied.epochs is not None and copied.epochs.last == 3
    runs.close(clean=True)
    os.utime(runs.opened.paths.lock)  # as a broker of the reference does
    runs.open_and_die()
    runs.close()
    changed = runs.open()
    assert changed.incarnation != copied.incarnation and changed.epochs == EpochList()
    runs.close()


def test_synchronous_flushing_is_no_promise_for_what_was_acknowledged_before(config: MessageStoreConfig) -> None:
    runs = Runs(config)
    first = runs.open(is_sync_flush=False)
    assert runs.opened is not None
    write(runs.opened)
    runs.close()
    assert runs.open(is_sync_flush=True).incarnation == first.incarnation
    assert runs.opened.control.durable_phy_offset < runs.opened.control.published_phy_offset
    runs.lose_power()
    assert runs.open().is_new
    runs.close()


def test_another_program_or_a_lost_control_block(config: MessageStoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs(config)
    first = runs.open()
    assert runs.opened is not None
    identity = open_epoch(runs.opened, first, 3)
    assert identity is not None and identity.epochs == EpochList().opened(3, 0)
    write(runs.opened)
    runs.close(clean=True)
    runs.opened.paths.control.unlink()
    with caplog.at_level(logging.WARNING):
        again = runs.open()
    assert again.incarnation != first.incarnation and again.epochs == EpochList()
    assert "put aside" in caplog.text and "new incarnation" in caplog.text
    runs.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_that_was_put_back_from_a_copy(config: MessageStoreConfig, tmp_path: Path, clean: bool) -> None:
    """A copy with all times of files lacks what was acknowledged since. Its epochs still describe its log.
    Fault: A store restored from a copy passed for the in-sync one and could be elected."""
    runs, root = Runs(config), Path(config.store_path_root_dir)
    first = runs.open()
    assert runs.opened is not None and open_epoch(runs.opened, first, 3) is not None
    end = write(runs.opened)
    runs.close(clean=clean)
    shutil.copytree(root, tmp_path / "copy")
    runs.open()
    write(runs.opened)
    runs.close()
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    again = runs.open()
    assert again.is_new and again.incarnation != first.incarnation
    assert again.epochs is not None and again.epochs.last == 3
    assert runs.opened.control.published_phy_offset == end
    runs.close()
    assert runs.open().incarnation == again.incarnation
    runs.close()


def test_a_cut_keeps_the_incarnation_and_drops_the_epochs_behind_it(config: MessageStoreConfig) -> None:
    runs = Runs(config)
    first = runs.open()
    assert runs.opened is not None
    identity: StoreIdentity | None = first
    ends = []
    for epoch in (1, 2, 3):
        assert identity is not None
        identity = open_epoch(runs.opened, identity, epoch)
        ends.append(write(runs.opened))
    runs.close()
    cut = runs.open(cut_at=ends[0])
    assert cut.incarnation == first.incarnation
    assert cut.epochs == EpochList().opened(1, 0).opened(2, ends[0]) == EpochFile(runs.opened.paths.root).read()
    runs.close()


def test_an_epoch_goes_on_only_if_none_of_its_bytes_was_taken_back(config: MessageStoreConfig) -> None:
    runs = Runs(config)
    identity = runs.open(is_sync_flush=True)
    assert runs.opened is not None
    begun = open_epoch(runs.opened, identity, 5)
    assert begun is not None and begun.epochs is not None and begun.epochs.last == 5
    end = write(runs.opened)
    runs.close()
    again = runs.open(is_sync_flush=True)
    assert open_epoch(runs.opened, again, 5) == again and again.epochs == begun.epochs
    assert open_epoch(runs.opened, again, 4) is None
    later = open_epoch(runs.opened, again, 6)
    assert later is not None and later.epochs == EpochList().opened(5, 0).opened(6, end)
    runs.lose_power()
    recovered = runs.open(is_sync_flush=True)
    assert open_epoch(runs.opened, recovered, 6) is None  # bytes of it may be gone
    assert open_epoch(runs.opened, recovered, 7) is not None
    runs.close()


def test_a_damaged_epoch_file_is_told_and_left_alone(config: MessageStoreConfig) -> None:
    runs = Runs(config)
    runs.open()
    assert runs.opened is not None
    path = EpochFile(runs.opened.paths.root).path
    path.write_text("2\n1\n7-0\n")
    runs.close()
    damaged = runs.open()
    assert damaged.epochs is None and path.read_text() == "2\n1\n7-0\n"
    assert open_epoch(runs.opened, damaged, 9) is None
    runs.close()


@pytest.mark.parametrize("content", ["", "abc\ndurable\n", "0" * 32 + "\n", "0" * 32 + "\nperhaps\n"])
def test_a_damaged_incarnation_is_made_anew(config: MessageStoreConfig, content: str) -> None:
    runs = Runs(config)
    runs.open()
    assert runs.opened is not None
    (runs.opened.paths.root / "incarnation").write_text(content)
    runs.close()
    again = runs.open()
    assert again.is_new and len(again.incarnation) == 32
    runs.close()


def test_a_broker_without_failover_leaves_the_group(config: MessageStoreConfig) -> None:
    runs = Runs(config)
    first = runs.open()
    assert runs.opened is not None
    open_epoch(runs.opened, first, 3)
    runs.close()
    forget(runs.opened.paths.root)
    forget(runs.opened.paths.root)
    again = runs.open()
    assert again.is_new and again.epochs == EpochList()
    runs.close()


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_was_proposed_behind_a_cut_is_not_reported(config: MessageStoreConfig, is_cut: bool) -> None:
    """Else the member's report names bytes that it does not have.
    Fault: A member reported confirmed positions beyond a cut of its log."""
    runs, block = Runs(config), MemberBlock()
    runs.open()
    assert runs.opened is not None
    at, end = write(runs.opened), write(runs.opened)
    runs.close()
    block.pointer.proposed_phy_offset = block.pointer.alone_phy_offset = end + (0 if is_cut else 7)
    opened = open_store(config, cut_at=at if is_cut else None)
    parked = Parked()
    tree = MemberTree("a", MemberMemory(block), Role(), is_sync_group=True, parked=parked)
    assert tree.begin(opened, is_sync_flush=False)
    expected = at if is_cut else end + 7
    assert block.confirmed(0) == block.pointer.alone_phy_offset == expected
    close_store(opened, clean=False)
    for end in (parked.into, parked.out):
        end.close()
