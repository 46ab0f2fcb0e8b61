"""Return codes of the compiled functions, by name."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """`rp_status` of csrc/base/status.h. From 0 up: expected outcomes; below: faults."""

    OK = 0
    EMPTY = 1
    FULL = 2
    END_OF_FILE = 3
    INCOMPLETE = 4
    UNSUPPORTED = 5
    NOT_FOUND = 6
    STOPPED = 7
    INVALID = -1
    TOO_LARGE = -2
    CORRUPT = -3
    NO_SPACE = -4
    IO_ERROR = -5
    NO_MEMORY = -6
