"""A check: the store it looks at; problems with their places, notes, and the interface of progress reports."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

import attrs

from .reader import StoreReader
from .state_files import StoreState


class Code(StrEnum):
    """The kind of a problem, by what it was found in: the log, the queues, the index, or the state files."""

    RECORD = "C1"  # bytes that are no record
    CRC = "C2"  # a record whose body has changed
    OWN_OFFSET = "C3"  # a record that says that it is elsewhere
    TAIL = "C4"  # what lies past the log's end
    LOG_FILES = "C5"  # names and sizes
    QUEUE_OFFSET = "Q1"  # a jump in the queue offsets of the log
    UNIT = "Q2"  # a unit that does not fit its record
    MISSING = "Q3"  # records without a unit
    QUEUE_FILES = "Q4"  # names, sizes, and what lies after the last unit
    INDEX = "I1"  # header, slots and chains of an index file
    INDEX_KEYS = "I2"  # keys of records that the index lacks
    STATE = "S1"  # the control block


UNCHECKED_FIELDS = (
    *("flag", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes"),
    *("preparedTransactionOffset", "properties other than KEYS, TAGS and UNIQ_KEY"),
)
"""The fields of a record that no check can prove: its checksum covers the body alone. Its topic, queue, offsets, size
and tags are compared with the consume queue, its keys with the index."""


@attrs.frozen
class Problem:
    """Damage, and its place: a file below the store's root and a byte in it (-1: the whole file)."""

    code: Code
    file: str
    position: int
    text: str

    @property
    def place(self) -> str:
        return self.file if self.position < 0 else f"{self.file} at byte {self.position}"

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@attrs.define
class Findings:
    """Collects problems and notes. A note is no damage: the next start repairs it, or it could not be checked."""

    root: Path
    problems: list[Problem] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)

    def problem(self, code: Code, path: Path, position: int, text: str) -> None:
        self.problems.append(Problem(code, self.name(path), position, text))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


class ProgressListener(Protocol):
    """Receives the progress of a check."""

    def begin(self, what: str, total: int, unit: str) -> None:
        """A phase of `total` bytes or other units (`unit`) begins; the previous phase has ended."""

    def reached(self, done: int) -> None: ...


class NoListener:
    """Ignores progress."""

    def begin(self, what: str, total: int, unit: str) -> None:
        pass

    def reached(self, done: int) -> None:
        pass


@attrs.frozen
class Inspected:
    """A store, its state when the inspection began, and where findings and progress go."""

    reader: StoreReader
    state: StoreState
    findings: Findings
    listener: ProgressListener


class Check:
    """The common part of the checks; not used by itself."""

    def __init__(self, inspected: Inspected) -> None:
        self._reader = inspected.reader
        self._state = inspected.state
        self._findings = inspected.findings
        self._listener = inspected.listener
