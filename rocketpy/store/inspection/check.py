"""What the checks of log, queues and index work with."""

from __future__ import annotations

import attrs

from .findings import Findings, ProgressListener
from .reader import StoreReader
from .state_files import StoreState


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
