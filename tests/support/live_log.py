"""Reads the log files of a running broker, which may be in the middle of a record."""

from __future__ import annotations

import time
from pathlib import Path

from rocketpy.errors import RecordCorrupt
from rocketpy.message.record import StoredRecord, decode_records

TRIES = 100
PAUSE_S = 0.05  # the disk may hold the writer of a record for long; a killed one has a successor, which writes it anew


def records_in(path: Path) -> list[StoredRecord]:
    """The records of a log file. One that is only half there is read again.

    Raises:
        RecordCorrupt: it stays so.
    """
    for _ in range(TRIES):
        try:
            return list(decode_records(path.read_bytes(), int(path.name)))
        except RecordCorrupt:
            time.sleep(PAUSE_S)
    return list(decode_records(path.read_bytes(), int(path.name)))
