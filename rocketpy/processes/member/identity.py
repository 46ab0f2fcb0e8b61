"""The identity of a member's store: its incarnation and the epochs of its log, read and repaired when the store is
opened.

The *incarnation* is a random number in the file `incarnation` of the store's root. It is made anew whenever bytes that
this member has acknowledged may be gone, so a member that lost some is never taken for the member that the in-sync set
names: the store is new, it was recovered from files (another program or a restored backup came between), or the machine
lost power while acknowledged bytes were in the page cache only. The file tells if that could be the case.

The *epoch file* keeps no epoch that begins past the log's end. If another program has appended to the log, no epoch
names its bytes: the list is put aside, and the log counts as one without epochs.
"""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

import attrs

from rocketpy.atomic_file import sync_directory, write_atomically
from rocketpy.errors import StoreError
from rocketpy.failover.rules.epochs import EpochList, EpochsInvalid
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.recovery.lifecycle import OpenedStore
from rocketpy.store.recovery.positions import RecoveryKind

from .marks import INCARNATION_FILE

DURABLE, VOLATILE = "durable", "volatile"  # what was acknowledged was on the disk, or perhaps not
_log = logging.getLogger(__name__)


@attrs.frozen
class StoreIdentity:
    """`epochs` is None if the epoch file is damaged."""

    incarnation: str
    is_new: bool  # the incarnation was made just now
    epochs: EpochList | None


def distrust(root: Path, kind: RecoveryKind, is_ours: bool) -> None:
    """Forget what may not be true any more, before recovery changes the store.

    A process that is killed during recovery, or cannot write the new incarnation, leaves a store that the next opening
    trusts, with its end gone.

    Args:
        kind: of the recovery that begins. is_ours: no other program has used the store.
    Raises:
        StoreError: a file cannot be read or removed.
    """
    path = root / INCARNATION_FILE
    incarnation, was_durable = _read_incarnation(path)
    if not is_ours:
        _put_aside(EpochFile(root), "another program has used the store")
    if not incarnation or _is_kept(kind, was_durable):
        return
    try:
        path.unlink()
        sync_directory(root)
    except OSError as exc:
        raise StoreError(f"cannot remove {path}: {exc.strerror}") from exc
    _log.warning("failover: the store in %s is not %s any more (recovery: %s)", root, incarnation, kind.value)


def _is_kept(kind: RecoveryKind, was_durable: bool) -> bool:
    """Return True if a store that is opened like this has all that it ever acknowledged."""
    return kind in (RecoveryKind.TRUSTED, RecoveryKind.CUT) or (kind is RecoveryKind.FLUSHED and was_durable)


def open_identity(opened: OpenedStore, *, is_sync_flush: bool) -> StoreIdentity:
    """Read both files, and write what has changed. Called before the first worker is forked.

    Raises:
        StoreError: a file cannot be read or written.
    """
    incarnation, is_new = _open_incarnation(opened, is_sync_flush)
    return StoreIdentity(incarnation, is_new, _open_epochs(opened))


def open_epoch(opened: OpenedStore, identity: StoreIdentity, epoch: int) -> StoreIdentity | None:
    """Begin `epoch` at the end of the log; on return it is on the disk. The same epoch may go on after a restart.

    Returns: None if it cannot be served: the epoch file is damaged, has a later one, or this opening has taken back
        bytes of this very epoch.
    """
    epochs = identity.epochs
    if epochs is None or epochs.last > epoch:
        return None
    if epochs.last == epoch:
        return identity if opened.report.kind is RecoveryKind.TRUSTED and not identity.is_new else None
    epochs = epochs.opened(epoch, int(opened.control.published_phy_offset))
    EpochFile(opened.paths.root).write(epochs)
    return attrs.evolve(identity, epochs=epochs)


def forget(root: Path) -> None:
    """Make a store one that no group knows: a broker without failover is about to write to it.

    Raises: StoreError.
    """
    try:
        if (root / INCARNATION_FILE).exists():
            (root / INCARNATION_FILE).unlink()
        _put_aside(EpochFile(root), "the store was opened with haMode=plain")
    except OSError as exc:
        raise StoreError(f"cannot leave the group of failover in {root}: {exc.strerror}") from exc


def _open_incarnation(opened: OpenedStore, is_sync_flush: bool) -> tuple[str, bool]:
    path, control, kind = opened.paths.root / INCARNATION_FILE, opened.control, opened.report.kind
    before, was_durable = _read_incarnation(path)
    incarnation = before if before and _is_kept(kind, was_durable) else secrets.token_hex(16)
    is_new = incarnation != before
    if is_new:
        text = "failover: the store in %s has a new incarnation, %s (recovery: %s)"
        _log.warning(text, opened.paths.root, incarnation, kind.value)
    is_durable = is_sync_flush and (is_new or was_durable or _is_all_durable(control.header))
    text = f"{incarnation}\n{DURABLE if is_durable else VOLATILE}\n"
    try:
        if not path.exists() or path.read_text(encoding="ascii") != text:
            write_atomically(path, text.encode())
    except OSError as exc:
        raise StoreError(f"cannot write {path}: {exc.strerror}") from exc
    return incarnation, is_new


def _is_all_durable(header: object) -> bool:
    return int(header.durable_phy_offset) == int(header.published_phy_offset)  # type: ignore[attr-defined]  # of cffi


def _read_incarnation(path: Path) -> tuple[str, bool]:
    """Return the incarnation (empty: none, or damaged), and True if all that it acknowledged was on the disk.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        lines = path.read_bytes()[:200].decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return "", False
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc.strerror}") from exc
    is_whole = len(lines) == 2 and len(lines[0]) == 32 and lines[1] in (DURABLE, VOLATILE)
    return (lines[0], lines[1] == DURABLE) if is_whole else ("", False)


def _open_epochs(opened: OpenedStore) -> EpochList | None:
    file, end = EpochFile(opened.paths.root), int(opened.control.published_phy_offset)
    if not opened.is_ours:
        _put_aside(file, "another program has used the store")
    try:
        epochs = file.read()
    except EpochsInvalid as exc:
        _log.error("failover: %s; this member halts (docs/run/automatic-failover.md, halted)", exc)
        return None
    kept = epochs.until(end)
    if kept != epochs:
        file.write(kept)
    return kept


def _put_aside(file: EpochFile, why: str) -> None:
    if not file.path.exists():
        return
    aside = Path(f"{file.path}.aside")
    os.replace(file.path, aside)
    _log.warning("failover: %s: its epoch file no longer describes the log and is put aside as %s", why, aside)
