"""The objects that the checks of log, queues and index share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from .findings import Findings, ProgressListener
from .reader import StoreReader
from .state_files import StoreState
from .tally import QueueTally


@attrs.frozen
class Inspected:
    """A store, its state when the inspection began, and where findings and progress go."""

    reader: StoreReader
    state: StoreState
    findings: Findings
    listener: ProgressListener


class CheckedLog(Protocol):
    """The facts about the log that the check of the queues needs."""

    @property
    def begin(self) -> int: ...  # phy offset
    @property
    def end(self) -> int: ...  # phy offset
    @property
    def is_dispatch_known(self) -> bool: ...  # the control block says which records must have units

    def tallies(self) -> Iterator[QueueTally]: ...


class Check:
    """The common part of the checks; not used by itself."""

    def __init__(self, inspected: Inspected) -> None:
        self._reader = inspected.reader
        self._state = inspected.state
        self._findings = inspected.findings
        self._listener = inspected.listener
