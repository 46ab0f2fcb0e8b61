"""`epochFileCheckpoint` in the root of the store: which master wrote which bytes of the log (failover/rules/epochs.py).

An epoch is in it, on the disk, before the first byte of that epoch is in the log. There is no backup: an older list
would give bytes of the newest epoch to the one before. The format is that of RocketMQ 5.x:

    2               number of entries
    773307083       CRC-32 of all that follows, low 31 bits; 0: not checked
    7-7000          epoch-start, one line per epoch, oldest first
    8-8000
"""

from __future__ import annotations

import zlib
from pathlib import Path

from rocketpy.atomic_file import write_atomically
from rocketpy.errors import NumberInvalid, StoreError
from rocketpy.failover.rules.epochs import EPOCHS_MAX, Epoch, EpochList, EpochsInvalid
from rocketpy.message.numbers import INT_MAX, LONG_MAX, parse_integer

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


def to_text(epochs: EpochList) -> str:
    """The content of the file."""
    lines = "".join(f"{entry.number}-{entry.start}\n" for entry in epochs.entries)
    return f"{len(epochs.entries)}\n{_crc_of(lines)}\n{lines}"


def from_text(text: str) -> EpochList:
    """Read the content of the file.

    Raises:
        EpochsInvalid: a number cannot be read, the count or the CRC differs, or the epochs are not in order.
    """
    try:
        lines = text.splitlines()
        count, crc = (parse_integer(line, 0, INT_MAX) for line in (*lines[:2], "", "")[:2])
        entries = tuple(_entry_of(line) for line in lines[2 : EPOCHS_MAX + 3])
    except NumberInvalid as exc:
        raise EpochsInvalid(f"epoch file: {exc}") from exc
    if count != len(lines) - 2:
        raise EpochsInvalid(f"epoch file: {len(lines) - 2} entries, expected {count}")
    found = _crc_of("".join(f"{line}\n" for line in lines[2:]))
    if crc not in (0, found):
        raise EpochsInvalid(f"epoch file: CRC {found}, expected {crc}")
    return EpochList(entries)


def _entry_of(line: str) -> Epoch:
    number, _, start = line.partition("-")
    return Epoch(parse_integer(number, 0, INT_MAX), parse_integer(start, 0, LONG_MAX))


def _crc_of(lines: str) -> int:
    return zlib.crc32(lines.encode()) & 0x7FFF_FFFF
