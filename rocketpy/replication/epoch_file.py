"""`epochFileCheckpoint` in the root of the store: which master wrote which bytes of the log (failover/rules/epochs.py).

An epoch is in it, on the disk, before the first byte of that epoch is in the log. There is no backup: an older list
would give bytes of the newest epoch to the one before.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy.atomic_file import write_atomically
from rocketpy.errors import StoreError
from rocketpy.failover.rules.epochs import EpochList, EpochsInvalid, from_text, to_text

EPOCH_FILE = "epochFileCheckpoint"
SIZE_MAX = 8 << 20  # bytes; EPOCHS_MAX lines need less


class EpochFile:
    """The epoch file of the store in the directory `root`. One process writes at a time."""

    def __init__(self, root: Path) -> None:
        self.path = root / EPOCH_FILE

    def read(self) -> EpochList:
        """The list; empty if there is no file: no master of a group with failover has written to this log.

        Raises:
            EpochsInvalid: it is damaged.
            StoreError: it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(SIZE_MAX + 1)
        except FileNotFoundError:
            return EpochList()
        except OSError as exc:
            raise StoreError(f"cannot read {self.path}: {exc.strerror}") from exc
        if len(data) > SIZE_MAX:
            raise EpochsInvalid(f"{self.path} has more than {SIZE_MAX} bytes")
        try:
            return from_text(data.decode("ascii"))
        except UnicodeDecodeError as exc:
            raise EpochsInvalid(f"{self.path} is no text: byte {exc.start}") from exc

    def write(self, epochs: EpochList) -> None:
        """Replace the list; on return it is on the disk.

        Raises:
            StoreError: it cannot be written; the old one is whole.
        """
        try:
            write_atomically(self.path, to_text(epochs).encode(), keep_old=False)
        except OSError as exc:
            raise StoreError(f"cannot write {self.path}: {exc.strerror}") from exc
