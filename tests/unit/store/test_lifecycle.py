"""Opening and closing a store: what outlives the kernel that wrote it, what a stop promises, what a failure leaves."""

from __future__ import annotations

import logging
import os
import shutil
import types
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.store.clocks import CautiousClock
from rocketpy.store.control_block import ControlBlock, RunningFlag
from rocketpy.store.dispatch import Dispatch
from rocketpy.store.files import DiskFiles, StorePaths, file_name
from rocketpy.store.formats.checkpoint import read_checkpoint
from rocketpy.store.recovery import lifecycle, store_lock
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.positions import Recovery, RecoveryKind
from tests.support.store_writer import StoreWriter

STORED_MS = 1_700_000_000_000


def fail(*_: object, **__: object) -> None:
    raise StoreError("no reason")


def test_the_log_says_how_the_store_was_left(config: MessageStoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: The first line of a new broker said that its store was opened after a clean stop."""
    caplog.set_level(logging.INFO)
    for clean in (True, False, True):
        close_store(open_store(config), clean=clean)
    said = [line.partition(" after ")[2].partition(":")[0] for line in caplog.messages if line.startswith("opened")]
    assert said == ["its creation", "a clean stop", "an unclean stop"]


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
    """Fault: A store worker started while the wall clock was ahead could delete files early."""
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


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("has_birth", [True, False])
@pytest.mark.parametrize("move", ["none", "renamed", "another mode", "copied"])
def test_a_store_that_was_copied_while_its_broker_ran_is_not_trusted(
    tmp_path: Path, move: str, has_birth: bool, is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system tells when a file was born. A store that stayed, and was only renamed or changed hands, is.

    Fault: A copy with the times of its files, of which the log was older than the control block, served zeros."""
    if not has_birth:
        monkeypatch.setattr(store_lock, "birth_ns", lambda descriptor: 0)
    there, here = tmp_path / "there", tmp_path / "here"
    opened = open_store(MessageStoreConfig(store_path_root_dir=str(there)))
    if has_birth and not opened.lock.born_ns:
        pytest.skip("a file system without times of birth")
    close_store(opened, clean=is_clean)
    if move == "copied":
        shutil.copytree(there, here)  # with the times of the files
    elif move == "renamed":
        there.rename(here)
    else:
        here = there
        (here / "lock").chmod(0o600 if move == "another mode" else 0o644)
    again = open_store(MessageStoreConfig(store_path_root_dir=str(here)))
    is_recognised = move == "copied" and has_birth and not is_clean
    assert again.report.kind is (RecoveryKind.FILES if is_recognised else RecoveryKind.TRUSTED)
    close_store(again, clean=False)
    again = open_store(MessageStoreConfig(store_path_root_dir=str(here)))
    assert again.report.kind is RecoveryKind.TRUSTED, "now it is the store of this place"
    close_store(again, clean=False)


def test_a_block_without_a_time_of_birth_is_trusted(config: MessageStoreConfig) -> None:
    """As an older version has written it."""
    opened = open_store(config)
    opened.control.header.lock_born_ns = 0
    close_store(opened, clean=False)
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.control.header.lock_born_ns == opened.lock.born_ns
    close_store(opened, clean=False)


def test_a_start_removes_what_a_dead_process_was_writing(config: MessageStoreConfig) -> None:
    """On a file system without unnamed files, a new file has another name until it is complete."""
    paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
    paths.commitlog.mkdir(parents=True)
    directory = paths.root / "x.new.d"
    directory.mkdir()
    leftovers = [paths.root / "abort.new.77", paths.commitlog.parent / f"{file_name(0)}.new.1"]
    own = paths.root / "new.txt"
    for path in (*leftovers, own):
        path.write_bytes(b"x")
    close_store(open_store(config), clean=False)
    assert not any(path.exists() for path in leftovers) and own.exists() and directory.exists()


def test_a_store_that_cannot_be_opened_is_let_go(config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    close_store(open_store(config), clean=True)

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "run", fail)
        with pytest.raises(StoreError, match="no reason"):
            open_store(config)
    close_store(open_store(config), clean=True)


def test_a_failed_opening_leaves_no_mapping(config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
    close_store(open_store(config), clean=True)
    monkeypatch.setattr(Recovery, "run", fail)
    with pytest.raises(StoreError, match="no reason"):
        open_store(config)
    assert str(paths.control) not in Path("/proc/self/maps").read_text()


def test_a_log_of_another_file_size_is_refused_before_anything_is_made(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
    paths.commitlog.mkdir(parents=True)
    (paths.commitlog / file_name(0)).write_bytes(b"short")
    with pytest.raises(StoreError, match="5 bytes"):
        open_store(config)
    assert not paths.control.exists() and not paths.abort.exists()
    (paths.commitlog / file_name(0)).unlink()
    close_store(open_store(config), clean=True)


def test_a_log_in_several_directories_is_refused(config: MessageStoreConfig) -> None:
    with pytest.raises(StoreError, match="names several directories"):
        open_store(attrs.evolve(config, store_path_commit_log=f"{config.store_path_commit_log},/elsewhere"))


@pytest.mark.parametrize("missing", [os.W_OK, os.X_OK])
def test_a_directory_that_cannot_be_written_is_named(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """Asked of the system and not tried: root may write anywhere."""
    paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
    monkeypatch.setattr(os, "access", lambda path, mode: path != paths.consumequeue or not mode & missing)
    with pytest.raises(StoreError, match=f"cannot write to {paths.consumequeue}"):
        open_store(config)


def test_the_owner_is_told_before_a_store_is_changed(config: MessageStoreConfig) -> None:
    told: list[tuple[RecoveryKind, bool]] = []
    close_store(open_store(config, distrust=lambda *what: told.append(what)), clean=True)
    assert told == [(RecoveryKind.FILES, False)], "a new store: nothing says that it lost nothing"
    close_store(open_store(config, distrust=lambda *what: told.append(what)), clean=True)
    assert len(told) == 1, "after a clean stop nothing is changed"


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ({"rp_flush_open": lambda *_: ffi.NULL, "rp_flush_log": lib.rp_flush_log}, "cannot flush the log"),
        ({"rp_flush_log": lambda _: lib.RP_IO_ERROR}, "cannot flush the log in"),
    ],
    ids=["no memory", "the disk fails"],
)
def test_a_log_that_cannot_be_flushed_is_not_marked_as_clean(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch, functions: dict[str, object], text: str
) -> None:
    opened = open_store(config)
    core = types.SimpleNamespace(
        **{"rp_flush_open": lib.rp_flush_open, "rp_flush_close": lib.rp_flush_close} | functions
    )
    monkeypatch.setattr(lifecycle, "lib", core)
    with pytest.raises(StoreError, match=text):
        close_store(opened, clean=True)
    assert opened.paths.abort.exists()


@pytest.mark.parametrize("is_full", [True, False])
def test_a_clean_stop_removes_files_that_were_allocated_ahead(config: MessageStoreConfig, is_full: bool) -> None:
    """Also if the log ends where the first of them begins."""
    opened = open_store(config)
    size = config.mapped_file_size_commit_log
    with StoreWriter(config, opened.control) as writer:
        while writer.put(store_timestamp_ms=STORED_MS).phy_offset < size and is_full:
            pass
    if is_full:
        close_store(opened, clean=False)
        opened = open_store(config, cut_at=size)
        assert opened.control.published_phy_offset == size
    for start in (size, 2 * size):
        opened.files.write(opened.paths.commitlog / file_name(start), 0, bytes(size))
    close_store(opened, clean=True)
    assert [path.name for path in opened.paths.commitlog.iterdir()] == [file_name(0)]


def test_a_stop_that_fails_lets_the_store_go(config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    opened = open_store(config)
    opened.paths.commitlog.rmdir()
    opened.paths.commitlog.write_bytes(b"")  # no directory to flush
    with pytest.raises(StoreError):
        close_store(opened, clean=True)
    assert opened.paths.abort.exists()
    opened.paths.commitlog.unlink()
    close_store(open_store(config), clean=True)


def test_a_clean_stop_is_marked_when_all_is_on_the_disk(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync_units, sync_block = Dispatch.sync, ControlBlock.sync

    def noted_units(dispatch: Dispatch, *, with_index: bool = False) -> None:
        sync_units(dispatch, with_index=with_index)
        steps.append("units and index" if with_index else "units")

    def noted_block(control: ControlBlock) -> None:
        sync_block(control)
        steps.append(f"block, clean={control.header.clean}")

    class Noted(DiskFiles):
        def write(self, path: Path, offset: int, data: bytes, *, sync: bool = False) -> None:
            super().write(path, offset, data, sync=sync)
            if sync:
                steps.append(f"write {path.name}")

        def remove(self, path: Path) -> None:
            super().remove(path)
            steps.append(f"remove {path.name}")

    opened = open_store(config, Noted())
    assert "write abort" in steps, "else a power failure could leave what looks like a clean stop"
    steps.clear()
    monkeypatch.setattr(Dispatch, "sync", noted_units)
    monkeypatch.setattr(ControlBlock, "sync", noted_block)
    close_store(opened, clean=True)
    assert [step for step in steps if "checkpoint" not in step] == ["units and index", "block, clean=1", "remove abort"]


def test_a_stop_leaves_no_mapping_and_no_descriptor(config: MessageStoreConfig) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        writer.put(store_timestamp_ms=STORED_MS, dispatch=False)
    close_store(opened, clean=True)
    assert str(opened.paths.root) not in Path("/proc/self/maps").read_text()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_stop_with_a_full_disk_is_clean(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    opened.control.header.running_flags = RunningFlag.DISK_FULL
    close_store(opened, clean=True)
    assert not opened.paths.abort.exists()


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_clean_stop_promises_units_and_keys_that_are_there(
    config: MessageStoreConfig, is_confirmed: bool, has_index: bool
) -> None:
    """Without the index, a later start with it has to build it; messages that are not confirmed have no units."""
    config = attrs.evolve(config, message_index_enable=has_index)
    opened = open_store(config, stops_at_confirmed=True)
    with StoreWriter(config, opened.control) as writer:
        put = writer.put(dispatch=False, store_timestamp_ms=STORED_MS)
    opened.control.header.confirmed_phy_offset = put.size if is_confirmed else 0
    close_store(opened, clean=True)
    checkpoint = read_checkpoint(opened.files, opened.paths.checkpoint)
    assert checkpoint.physic_msg_timestamp_ms == STORED_MS
    assert checkpoint.logics_msg_timestamp_ms == (STORED_MS if is_confirmed else 0)
    assert checkpoint.index_msg_timestamp_ms == (STORED_MS if is_confirmed and has_index else 0)
